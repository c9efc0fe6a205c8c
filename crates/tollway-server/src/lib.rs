//! The server: it has gates for every protocol, over one limiter.
//!
//! ```
//! use std::sync::Arc;
//! use tollway::config::{Config, Gates};
//! use tollway::Clock;
//! use tollway::engine::Engine;
//! use tollway_server::{Server, Settings};
//!
//! let config = Config::parse("limits: { Login: { burst: 5, count: 5, period: 1m } }", "login.yaml")?;
//! let engine = Engine::open(config, Clock::monotonic())?;
//! let gates = Gates { http: Some("127.0.0.1:0".parse()?), ..Gates::OFF };
//! let settings = Settings { gates, ..Settings::new(Arc::new(engine)) };
//! let server = Server::start(settings)?;
//! println!("POST http://{}/v1/spend", server.http_addr().expect("the gate is on"));
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread per core, each with its own runtime, its own listening socket and its own counters. A connection stays
//! on the thread that accepted it, so nothing on the way of a request is shared but the buckets.
#![forbid(unsafe_code)]

mod audit;
mod bounds;
mod caller;
mod datagrams;
mod decision_log;
mod drain;
mod gate;
mod metrics;
mod reload;
mod secret_file;
mod server;
mod service;
mod spans;
mod stats;
mod tap;
mod tokens;
mod trace_responder;
mod watch;
mod worker;

pub use audit::AuditFileError;
pub use bounds::Bounds;
pub use drain::{Signals, WorkerPanicked};
pub use gate::{
    AccessFileError, AccessFileWarning, BindError, GateTlsError, KeyFileError, OpenGate, OpenGatesError,
    PlainTextGate, ReservedPorts, TlsFileError, TlsFileWarning, allow_connections, check_access_files,
    check_tls_files, open_gates, plain_text_gates,
};
pub use reload::ConfigFile;
pub use server::{Server, Settings, StartChecks};
pub use tokens::{
    LimitGlobs, LimitGlobsError, NewToken, NewTokenError, Scope, Scopes, TokenFileError, TokenLineError,
    UnknownScope, check_tokens,
};
pub use trace_responder::TraceResponder;
