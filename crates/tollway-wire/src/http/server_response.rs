//! Parses the responses of a server, for clients.
//!
//! ```
//! use std::time::Duration;
//! use tollway_wire::http::ServerResponse;
//!
//! let body = br#"{"allowed":true,"remaining":4,"retry_after":0,"reset_after":0.05,"limit":"Login"}"#;
//! let ServerResponse::Decision { reset_after, .. } = ServerResponse::from_json(200, body)? else { panic!() };
//! assert_eq!(reset_after, Some(Duration::from_millis(50)));
//! # Ok::<(), tollway_wire::http::ResponseError>(())
//! ```

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tollway_core::Nanos;

use super::rule::RuleResponse;

/// The response that a server sends to a command.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerResponse {
    /// Answers a spend or a check.
    Decision {
        /// True if the request is allowed.
        allowed: bool,
        /// The number of whole units that are left. `None` if there is no limit, or if the store did not answer.
        remaining: Option<u64>,
        /// The time until the same request would be allowed. `None` if waiting does not help.
        retry_after: Option<Duration>,
        /// The time until the bucket is full again. `None` if that never happens.
        reset_after: Option<Duration>,
        /// The name of the limit that decided.
        limit: String,
        /// The reason, if it is not the bucket: `full` if the store has no room for a new id, `store` if the store did
        /// not answer.
        reason: Option<String>,
        /// True if the store did not answer, and the limit's `on_store_failure` decided.
        degraded: bool,
    },
    /// Answers a spend or a check that a rule decided.
    RuleDecision {
        /// The decision of the rule.
        decision: RuleResponse,
        /// The name of the rule.
        rule: String,
    },
    /// Answers a refund.
    Refund {
        /// False if there was nothing to give back.
        refunded: bool,
        /// The number of whole units that are left. `None` if there is no limit.
        remaining: Option<u64>,
        /// The time until the bucket is full again. `None` if that never happens.
        reset_after: Option<Duration>,
    },
    /// Answers a reset.
    Reset,
}

/// An error response, or a response that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The server answered with an error.
    #[error("{title}: {detail}")]
    Problem {
        /// The status of the response.
        status: u16,
        /// The title of the problem, which is the same for every problem of its type.
        title: String,
        /// A sentence about this occurrence.
        detail: String,
    },
    /// The body is not a response of Tollway. Another server or a proxy may have answered.
    #[error("status {status} with an unexpected body; check that the address is that of a Tollway server")]
    UnexpectedBody {
        /// The status of the response.
        status: u16,
        /// The error that parsing the body returned.
        source: serde_json::Error,
    },
}

impl ServerResponse {
    /// Parses the body of a response with this status.
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
            ServerResponseFields {
                allowed: Some(allowed),
                rule: Some(rule),
                retry_after,
                reason,
                degraded,
                ..
            } => {
                let (retry_after, degraded) = (parse_seconds(retry_after), degraded.unwrap_or(false));
                Ok(Self::RuleDecision {
                    decision: RuleResponse { allowed, retry_after, reason, degraded },
                    rule,
                })
            }
            ServerResponseFields { refunded: Some(refunded), remaining, reset_after, .. } => {
                Ok(Self::Refund { refunded, remaining, reset_after: parse_seconds(reset_after) })
            }
            ServerResponseFields { reset: Some(_), .. } => Ok(Self::Reset),
            _ => Err(unexpected_body(
                status,
                "the body has none of the fields \"allowed\", \"refunded\" and \"reset\"",
            )),
        }
    }
}

/// The fields that a response may have. Unknown ones are ignored: a later server may add some.
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
    rule: Option<String>,
    reason: Option<String>,
    degraded: Option<bool>,
}

/// The fields that a problem has. No other response has a `title`.
#[derive(Deserialize)]
struct ProblemFields {
    title: String,
    #[serde(default)]
    detail: String,
}

/// Parses a body. Returns a problem as an error.
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

/// Parses decimal seconds from their text. A double would lose the last nanoseconds.
pub(super) fn parse_seconds(seconds: Option<&RawValue>) -> Option<Duration> {
    format!("{}s", seconds?.get()).parse().ok().map(Nanos::as_duration)
}
