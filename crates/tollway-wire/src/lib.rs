//! The codecs of every protocol: they turn bytes into requests, and replies into bytes.
//!
//! | module | protocol | decodes | encodes |
//! |---|---|---|---|
//! | [`http`] | JSON over HTTP/1.1 | [`Framer`](http::Framer), [`HttpCommand`](http::HttpCommand) | [`ResponseWriter`](http::ResponseWriter) |
//! | [`rls`] | Envoy's rate limit service, as protocol buffers and as JSON | [`rls::decode`], [`rls::from_json`] | [`rls::encode`], [`rls::put_json`] |
//! | [`text`] | lines of text in UDP datagrams | [`text::decode`] | [`text::encode`] |
//! | [`throttr`] | binary frames over TCP | [`throttr::decode`] | [`throttr::encode`] |
//! | [`resp`] | the protocol of Redis, both versions | [`resp::decode`], [`RespCommand`](resp::RespCommand) | [`ReplyWriter`](resp::ReplyWriter) |
//! | [`zmtp`] | ZeroMQ, for publishers and subscribers | [`ZmtpSession`](zmtp::ZmtpSession) | [`zmtp::encode`] |
//! | [`smockron`] | messages of gatekeepers and their master, over ZeroMQ | [`AccountingMessage`](smockron::AccountingMessage), [`ControlMessage`](smockron::ControlMessage) | the same |
//!
//! ```
//! use tollway_core::Verb;
//! use tollway_wire::http;
//! use tollway_wire::{text, throttr};
//!
//! let command = http::HttpCommand::from_json(Verb::Spend, br#"{"limit":"Login","id":"alice"}"#)?;
//! assert_eq!(command.charges()[0].cost, 1);
//!
//! let request = text::decode(b"7 over_limit ws global").ok_or("silence")?;
//! assert_eq!(request.command, text::TextCommand::OverLimit { key: b"ws global" });
//!
//! let inbox = b"\x04\x01\0\0\0\x01\x01cr and the rest";
//! let (request, len) = throttr::decode(inbox)?.ok_or("not yet whole")?;
//! assert_eq!((request.command, len), (throttr::ThrottrCommand::Purge, 9));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A codec has no socket and no runtime. It takes the bytes that have arrived and returns a message, or that more bytes
//! are needed. So the server, the clients, the fuzzers and the tests all run the same functions.
#![forbid(unsafe_code)]

pub mod audit;
pub mod http;
pub mod resp;
pub mod rls;
pub mod smockron;
pub mod text;
pub mod throttr;
pub mod zmtp;

mod decimal;
mod json;
mod rfc3339;
mod throttlecrab;
