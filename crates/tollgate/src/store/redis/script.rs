//! The scripts, put together from their parts, and calls of them.
//!
//! ```text
//! settle = number + clock + token_bucket + sliding_log + smoothed_rate + quota + settle
//! ```
//!
//! A script decides and writes, in one step that nobody can split; it explains nothing. It answers what it found and at what
//! time, and from that the core works out what was decided and why, by the functions that decide in memory.
//!
//! Scripts count in nanoseconds like everything else, so that both stores give the same answers to the last digit. A
//! double has no room for the nanoseconds since 1970: such a number is handed over, and held, as two.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};
use tollgate_core::algorithm::{FORGET_AFTER_PERIODS, SmoothedRateLimit};
use tollgate_core::{Algorithm, Nanos, Timestamp};

use super::call::{Call, Script};
use super::key;

macro_rules! script {
    ($($part:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $part, ".lua")), "\n"),+).to_owned()))
    };
}

/// One spend from one token bucket.
pub(super) static SPEND: LazyLock<Script> = script!("spend");
/// Any bill.
pub(super) static SETTLE: LazyLock<Script> =
    script!("number", "clock", "token_bucket", "sliding_log", "smoothed_rate", "quota", "settle");
/// Giving back to one bucket.
pub(super) static REFUND: LazyLock<Script> =
    script!("number", "clock", "token_bucket", "sliding_log", "smoothed_rate", "quota", "refund");
/// Taking back part of a bill.
pub(super) static UNDO: LazyLock<Script> = script!("number", "clock", "smoothed_rate", "quota", "undo");
/// One more request in one rate.
pub(super) static KNOCK: LazyLock<Script> = script!("number", "clock", "smoothed_rate", "knock");
/// Orders for one quota.
pub(super) static EXECUTE: LazyLock<Script> = script!("number", "clock", "quota", "execute");
/// A look at one bucket.
pub(super) static INSPECT: LazyLock<Script> = script!("number", "clock", "inspect");

/// Spans below this are exact as doubles, with room for a second more.
pub(super) const EXACT: Nanos = Nanos::new(9_000_000_000_000_000);

const BILLION: u64 = 1_000_000_000;

/// A call to which arguments are still added.
pub(super) struct Draft {
    command: Cmd,
    script: &'static Script,
    slot: u16,
}

impl Draft {
    /// A call about buckets that are all in one slot.
    pub(super) fn new(script: &'static LazyLock<Script>, keys: &[&[u8]]) -> Self {
        let script = LazyLock::force(script);
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len()).arg(keys);
        Self { command, script, slot: keys.first().map_or(0, |key| key::slot(key)) }
    }

    pub(super) fn finish(self) -> Call {
        Call { slot: self.slot, command: self.command, script: Some(self.script) }
    }

    pub(super) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// The caller's time; nothing where it is Redis's own.
    pub(super) fn now(self, now: Option<Timestamp>) -> Self {
        match now {
            Some(now) => self.arg(now.as_nanos()),
            None => self.arg(""),
        }
    }

    /// A number of 64 bits: the billions, and the nine digits below them.
    pub(super) fn pair(self, number: u64) -> Self {
        self.arg(number / BILLION).arg(number % BILLION)
    }

    /// The letter of an algorithm.
    pub(super) fn algorithm(self, algorithm: &Algorithm) -> Self {
        self.arg(match algorithm {
            Algorithm::TokenBucket(_) => "b",
            Algorithm::SlidingLog(_) => "l",
            Algorithm::SmoothedRate(_) => "r",
            Algorithm::Quota(_) => "q",
        })
    }

    /// The six numbers that an algorithm needs for a charge.
    pub(super) fn numbers(self, algorithm: &Algorithm, cost: u64) -> Self {
        match algorithm {
            Algorithm::TokenBucket(limit) => {
                let unit = limit.emission_interval();
                self.pair(unit.saturating_mul(cost).get()).pair(limit.fill_time().get()).pair(unit.get())
            }
            // No log is as long as the highest cost that a double holds.
            Algorithm::SlidingLog(limit) => {
                self.arg(cost.min(EXACT.get())).arg("").arg(limit.count()).arg("").pair(limit.period().get())
            }
            Algorithm::SmoothedRate(limit) => self.rate(limit, cost),
            Algorithm::Quota(limit) => self.pair(cost).pair(limit.count()).pair(limit.period().get()),
        }
    }

    /// The six numbers that a rate needs for a request.
    pub(super) fn rate(self, limit: &SmoothedRateLimit, cost: u64) -> Self {
        self.arg(cost as f64)
            .arg(limit.limit())
            .arg(limit.period().as_secs_f64())
            .arg(u8::from(limit.strict()))
            .pair(limit.period().saturating_mul(FORGET_AFTER_PERIODS).get())
    }
}
