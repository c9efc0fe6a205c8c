//! HTTP/1.1: one request asks, one response answers.
//!
//! ```text
//! -> POST /v1/spend                {"limit":"Login","id":"alice"}
//! <- 200, RateLimit: "Login";r=4;t=12
//!    {"allowed":true,"remaining":4,"retry_after":0,"reset_after":12,"limit":"Login"}
//! ```
//!
//! Three layers, each usable alone: [`Framer`] finds whole requests in what has arrived, [`Command`] reads a body or
//! a query string, [`Response`] writes the answer. The framing is our own, over `httparse`, because a rate limiter's
//! answer is smaller than the bookkeeping of a general server, and because every byte a peer can make us keep must be
//! bounded here.

mod answer;
mod command;
mod explain;
pub mod fields;
mod framing;
mod inspect;
mod keys;
mod object;
mod problem;
mod query;
mod response;
mod rule;

pub use answer::{Answer, AnswerError};
pub use command::{Ask, Asks, Command, Malformed};
pub use explain::{Explained, Part, PartKind};
pub use framing::{Framer, FramerEvent, FramingError, HEADERS_MAX, HttpRequest, Method, MissingPart};
pub use inspect::{Inspect, Inspected, State};
pub use keys::{KeysPage, ListKeys};
pub use problem::Problem;
pub use query::{DenyStatus, Gate};
pub use response::{HttpStatus, Response};
pub use rule::{AskRule, Ruled};

pub use crate::moment::Moment;
