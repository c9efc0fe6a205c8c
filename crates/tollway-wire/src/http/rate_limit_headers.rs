//! Writes the values of the headers `RateLimit-Policy`, `RateLimit` and `Retry-After`.
//!
//! ```text
//! RateLimit-Policy: "Login";q=5;w=60        the limit: 5 in 60 seconds
//! RateLimit: "Login";r=0;t=12               0 left, for at least 12 seconds
//! Retry-After: 12
//! ```
//!
//! They follow draft-ietf-httpapi-ratelimit-headers-11. Their grammar has only whole seconds, so times are rounded up.

use tollway_core::{Algorithm, Charge, Decision, Nanos, Verdict};

use crate::decimal::put_u64;

/// The greatest integer that a structured field can carry. It has fifteen digits.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// A quota policy that the `RateLimit-Policy` header lists: a number of units per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitPolicy {
    /// The number of units that are allowed per window.
    pub units: u64,
    /// The length of the window in seconds, which is at least 1.
    pub window_secs: u64,
}

impl RateLimitPolicy {
    /// Converts an algorithm's numbers to a quota policy.
    pub fn of(algorithm: &Algorithm) -> Self {
        let (units, window) = match algorithm {
            // The burst and the time to regain it: the same rate as count and period, and never less than is left.
            Algorithm::TokenBucket(limit) => (limit.burst(), limit.fill_time()),
            Algorithm::SlidingLog(limit) => (limit.count(), limit.period()),
            Algorithm::SmoothedRate(limit) => (limit.cost_max(), limit.period()),
            Algorithm::Quota(limit) => (limit.count(), limit.period()),
        };
        // A longer window promises less, so rounding up is safe, and so is the minimum of one second.
        Self { units, window_secs: window.as_secs_rounded_up().max(1) }
    }
}

/// Returns false if the decision was made without the store, so that what is left is not known.
pub const fn store_answered(decision: &Decision) -> bool {
    !matches!(decision.verdict, Verdict::AllowUnreachable | Verdict::DenyUnreachable)
}

/// Appends the value of `RateLimit-Policy`: the limits of all charges.
pub fn put_rate_limit_policy(out: &mut Vec<u8>, charges: &[Charge<'_>]) {
    let mut comma: &[u8] = b"";
    for charge in charges {
        let Some(quota) = charge.algorithm().map(RateLimitPolicy::of) else { continue };
        out.extend_from_slice(comma);
        put_name(out, charge.limit().name());
        put_parameter(out, b";q=", quota.units);
        put_parameter(out, b";w=", quota.window_secs);
        comma = b", ";
    }
}

/// Appends the value of `RateLimit`: what is left of the limit that decided.
pub fn put_rate_limit(out: &mut Vec<u8>, name: &str, decision: &Decision) {
    // After a denial this is the time to wait: the window must not end after Retry-After.
    let window = if decision.allowed() {
        decision.reset_nanos.as_secs_rounded_up()
    } else {
        retry_after_secs(decision.retry_nanos)
    };
    put_name(out, name);
    put_parameter(out, b";r=", decision.remaining);
    put_parameter(out, b";t=", window);
}

/// Returns the seconds to wait after a denial. It is never 0: a client must not retry at once.
pub fn retry_after_secs(retry_after: Nanos) -> u64 {
    retry_after.as_secs_rounded_up().max(1)
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
