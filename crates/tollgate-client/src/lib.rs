//! ASK: a server, from another process.
//!
//! ```no_run
//! use tollgate_client::http::Client;
//! use tollgate_client::core::Verb;
//! use tollgate_client::wire::{Answer, Ask};
//!
//! let client = Client::new("127.0.0.1:8080");
//! let answer = client.ask(Verb::Spend, &[Ask::new("Login", "alice", 1)])?;
//! let may_log_in = matches!(answer, Answer::Decision { allowed: true, .. });
//! # Ok::<(), tollgate_client::http::AskError>(())
//! ```
#![forbid(unsafe_code)]

pub mod http;

pub use tollgate_core as core;
pub use tollgate_wire::http as wire;
