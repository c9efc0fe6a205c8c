//! The responses that a client gets instead of the service's own.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests            HTTP/2 200                  to a gRPC client
//! Retry-After: 12                           grpc-status: 8              RESOURCE_EXHAUSTED
//! RateLimit-Policy: "PerClient";q=5;w=60    grpc-message: too many requests
//! RateLimit: "PerClient";r=0;t=12           grpc-retry-pushback-ms: 11250
//! Cache-Control: no-store
//!
//! too many requests
//! ```

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::Unidentified;
use crate::admit::AdmitOutcome;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The header that tells clients with a retry policy when to retry, in milliseconds. Below zero they must not.
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The answer to a request that the server did not add an address to. Whoever set it up reads this first.
pub(crate) const NO_PEER_ADDRESS: &str = "\
this server is set up wrongly: the request has no extension with the address of its client, which tollway-tower limits.
axum: enable feature \"axum\" of tollway-tower, and serve with into_make_service_with_connect_info::<SocketAddr>()
tonic: enable feature \"tonic\" of tollway-tower
hyper and others: insert the SocketAddr that accept() returned into the extensions of each request
";

/// A response that is not the service's own: a status, a text, and when to retry.
///
/// No cache stores it, `Retry-After` is at least 1, and a gRPC client gets a gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    status: StatusCode,
    message: &'static str,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// Makes a rejection whose body is `message`, a line of text with its end.
    pub const fn new(status: StatusCode, message: &'static str) -> Self {
        Self { status, message, retry_after: None }
    }

    /// Sets the time after which the client should retry (default: none is named).
    #[must_use]
    pub const fn retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Maps an outcome that does not pass. A request over its limit gets `status`.
    pub(crate) fn of(outcome: &AdmitOutcome, status: StatusCode) -> Self {
        let unidentified = |message| Self::new(StatusCode::BAD_REQUEST, message);
        match outcome {
            AdmitOutcome::Unavailable { retry_after } => {
                // Not 429: the client is not over its limit.
                let message = "the rate limiter is unavailable; retry later\n";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(*retry_after)
            }
            AdmitOutcome::Unidentified(reason) => match reason {
                Unidentified::Missing => unidentified("the request has no client id\n"),
                Unidentified::Ambiguous => unidentified("the request has more than one client id\n"),
                Unidentified::Invalid => unidentified("the request has an invalid client id\n"),
                Unidentified::NoPeerAddress => Self::new(StatusCode::INTERNAL_SERVER_ERROR, NO_PEER_ADDRESS),
            },
            AdmitOutcome::Rejected { retry_after } => {
                Self::new(status, "too many requests\n").retry_after(*retry_after)
            }
            // These pass; the layer does not ask.
            AdmitOutcome::Passed | AdmitOutcome::FailedOpen | AdmitOutcome::Delayed { .. } => {
                Self::new(status, "")
            }
        }
    }

    /// Returns the response for a client that sent this content type of gRPC, or none: see [`grpc_content_type`].
    pub fn response(&self, grpc_type: Option<&HeaderValue>) -> Response<&'static str> {
        let Self { status, message, retry_after } = *self;
        let mut response = Response::new(message);
        let headers = response.headers_mut();
        // A cache that keeps a rejection would serve it to other clients.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(retry_after) = retry_after {
            headers.insert(RETRY_AFTER, whole_seconds(retry_after).into());
        }
        match grpc_type {
            None => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                *response.status_mut() = status;
            }
            Some(content_type) => {
                // The status belongs into trailers, which may be sent as headers if there is no body.
                headers.insert(CONTENT_TYPE, content_type.clone());
                headers.insert(GRPC_STATUS, grpc_status(status).into());
                let line = message.lines().next().unwrap_or_default();
                headers.insert(GRPC_MESSAGE, HeaderValue::from_static(line));
                if let Some(pushback) = pushback(status, retry_after) {
                    headers.insert(GRPC_PUSHBACK, pushback);
                }
                *response.body_mut() = "";
            }
        }
        response
    }
}

/// Returns the content type of a gRPC request, or `None` for any other request.
pub fn grpc_content_type(request: &HeaderMap) -> Option<&HeaderValue> {
    request.get(CONTENT_TYPE).filter(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the status code of gRPC that is nearest to a status of HTTP.
const fn grpc_status(status: StatusCode) -> u16 {
    match status.as_u16() {
        // DEADLINE_EXCEEDED
        408 | 504 => 4,
        // RESOURCE_EXHAUSTED
        429 | 431 => 8,
        // UNIMPLEMENTED
        405 | 501 => 12,
        // INVALID_ARGUMENT
        400..=499 => 3,
        // UNAVAILABLE
        502 | 503 => 14,
        // INTERNAL
        _ => 13,
    }
}

/// Returns when a client should retry. After an error of a server without a time its own policy decides.
fn pushback(status: StatusCode, retry_after: Option<Duration>) -> Option<HeaderValue> {
    match retry_after {
        Some(wait) => Some(u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).into()),
        None => status.is_client_error().then(|| HeaderValue::from_static("-1")),
    }
}

/// Returns whole seconds, rounded up and at least 1, so that a client does not retry at once or too early.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
