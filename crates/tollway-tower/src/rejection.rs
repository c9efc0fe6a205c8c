//! The response to a rejected request.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests            HTTP/2 200                  to a gRPC client
//! Retry-After: 12                           grpc-status: 8              RESOURCE_EXHAUSTED
//! RateLimit-Policy: "PerClient";q=5;w=60    grpc-message: too many requests
//! RateLimit: "PerClient";r=0;t=12           grpc-retry-pushback-ms: 11250
//! ```
//!
//! The body is empty, so that the body of the service may be of any type.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::admit::AdmitOutcome;

/// The `Retry-After` that a client gets while the server is unreachable.
#[cfg(feature = "remote")]
pub(crate) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The header that tells clients with a retry policy when to retry, in milliseconds. Below zero they must not.
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

// Status codes of gRPC.
const INVALID_ARGUMENT: u16 = 3;
const RESOURCE_EXHAUSTED: u16 = 8;
const UNAVAILABLE: u16 = 14;

/// Returns the head of a rejection. A request over its limit gets `status`.
pub(crate) fn head(outcome: &AdmitOutcome, status: StatusCode, request: &HeaderMap) -> Parts {
    let (status, retry_after) = match outcome {
        AdmitOutcome::Rejected { retry_after } => (status, *retry_after),
        AdmitOutcome::Unidentified => (StatusCode::BAD_REQUEST, None),
        // Not 429: the client is not over its limit.
        AdmitOutcome::Unavailable { retry_after } => (StatusCode::SERVICE_UNAVAILABLE, *retry_after),
        AdmitOutcome::Passed | AdmitOutcome::FailedOpen | AdmitOutcome::Delayed { .. } => {
            (StatusCode::OK, None)
        }
    };
    let (mut head, ()) = Response::new(()).into_parts();
    if let Some(retry_after) = retry_after {
        head.headers.insert(RETRY_AFTER, whole_seconds(retry_after).into());
    }
    match grpc_type(request) {
        Some(content_type) => grpc(&mut head.headers, content_type, status, retry_after),
        None => {
            head.status = status;
            // A cache that keeps a rejection would serve it to other clients.
            head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
    head
}

/// Adds the status that a gRPC client reads. It belongs into trailers, which may be sent as headers.
fn grpc(
    headers: &mut HeaderMap,
    content_type: &HeaderValue,
    status: StatusCode,
    retry_after: Option<Duration>,
) {
    let (code, message) = match status {
        StatusCode::BAD_REQUEST => (INVALID_ARGUMENT, "the request has no client id"),
        StatusCode::SERVICE_UNAVAILABLE => (UNAVAILABLE, "unavailable; retry later"),
        _ => (RESOURCE_EXHAUSTED, "too many requests"),
    };
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, code.into());
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
    let pushback = retry_after.map_or(HeaderValue::from_static("-1"), |wait| {
        HeaderValue::from(u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    });
    headers.insert(GRPC_PUSHBACK, pushback);
}

fn grpc_type(request: &HeaderMap) -> Option<&HeaderValue> {
    request.get(CONTENT_TYPE).filter(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns whole seconds, rounded up and at least 1, so that a client does not retry at once or too early.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
