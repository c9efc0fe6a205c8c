//! Checks that a limited call on one rate allocates nothing, whether it is called or awaited, with a selector or
//! without, and that neither does a bill of several charges.
//!
//! One test, because what is counted is the whole process.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

use std::alloc::System;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollway::core::{ChargeRequest, Nanos, Policy, Timestamp};
use tollway::rate_limit::{RateLimitError, RateLimitExceeded};
use tollway::store::memory::Memory;
use tollway::{Clock, Limiter, RateLimit, TokenBucket, limit};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CALLS: usize = 1_000;

#[limit("1000/s", with = limits)]
fn plain(limits: &RateLimit) -> Result<u32, RateLimitExceeded> {
    Ok(black_box(7))
}

#[limit("1000/s", with = limits)]
async fn plain_async(limits: &RateLimit) -> Result<u32, RateLimitExceeded> {
    Ok(black_box(7))
}

#[limit("1000/s", with = limits, key = "shared")]
fn shared(limits: &RateLimit) -> Result<u32, RateLimitError> {
    Ok(black_box(7))
}

#[limit("user:1000/s", with = limits, user = user)]
fn selected(limits: &RateLimit, user: &str) -> Result<u32, RateLimitExceeded> {
    Ok(black_box(7))
}

#[limit("user:1000/s", with = limits, user = user)]
fn numbered(limits: &RateLimit, user: u64) -> Result<u32, RateLimitExceeded> {
    Ok(black_box(7))
}

#[limit("0/s", with = limits)]
fn denied(limits: &RateLimit) -> Result<u32, RateLimitExceeded> {
    Ok(black_box(7))
}

#[test]
fn a_limited_call_allocates_nothing_that_can_be_done_without() {
    let clock = Clock::manual(Timestamp::EPOCH);
    let limiter = Limiter::with(Policy::default(), Memory::new(1_000), clock.clone());
    let limits = &RateLimit::new(limiter);
    let block = limits.limit("1000/s").unwrap().key("block");
    let of_user = limits.limit("user:1000/s").unwrap().key("of user").selector("user", || 7);
    let check = |what: &str, expected: usize, call: &dyn Fn() -> bool| {
        let allowed = call();
        assert_eq!(per_call(&clock, || assert_eq!(call(), allowed)), expected, "{what}");
    };
    check("plain", 0, &|| plain(limits).is_ok());
    check("awaited", 0, &|| ready(plain_async(limits)).is_ok());
    check("a shared key", 0, &|| shared(limits).is_ok());
    check("denied", 0, &|| denied(limits).is_ok());
    check("a block", 0, &|| block.enter().is_ok());
    check("a selector", 0, &|| selected(limits, "vova").is_ok());
    check("a number for a selector", 0, &|| numbered(limits, 7).is_ok());
    check("a long value for a selector", 1, &|| selected(limits, LONG).is_ok());
    check("a block with a selector", 0, &|| of_user.enter().is_ok());
    let names = ["a", "b", "c"];
    let builder = names.iter().fold(Limiter::builder(), |builder, name| {
        builder.limit(name, TokenBucket::per_hour(1).burst(1_000_000))
    });
    let limiter = builder.build().unwrap();
    let bill = names.map(|name| ChargeRequest::new(name, "vova", 1));
    check("a bill of three charges", 0, &|| limiter.spend_all(&bill).unwrap().allowed());
}

/// Longer than most names of logs are.
const LONG: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// Allocations of one call, when the log has all the room it will ever need.
fn per_call(clock: &Clock, call: impl Fn()) -> usize {
    let round = || {
        clock.set(clock.now() + Nanos::from_secs(1));
        (0..CALLS).for_each(|_| call());
    };
    (0..3).for_each(|_| round());
    let region = Region::new(ALLOCATOR);
    round();
    let change = region.change();
    let count = change.allocations + change.reallocations;
    assert!(count.is_multiple_of(CALLS), "{count} in {CALLS} calls");
    count / CALLS
}

/// In memory nothing is waited for.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => ready,
        Poll::Pending => panic!("it waits"),
    }
}
