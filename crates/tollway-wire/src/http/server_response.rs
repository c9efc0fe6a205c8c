//! What a server answered, read by a client.
//!
//! ```
//! use tollway_wire::http::ServerResponse;
//!
//! let body = br#"{"allowed":true,"remaining":4,"retry_after":0,"reset_after":0.05,"limit":"Login"}"#;
//! let ServerResponse::Decision { reset_after, .. } = ServerResponse::from_json(200, body)? else { panic!() };
//! assert_eq!(reset_after, "50ms".parse().ok());
//! # Ok::<(), tollway_wire::http::ResponseError>(())
//! ```

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tollway_core::Nanos;

/// An answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerResponse {
    /// To a spend or a check.
    Decision {
        /// May the request pass?
        allowed: bool,
        /// Whole units left; `None` where there is no limit.
        remaining: Option<u64>,
        /// When the same request would be allowed; `None` if never.
        retry_after: Option<Nanos>,
        /// When the bucket is full again; `None` if never.
        reset_after: Option<Nanos>,
        /// The limit that decided.
        limit: String,
        /// On what ground, if it is not the bucket: `full` for want of room to remember the id, `store` because the
        /// store gave no answer.
        reason: Option<String>,
        /// Did the store give no answer, so that this is what the limit says to do then?
        degraded: bool,
    },
    /// To a refund.
    Refund {
        /// Was there something to give back?
        refunded: bool,
        /// Whole units left; `None` where there is no limit.
        remaining: Option<u64>,
        /// When the bucket is full again; `None` if never.
        reset_after: Option<Nanos>,
    },
    /// To a reset.
    Reset,
}

/// Why an answer is none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The server explained why it has no answer.
    #[error("{title}: {detail}")]
    Problem {
        /// The status it came with.
        status: u16,
        /// What went wrong, in general.
        title: String,
        /// What went wrong, this time.
        detail: String,
    },
    /// Something that is no Tollway, or a proxy in front of it, answered.
    #[error("status {status} with a body that is no answer: {source}")]
    UnexpectedBody {
        /// The status it came with.
        status: u16,
        /// Why the body is no answer.
        source: serde_json::Error,
    },
}

impl ServerResponse {
    /// Reads the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        match read_body::<ServerResponseFields<'_>>(status, body)? {
            ServerResponseFields {
                allowed: Some(allowed),
                limit: Some(limit),
                remaining,
                retry_after,
                reset_after,
                reason,
                degraded,
                ..
            } => {
                let (retry_after, reset_after) = (parse_seconds(retry_after), parse_seconds(reset_after));
                let degraded = degraded.unwrap_or(false);
                Ok(Self::Decision { allowed, remaining, retry_after, reset_after, limit, reason, degraded })
            }
            ServerResponseFields { refunded: Some(refunded), remaining, reset_after, .. } => {
                Ok(Self::Refund { refunded, remaining, reset_after: parse_seconds(reset_after) })
            }
            ServerResponseFields { reset: Some(_), .. } => Ok(Self::Reset),
            _ => Err(unexpected_body(status, "none of the fields of an answer is there")),
        }
    }
}

/// A later server may say more than we know, so what is unknown is passed over here.
#[derive(Deserialize)]
struct ServerResponseFields<'a> {
    allowed: Option<bool>,
    refunded: Option<bool>,
    reset: Option<bool>,
    remaining: Option<u64>,
    #[serde(borrow)]
    retry_after: Option<&'a RawValue>,
    #[serde(borrow)]
    reset_after: Option<&'a RawValue>,
    limit: Option<String>,
    reason: Option<String>,
    degraded: Option<bool>,
}

/// A problem document, of which nothing else has the title.
#[derive(Deserialize)]
struct ProblemFields {
    title: String,
    #[serde(default)]
    detail: String,
}

/// Reads a body, unless it says what went wrong.
pub(super) fn read_body<'a, T: Deserialize<'a>>(status: u16, body: &'a [u8]) -> Result<T, ResponseError> {
    if status >= 400
        && let Ok(ProblemFields { title, detail }) = serde_json::from_slice(body)
    {
        return Err(ResponseError::Problem { status, title, detail });
    }
    serde_json::from_slice(body).map_err(|source| ResponseError::UnexpectedBody { status, source })
}

pub(super) fn unexpected_body(status: u16, why: &str) -> ResponseError {
    ResponseError::UnexpectedBody { status, source: serde::de::Error::custom(why) }
}

/// Decimal seconds, read as text: through a double the last nanoseconds would be lost.
pub(super) fn parse_seconds(seconds: Option<&RawValue>) -> Option<Nanos> {
    format!("{}s", seconds?.get()).parse().ok()
}
