//! The `RateLimit` headers, which tell a client its limit and what remains of it.

use http::{HeaderMap, HeaderName, HeaderValue};
#[cfg(feature = "local")]
use tollway_core::Charge;
use tollway_core::{Decision, Verdict};
use tollway_wire::http::rate_limit_headers as wire;

#[cfg(feature = "local")]
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
#[cfg(feature = "local")]
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds the headers that describe the limit and the decision.
#[cfg(feature = "local")]
pub(crate) fn add_policy_headers(charge: &Charge<'_>, decision: &Decision, headers: &mut HeaderMap) {
    let Some(quota) =
        charge.algorithm().map(wire::RateLimitPolicy::of).filter(|_| wire::store_answered(decision))
    else {
        return;
    };
    put(headers, RATELIMIT_POLICY, |out| wire::put_rate_limit_policy(out, std::slice::from_ref(charge)));
    headers.insert(LIMIT, quota.units.into());
    add_remaining_headers(charge.limit().name(), decision, headers);
}

/// Adds the headers that describe the decision alone. A client of a server does not have the limit's numbers.
pub(crate) fn add_remaining_headers(limit: &str, decision: &Decision, headers: &mut HeaderMap) {
    if !wire::store_answered(decision) || decision.verdict == Verdict::Unlimited {
        return;
    }
    put(headers, RATELIMIT, |out| wire::put_rate_limit(out, limit, decision));
    headers.insert(REMAINING, decision.remaining.into());
    headers.insert(RESET, decision.reset_nanos.as_secs_rounded_up().into());
}

fn put(headers: &mut HeaderMap, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
    let mut value = Vec::with_capacity(64);
    write(&mut value);
    // This never fails: names of limits have only characters that a header may have.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}
