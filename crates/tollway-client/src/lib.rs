//! ASK: a server, from another process.
//!
//! | module | protocol | |
//! |---|---|---|
//! | [`gatekeeper`] | Smockron over ZeroMQ | delays and rejects by what a master last said, without asking it |
//! | [`http`] | JSON over HTTP | every limit of the policy, bills, refunds |
//! | [`text`] | lines of text in UDP datagrams | keys; answers within 0.1 s or goes on |
//! | [`throttr`] | binary frames over TCP | quotas that their owner makes; many requests in one write |
//!
//! ```no_run
//! use tollway_client::core::Verb;
//! use tollway_client::http::{ServerResponse, ChargeRequest, Client};
//!
//! let client = Client::new("127.0.0.1:8080");
//! let answer = client.ask(Verb::Spend, &[ChargeRequest::new("Login", "alice", 1)])?;
//! let may_log_in = matches!(answer, ServerResponse::Decision { allowed: true, .. });
//! # Ok::<(), tollway_client::http::AskError>(())
//! ```
//!
//! Every call ends: it has a deadline, and what waits for answers is bounded.
#![forbid(unsafe_code)]

pub mod gatekeeper;
pub mod http;
pub mod text;
pub mod throttr;

pub use tollway_core as core;
pub use tollway_wire as wire;
