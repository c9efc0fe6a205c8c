//! The examples that rules were first explained with, in Rust. Times are milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tollway::rate_limit::{RateLimitError, RateLimitExceeded};
use tollway::{Clock, RateLimit, limit};

use super::{at, limits};

type Answer = Result<(), RateLimitExceeded>;

/// Returns the number of `calls` that run, one after another, at this moment.
fn allowed<E>(clock: &Clock, millis: u64, calls: usize, mut call: impl FnMut() -> Result<(), E>) -> usize {
    at(clock, millis);
    (0..calls).filter(|_| call().is_ok()).count()
}

#[test]
fn ten_times_per_second() {
    #[limit("10/s", with = limits)]
    fn do_stuff(limits: &RateLimit) -> Answer {
        Ok(())
    }
    let (limits, clock) = limits();
    let limits = limits.with_namespace("my_namespace");
    for (millis, runs) in [(0, 10), (999, 0), (1_000, 10)] {
        assert_eq!(allowed(&clock, millis, 20, || do_stuff(&limits)), runs, "at {millis}");
    }
}

#[test]
fn ten_per_second_or_fifteen_per_minute_whatever_happens_first() {
    #[limit("Or('10/s', '15/m')", with = limits)]
    fn do_stuff(limits: &RateLimit) -> Answer {
        Ok(())
    }
    let (limits, clock) = limits();
    for (millis, runs) in [(0, 10), (1_000, 5), (2_000, 0), (59_999, 0), (60_000, 10), (61_000, 5)] {
        assert_eq!(allowed(&clock, millis, 20, || do_stuff(&limits)), runs, "at {millis}");
    }
}

#[test]
fn even_more_complex() {
    #[limit("And('apikey:100/h', Or('10/s', And('15/m', 'apikey:5/s:0.1')))", with = limits, apikey)]
    fn do_stuff(limits: &RateLimit, apikey: &str) -> Answer {
        Ok(())
    }
    let (limits, clock) = limits();
    // Nothing limits before the hundredth request of a key in an hour.
    assert_eq!(allowed(&clock, 0, 200, || do_stuff(&limits, "k1")), 100);
    // Then ten a second do, and once there were fifteen in a minute, five a second of the key.
    for (millis, runs) in [(500, 0), (60_000, 10), (61_000, 5), (62_000, 5)] {
        assert_eq!(allowed(&clock, millis, 20, || do_stuff(&limits, "k1")), runs, "at {millis}");
    }
    assert_eq!(
        allowed(&clock, 62_000, 200, || do_stuff(&limits, "k2")),
        100,
        "another key is not limited yet"
    );
}

fn get_username() -> &'static str {
    "vova"
}

fn get_api_key() -> Option<String> {
    Some("k1".to_owned())
}

#[test]
fn each_user_ten_times_in_five_minutes() {
    #[limit("username:10/5m", with = limits, username = get_username())]
    fn do_stuff(limits: &RateLimit) -> Answer {
        Ok(())
    }
    let (limits, clock) = limits();
    for (millis, runs) in [(0, 10), (299_999, 0), (300_000, 10)] {
        assert_eq!(allowed(&clock, millis, 20, || do_stuff(&limits)), runs, "at {millis}");
    }
}

#[test]
fn user_and_key_must_both_be_at_their_limits() {
    #[limit("And('username:10/5m', 'apikey:100/m')", with = limits, username = get_username(), apikey = get_api_key())]
    fn do_stuff(limits: &RateLimit) -> Answer {
        Ok(())
    }
    let (limits, clock) = limits();
    for (millis, runs) in [(0, 100), (59_999, 0), (60_000, 100)] {
        assert_eq!(allowed(&clock, millis, 200, || do_stuff(&limits)), runs, "at {millis}");
    }
}

struct Api {
    limits: RateLimit,
    calls: AtomicU32,
}

impl Api {
    fn new(limits: &RateLimit) -> Self {
        Self { limits: limits.clone(), calls: AtomicU32::new(0) }
    }

    fn username(&self) -> &str {
        get_username()
    }

    fn apikey(&self) -> &str {
        "k1"
    }

    /// For limits that ask for selectors by their names.
    fn select(&self, name: &str) -> Option<&str> {
        match name {
            "username" => Some(self.username()),
            "apikey" => Some(self.apikey()),
            _ => None,
        }
    }

    #[limit("And('username:10/5m', 'apikey:100/m')", with = self.limits, username = self.username(), apikey = self.apikey())]
    fn do_stuff(&self) -> Answer {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn one_object_supplies_all_selectors() {
    let (limits, clock) = limits();
    let api = Arc::new(Api::new(&limits));
    let both = limits.limit("And('username:10/5m', 'apikey:100/m')").unwrap().key("do_stuff");
    let do_stuff = both.selectors(|name| api.select(name).map(str::to_owned)).wrap(|()| ()).unwrap();
    assert_eq!(allowed(&clock, 0, 200, || do_stuff.call(())), 100);
}

#[test]
fn the_object_is_self() {
    let (limits, clock) = limits();
    let api = Api::new(&limits);
    assert_eq!(allowed(&clock, 0, 200, || api.do_stuff()), 100);
    assert_eq!(api.calls.load(Ordering::Relaxed), 100);
}

#[test]
fn good_and_bad_kitties_share_their_counters() {
    #[limit("And('username:10/5m', 'apikey:20/m')", with = api.limits, username = api.username(), apikey = api.apikey(), key = "cats")]
    fn good_kittie(api: &Api) -> Result<(), RateLimitError> {
        Ok(())
    }
    #[limit(with = api.limits, username = api.username(), apikey = api.apikey(), key = "cats")]
    fn bad_kittie(api: &Api) -> Result<(), RateLimitError> {
        Ok(())
    }
    let (limits, clock) = limits();
    let api = Api::new(&limits);
    assert_eq!(allowed(&clock, 0, 12, || good_kittie(&api)), 12);
    assert_eq!(allowed(&clock, 0, 12, || bad_kittie(&api)), 8);
    assert_eq!(allowed(&clock, 0, 12, || good_kittie(&api)), 0);
}

#[test]
fn blocks_are_global_unless_they_have_a_key() {
    let (limits, clock) = limits();
    let block = || limits.limit("username:10/5m").unwrap().selector("username", get_username);
    let login = || block().key("login");
    assert_eq!(allowed(&clock, 0, 6, || block().enter().map(|_| ())), 6);
    assert_eq!(allowed(&clock, 0, 6, || block().enter().map(|_| ())), 4, "of all blocks without a key");
    assert_eq!(allowed(&clock, 0, 20, || login().enter().map(|_| ())), 10);
}
