//! Rules on functions and blocks, in memory and by a clock that the tests set.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod blocks;
mod functions;
mod hammer;
mod seed;

use tollway::core::{Nanos, Policy, Timestamp};
use tollway::store::memory::Memory;
use tollway::{Clock, Limiter, RateLimit};

/// Limits in memory, and the clock they go by.
fn limits() -> (RateLimit, Clock) {
    limits_with_room(1_000)
}

fn limits_with_room(max_buckets: usize) -> (RateLimit, Clock) {
    let clock = Clock::manual(Timestamp::EPOCH);
    let limiter = Limiter::with(Policy::default(), Memory::new(max_buckets), clock.clone());
    (RateLimit::new(limiter), clock)
}

fn at(clock: &Clock, millis: u64) {
    clock.set(Timestamp::EPOCH + Nanos::from_millis(millis));
}
