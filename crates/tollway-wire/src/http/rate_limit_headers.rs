//! Writes the headers that describe a decision, for every gate and for the middleware.
//!
//! ```text
//! RateLimit-Policy: "Login";q=5;w=60        the limit: 5 in 60 seconds
//! RateLimit: "Login";r=3;t=12               3 left; another one in 12 seconds
//! X-RateLimit-Limit: 5
//! X-RateLimit-Remaining: 3
//! X-RateLimit-Reset: 24                     seconds until the bucket is full
//! Retry-After: 12                           only on a denial
//! ```
//!
//! The first two follow draft-ietf-httpapi-ratelimit-headers-11, in which `t` is the number of seconds within which a
//! client can use no more than `r`: until more is available. Their grammar has only whole seconds, so times are rounded
//! up.

use tollway_core::{Algorithm, Charge, Decision, Nanos, Verdict};

use crate::decimal::put_u64;

/// The greatest integer that a structured field can carry. It has fifteen digits.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// A place that headers are added to: a write buffer, a map of headers, a message.
pub trait HeaderSink {
    /// Adds a header whose value `write` appends to a buffer.
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>));
}

/// Adds all headers that describe a decision about `charges`.
#[inline]
pub fn add_decision_headers(sink: &mut impl HeaderSink, charges: &[Charge<'_>], decision: &Decision) {
    let decided = &charges[decision.charge];
    if let Some(algorithm) = decided.algorithm().filter(|_| is_remaining_known(decision)) {
        sink.add("RateLimit-Policy", |out| put_policies(out, charges));
        add_remaining_headers(sink, decided.limit().name(), Some(algorithm), decision);
    }
    add_retry_after(sink, decision.allowed(), decision.retry_nanos);
}

/// Adds the headers about what is left of the limit that decided. Without its numbers, `t` is the longest that more can
/// take to come.
#[inline]
pub fn add_remaining_headers(
    sink: &mut impl HeaderSink,
    limit: &str,
    algorithm: Option<&Algorithm>,
    decision: &Decision,
) {
    if !is_remaining_known(decision) {
        return;
    }
    let reset = decision.reset_nanos.as_secs_rounded_up();
    let window = match algorithm {
        // The window must not end after Retry-After.
        _ if !decision.allowed() => retry_after_secs(decision.retry_nanos),
        Some(algorithm) => algorithm.more_after(decision).as_secs_rounded_up(),
        None if decision.retry_nanos > Nanos::ZERO => decision.retry_nanos.as_secs_rounded_up().min(reset),
        None => reset,
    };
    sink.add("RateLimit", |out| {
        put_name(out, limit);
        put_parameter(out, b";r=", decision.remaining);
        put_parameter(out, b";t=", window);
    });
    if let Some(algorithm) = algorithm {
        sink.add("X-RateLimit-Limit", |out| put_u64(out, algorithm.cost_max()));
    }
    sink.add("X-RateLimit-Remaining", |out| put_u64(out, decision.remaining));
    sink.add("X-RateLimit-Reset", |out| put_u64(out, reset));
}

/// Adds `Retry-After` to a denial, unless waiting does not help.
#[inline]
pub fn add_retry_after(sink: &mut impl HeaderSink, allowed: bool, retry_after: Nanos) {
    if !allowed && !retry_after.is_forever() {
        sink.add("Retry-After", |out| put_u64(out, retry_after_secs(retry_after)));
    }
}

/// Returns the seconds to wait after a denial. It is never 0: a client must not retry at once.
pub fn retry_after_secs(retry_after: Nanos) -> u64 {
    retry_after.as_secs_rounded_up().max(1)
}

/// Returns false if there is no limit, or if the decision was made without the store.
const fn is_remaining_known(decision: &Decision) -> bool {
    !matches!(decision.verdict, Verdict::Unlimited | Verdict::AllowUnreachable | Verdict::DenyUnreachable)
}

/// Appends the value of `RateLimit-Policy`: the limits of all charges. A limit is listed once for all its ids that have
/// the same numbers.
fn put_policies(out: &mut Vec<u8>, charges: &[Charge<'_>]) {
    let mut comma: &[u8] = b"";
    for (index, charge) in charges.iter().enumerate() {
        let Some(algorithm) = charge.algorithm() else { continue };
        let is_same = |earlier: &Charge<'_>| {
            earlier.limit().name() == charge.limit().name() && earlier.algorithm() == Some(algorithm)
        };
        if charges[..index].iter().any(is_same) {
            continue;
        }
        out.extend_from_slice(comma);
        put_name(out, charge.limit().name());
        // The window of a token bucket is the time to regain its burst: the same rate as count and period. A longer
        // window promises less, so rounding up is safe, and so is the minimum of one second.
        put_parameter(out, b";q=", algorithm.cost_max());
        put_parameter(out, b";w=", algorithm.window().as_secs_rounded_up().max(1));
        comma = b", ";
    }
}

/// Appends the name of a limit as a structured field's string. Names have no characters that need escaping.
fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn put_parameter(out: &mut Vec<u8>, key: &[u8; 3], value: u64) {
    out.extend_from_slice(key);
    put_u64(out, value.min(FIELD_INTEGER_MAX));
}
