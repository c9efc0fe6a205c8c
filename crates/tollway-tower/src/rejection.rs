//! What is answered instead of the service.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests            HTTP/2 200                  to a gRPC client
//! Retry-After: 12                           grpc-status: 8              RESOURCE_EXHAUSTED
//! RateLimit-Policy: "PerClient";q=5;w=60    grpc-message: too many requests
//! RateLimit: "PerClient";r=0;t=12           grpc-retry-pushback-ms: 11250
//! ```
//!
//! The body is empty, so that the service's may be of any type.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tollway_core::{Charge, Decision};
use tollway_wire::http::rate_limit_headers::{self, RateLimitPolicy};

use crate::admit::AdmitOutcome;

/// What a client is told to wait when nobody knows.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a client that retries by itself should do so, in milliseconds; below zero it should not.
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The statuses of gRPC that say why.
const INVALID_ARGUMENT: u16 = 3;
const RESOURCE_EXHAUSTED: u16 = 8;
const UNAVAILABLE: u16 = 14;

/// The head of a rejection. `status` is for what came too soon.
pub(crate) fn head(outcome: &AdmitOutcome, status: StatusCode, request: &HeaderMap) -> Parts {
    let (status, retry_after) = match outcome {
        AdmitOutcome::Rejected { retry_after } => (status, *retry_after),
        AdmitOutcome::Unidentified => (StatusCode::BAD_REQUEST, None),
        // Nobody is over a limit: a client that is told so would blame itself.
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
            // A cache that keeps this would reject everybody.
            head.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
    }
    head
}

/// A gRPC client reads its status from the trailers, which may come in place of the headers.
fn grpc(
    headers: &mut HeaderMap,
    content_type: &HeaderValue,
    status: StatusCode,
    retry_after: Option<Duration>,
) {
    let (code, message) = match status {
        StatusCode::BAD_REQUEST => (INVALID_ARGUMENT, "the request identifies nobody"),
        StatusCode::SERVICE_UNAVAILABLE => (UNAVAILABLE, "not now"),
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

/// Rounded up, and never 0: whoever obeys it must not come back at once.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// Adds all that is known of how a request stands with its limit.
pub(crate) fn describe(charge: &Charge<'_>, decision: &Decision, headers: &mut HeaderMap) {
    let Some(quota) =
        charge.algorithm().map(RateLimitPolicy::of).filter(|_| rate_limit_headers::store_answered(decision))
    else {
        return;
    };
    put(headers, RATELIMIT_POLICY, |out| {
        rate_limit_headers::put_rate_limit_policy(out, std::slice::from_ref(charge))
    });
    headers.insert(LIMIT, quota.units.into());
    describe_standing(charge.limit().name(), decision, headers);
}

/// The same, for who does not know the numbers of the limit.
pub(crate) fn describe_standing(limit: &str, decision: &Decision, headers: &mut HeaderMap) {
    use tollway_core::Verdict;
    if !rate_limit_headers::store_answered(decision) || decision.verdict == Verdict::Unlimited {
        return;
    }
    put(headers, RATELIMIT, |out| rate_limit_headers::put_rate_limit(out, limit, decision));
    headers.insert(REMAINING, decision.remaining.into());
    headers.insert(RESET, decision.reset_nanos.as_secs_rounded_up().into());
}

fn put(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::with_capacity(64);
    write(&mut value);
    // The names of limits have no character that a header could not carry.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}
