//! Over UDP text: a datagram asks, a datagram answers, and silence is an answer too.
//!
//! ```no_run
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! use tollway_client::text::Client;
//!
//! let client = Client::connect("127.0.0.1:2000").await?;
//! if client.over_limit("ws ip=192.0.2.1").await?.over() {
//!     // Turn the request away.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Without a runtime, the same by [`blocking::Client`].
//!
//! A limiter must not take down what it protects. So a client waits for [`TIMEOUT`] and no longer, and then has its
//! caller go on as though the answer were N: [`Decision::Unanswered`] is not over the limit. Every question gets an id
//! of the client's own, so an answer that comes too late, or from elsewhere, is never taken for that to another
//! question.

pub mod blocking;
mod client;
mod question;

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_wire::text::DATAGRAM_MAX;
pub use tollway_wire::text::{CheckLimit, KeyStats, OverLimit};

pub use client::{Client, IN_FLIGHT_MAX};

/// How long an answer may take unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_millis(100);

/// What is known about one use of a key, or of the keys of a `check_limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// What the server said.
    Answered(OverLimit),
    /// The server said nothing in time. Callers go on as though they were under the limit.
    Unanswered,
}

impl Decision {
    /// Is the key over its limit, as far as anybody said?
    pub const fn over(&self) -> bool {
        matches!(self, Self::Answered(OverLimit { over: true, .. }))
    }

    /// What the server said, if it did.
    pub const fn answered(&self) -> Option<OverLimit> {
        match self {
            Self::Answered(over_limit) => Some(*over_limit),
            Self::Unanswered => None,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The question would not arrive as it was meant: it has a newline in it, or is too long for a datagram.
    #[error(
        "a server would not understand this: a key has no newlines, and a datagram at most {DATAGRAM_MAX} bytes"
    )]
    Unsendable,
    /// No answer came in time.
    #[error("no answer from {address} within {waited:?}")]
    Unanswered {
        /// Who was asked.
        address: String,
        /// How long was waited at most.
        waited: Duration,
        /// What happened, if it was not just silence.
        source: Option<io::Error>,
    },
    /// Something came that is no answer to this question.
    #[error("{reply:?} is no answer to this")]
    Misunderstood {
        /// What came.
        reply: String,
    },
}
