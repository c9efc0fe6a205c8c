//! Reads and replays traces: texts that list requests with their times and the replies they must get.
//!
//! ```
//! use std::time::Duration;
//! use tollway::core::algorithm::{Algorithm, TokenBucket};
//! use tollway::core::{Limit, Policy, Timestamp};
//! use tollway::store::memory::Memory;
//! use tollway::trace::{TraceReader, TraceTarget, matches};
//! use tollway::{Clock, engine::Engine};
//!
//! let trace = "0s     limit  spend A:x cost=3  => allow remaining=0 retry_after=0.3s reset_after=0.3s
//!              0.25s  limit  spend A:x         => allow remaining=1 retry_after=0s reset_after=0.15s
//! ";
//! let numbers = Algorithm::TokenBucket(TokenBucket::new(3, 1, Duration::from_millis(100))?);
//! let policy = Policy::new(vec![Limit::new("A")?.with_default(numbers)])?;
//! let mut engine = Engine::with(policy, Memory::new(100), Clock::manual(Timestamp::EPOCH));
//!
//! for event in TraceReader::new(trace.as_bytes()) {
//!     let event = event?;
//!     let reply = engine.answer(event.at, &event.request);
//!     let expected = event.expected.as_deref().expect("every line above has one");
//!     assert!(matches(expected, &reply), "{}", event.with_reply(&reply));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The trace is the clock: the target of a replay takes the time from each event, so nothing ever waits. The same text
//! drives the core, a store, a gate on a socket, or a million recorded requests.

mod escape;
mod hex;
mod parse;
mod reader;
mod reply;
mod resp_words;
mod rule_request;
mod target;
mod zmq_frames;

use std::fmt;

use tollway_core::{ChargeKind, ChargeRequest, RuleRequest, Timestamp, Verb};

pub use parse::{TraceError, TraceProblem, parse_line};
pub use reader::{LINE_MAX, TraceReadError, TraceReader};
pub use reply::{TraceReply, matches};
pub use target::TraceTarget;
pub use zmq_frames::ZmqMessage;

/// One line of a trace that contains a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The number of the line, counted from 1.
    pub line: u64,
    /// The time at which the request is made.
    pub at: Timestamp,
    /// The request, with the gate that it is sent to.
    pub request: TraceRequest,
    /// The reply that the trace expects, if it has one.
    pub expected: Option<String>,
    /// The time, the gate and the request as they were written, with the spaces before the arrow.
    pub text: String,
}

impl TraceEvent {
    /// Returns the event as a line of a trace that expects `reply`, with the spacing of the original line.
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

/// A request and the gate that it is sent to. It displays as a trace writes it, the gate first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceRequest {
    /// A request to the gate `limit`, which finds limits by name.
    Limit(LimitRequest),
    /// A request to the gate `rule`, which resolves rules.
    Rule(RuleRequest<'static>),
    /// A datagram that is sent to the gate `text`.
    Text(Vec<u8>),
    /// Bytes that are written to the gate `throttr`, whole requests or parts of them. A trace has one connection to it.
    Throttr(Vec<u8>),
    /// The words of a command that is sent to the gate `resp`. A trace has one connection to it.
    Resp(Vec<Vec<u8>>),
    /// An accounting message that is sent to the gate `smockron`.
    Smockron(ZmqMessage),
    /// A request to the gate `rls`, as JSON.
    Rls(String),
    /// A reload: the configuration that replaces the present one, as YAML on one line.
    Reload(String),
}

impl TraceRequest {
    /// Returns the name of the gate; `reload` for a reload, which no gate receives.
    pub const fn gate(&self) -> &'static str {
        match self {
            Self::Limit(_) => "limit",
            Self::Rule(_) => "rule",
            Self::Text(_) => "text",
            Self::Throttr(_) => "throttr",
            Self::Resp(_) => "resp",
            Self::Smockron(_) => "smockron",
            Self::Rls(_) => "rls",
            Self::Reload(_) => "reload",
        }
    }
}

impl fmt::Display for TraceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.gate())?;
        match self {
            Self::Limit(request) => request.fmt(f),
            Self::Rule(request) => rule_request::write(f, request),
            Self::Text(text) => escape::write_text(f, text),
            Self::Throttr(bytes) => hex::write(f, bytes),
            Self::Resp(words) => resp_words::write(f, words),
            Self::Smockron(message) => zmq_frames::write(f, message),
            Self::Rls(text) | Self::Reload(text) => f.write_str(text),
        }
    }
}

/// A verb and the charges and rules that it applies to, all as one bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// The verb that is applied to the charges.
    pub verb: Verb,
    /// The charges of the bill, as the trace spells them.
    pub charges: Vec<ChargeRequest<'static>>,
    /// The rules of the bill, after its charges.
    pub rules: Vec<RuleRequest<'static>>,
}

impl fmt::Display for LimitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.name())?;
        for charge in &self.charges {
            write!(f, " {}", bucket(charge))?;
            if charge.cost != self.verb.default_cost() {
                write!(f, " cost={}", charge.cost)?;
            }
            if charge.kind != ChargeKind::Spend {
                write!(f, " kind={}", charge.kind.name())?;
            }
        }
        for rule in &self.rules {
            write!(f, " {}", rule_request::RULE)?;
            rule_request::write(f, rule)?;
        }
        Ok(())
    }
}

/// Returns bytes as a trace writes them: printable, without spaces, and parsed back to the same bytes.
pub fn escaped(bytes: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| escape::write_token(f, bytes))
}

/// Returns the limit and the id of a charge as a trace writes them, `Name:id`, escaped so that they parse back.
fn bucket<'c>(charge: &'c ChargeRequest<'_>) -> impl fmt::Display + 'c {
    fmt::from_fn(|f| {
        escape::write_name(f, &charge.limit)?;
        f.write_str(":")?;
        escape::write_token(f, &charge.id)
    })
}
