//! Traces: requests with times, and the replies they must get.
//!
//! ```
//! use tollway::core::algorithm::{Algorithm, TokenBucket};
//! use tollway::core::{Limit, Policy, Timestamp};
//! use tollway::store::memory::Memory;
//! use tollway::trace::{TraceReader, TraceTarget, matches};
//! use tollway::{Clock, Limiter};
//!
//! let trace = "0s     limit  spend A:x cost=3  => allow remaining=0 retry_after=0.3s reset_after=0.3s
//!              0.25s  limit  spend A:x         => allow remaining=1 retry_after=0s reset_after=0.15s
//! ";
//! let numbers = Algorithm::TokenBucket(TokenBucket::new(3, 1, "100ms".parse()?)?);
//! let policy = Policy::new(vec![Limit::new("A")?.with_default(numbers)])?;
//! let mut limiter = Limiter::with(policy, Memory::new(100), Clock::manual(Timestamp::EPOCH));
//!
//! for event in TraceReader::new(trace.as_bytes()) {
//!     let event = event?;
//!     let reply = limiter.answer(event.at, &event.request);
//!     let expected = event.expected.as_deref().expect("every line above has one");
//!     assert!(matches(expected, &reply), "{}", event.with_reply(&reply));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The trace is the clock: whatever answers it is told the time of each event, so nothing ever waits, and the same
//! text drives the core, a store, a gate on a socket, or a million recorded requests.

mod escape;
mod frames;
mod hex;
mod parse;
mod reader;
mod reply;
mod rule;
mod target;

use std::fmt;

use tollway_core::{Timestamp, Verb};

pub use frames::ZmqMessage;
pub use parse::{TraceError, TraceProblem, parse_line};
pub use reader::{LINE_MAX, ReadError, TraceReader};
pub use reply::{TraceReply, matches};
pub use rule::RuleRequest;
pub use target::TraceTarget;

/// One line of a trace that asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The line it stands on, counted from 1.
    pub line: u64,
    /// When it happens.
    pub at: Timestamp,
    /// What is asked.
    pub request: TraceRequest,
    /// The reply that must come back, if the trace says.
    pub expected: Option<String>,
    /// The time, the gate and the request as they were written, with the blanks before the arrow.
    pub text: String,
}

impl TraceEvent {
    /// The event as a line of a trace in which `reply` is what must come back, spaced as it was written.
    pub fn with_reply<'a>(&'a self, reply: &'a TraceReply) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            f.write_str(&self.text)?;
            if !self.text.ends_with([' ', '\t']) {
                f.write_str("  ")?;
            }
            write!(f, "=> {reply}")
        })
    }
}

/// What is asked, and at which gate. It displays as the trace writes it, the gate first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceRequest {
    /// At the gate `limit`, which speaks of limits by name.
    Limit(LimitRequest),
    /// At the gate `rule`, which resolves rules.
    Rule(RuleRequest),
    /// At the gate `text`: one datagram.
    Text(Vec<u8>),
    /// At the gate `throttr`: what the client of the trace's one connection writes, whole requests or parts of them.
    Throttr(Vec<u8>),
    /// At the gate `smockron`: an accounting message.
    Smockron(ZmqMessage),
}

impl TraceRequest {
    /// The gate's name.
    pub const fn gate(&self) -> &'static str {
        match self {
            Self::Limit(_) => "limit",
            Self::Rule(_) => "rule",
            Self::Text(_) => "text",
            Self::Throttr(_) => "throttr",
            Self::Smockron(_) => "smockron",
        }
    }
}

impl fmt::Display for TraceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.gate())?;
        match self {
            Self::Limit(request) => request.fmt(f),
            Self::Rule(request) => request.fmt(f),
            Self::Text(text) => escape::write_text(f, text),
            Self::Throttr(bytes) => hex::write(f, bytes),
            Self::Smockron(message) => frames::write(f, message),
        }
    }
}

/// One bill of named limits, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// What to do.
    pub verb: Verb,
    /// To which buckets, and how much.
    pub charges: Vec<ChargeText>,
}

impl fmt::Display for LimitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.name())?;
        for charge in &self.charges {
            write!(f, " {charge}")?;
            if charge.cost != self.verb.default_cost() {
                write!(f, " cost={}", charge.cost)?;
            }
        }
        Ok(())
    }
}

/// A charge as a caller spells it: not yet held against any policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeText {
    /// The limit's name.
    pub limit: String,
    /// The id, in any spelling.
    pub id: Vec<u8>,
    /// How much.
    pub cost: u64,
}

/// Bytes as a trace writes them: one field, printable, and read back as the same bytes.
pub fn escaped(bytes: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| escape::write_token(f, bytes))
}

/// `Name:id`, escaped so that a trace reads it back.
impl fmt::Display for ChargeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape::write_name(f, &self.limit)?;
        f.write_str(":")?;
        escape::write_token(f, &self.id)
    }
}
