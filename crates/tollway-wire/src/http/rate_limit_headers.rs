//! The values of the headers that say how a request stands with its limits.
//!
//! ```text
//! RateLimit-Policy: "Login";q=5;w=60        the limit: 5 in 60 seconds
//! RateLimit: "Login";r=0;t=12               what is left of it, for at least so long
//! Retry-After: 12
//! ```
//!
//! They are those of draft-ietf-httpapi-ratelimit-headers-11, and carry whole seconds, rounded up, because their
//! grammar has no others.

use tollway_core::{Algorithm, Charge, Decision, Nanos, Verdict};

use crate::decimal::put_u64;

/// The greatest integer a structured field can carry: fifteen digits.
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

/// So many units in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitPolicy {
    /// How many.
    pub units: u64,
    /// In how long, at least a second.
    pub window_secs: u64,
}

impl RateLimitPolicy {
    /// What an algorithm and its numbers come to.
    pub fn of(algorithm: &Algorithm) -> Self {
        let (units, window) = match algorithm {
            // The burst and the time to regain it: the same rate as count and period, and never less than is left.
            Algorithm::TokenBucket(limit) => (limit.burst(), limit.fill_time()),
            Algorithm::SlidingLog(limit) => (limit.count(), limit.period()),
            Algorithm::SmoothedRate(limit) => (limit.cost_max(), limit.period()),
            Algorithm::Quota(limit) => (limit.count(), limit.period()),
        };
        // A window is at least a second; that and rounding up only ever promise less.
        Self { units, window_secs: window.as_secs_rounded_up().max(1) }
    }
}

/// Is it known how the request stands? Not if the store gave no answer.
pub const fn store_answered(decision: &Decision) -> bool {
    !matches!(decision.verdict, Verdict::AllowAway | Verdict::DenyAway)
}

/// Appends the value of `RateLimit-Policy`: each limit that had a say.
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

/// Appends the value of `RateLimit`: how it stands with the limit that decided.
pub fn put_rate_limit(out: &mut Vec<u8>, name: &str, decision: &Decision) {
    // On a refusal, the time to wait: Retry-After must not end before the window does.
    let window = if decision.allowed() {
        decision.reset_nanos.as_secs_rounded_up()
    } else {
        retry_after_secs(decision.retry_nanos)
    };
    put_name(out, name);
    put_parameter(out, b";r=", decision.remaining);
    put_parameter(out, b";t=", window);
}

/// Seconds to wait after a refusal. Never 0: whoever obeys it must not come back at once.
pub fn retry_after_secs(retry_after: Nanos) -> u64 {
    retry_after.as_secs_rounded_up().max(1)
}

/// A limit's name as a structured field's string. It has no character that would need escaping.
fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn put_parameter(out: &mut Vec<u8>, key: &[u8; 3], value: u64) {
    out.extend_from_slice(key);
    put_u64(out, value.min(FIELD_INTEGER_MAX));
}
