//! SPEAK: bytes to commands, and replies to bytes.
//!
//! ```
//! use tollgate_core::Verb;
//! use tollgate_wire::http::Command;
//!
//! let command = Command::from_json(Verb::Spend, br#"{"limit":"Login","id":"alice"}"#)?;
//! assert_eq!(command.asks()[0].cost, 1);
//! # Ok::<(), tollgate_wire::http::Malformed>(())
//! ```
//!
//! A codec has no socket and no runtime: it takes what has arrived and says what it means, or what is missing. So the
//! server, the clients, the fuzzers and the tests all run the same functions.
#![forbid(unsafe_code)]

pub mod http;

mod decimal;
mod json;
