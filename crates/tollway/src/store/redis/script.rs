//! The scripts, which are assembled from their parts, and the arguments of their calls.
//!
//! ```text
//! number + clock + token_bucket + quota + settle      for a bill of token buckets and quotas
//! ```
//!
//! A script decides and writes in one atomic step. It returns the bucket that it found and the time, and from these the
//! core computes the decision, with the functions that decide in memory.
//!
//! Scripts count in nanoseconds, so that both stores give the same answers to the last digit. The nanoseconds since
//! 1970 do not fit in a double, so such a number is passed, and kept, as two.

use std::fmt::Write;
use std::iter;
use std::sync::{LazyLock, OnceLock};

use redis::{Cmd, ToRedisArgs};
use tollway_core::algorithm::{SmoothedRate, TokenBucket};
use tollway_core::{Algorithm, Expression, Nanos, Timestamp};

use super::call::{Call, Script};
use super::key;

macro_rules! lua {
    ($($part:literal),+) => { concat!($(include_str!(concat!("lua/", $part, ".lua")), "\n"),+) };
}

/// Spends from one token bucket.
pub(super) static SPEND: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("spend").to_owned()));
/// Adds a request to one rate.
pub(super) static RATE_UPDATE: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "smoothed_rate", "rate_update").to_owned()));
/// Runs commands on one quota.
pub(super) static QUOTA_COMMANDS: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "quota", "quota_commands").to_owned()));
/// Takes back a part of a bill.
pub(super) static UNDO: LazyLock<Script> = LazyLock::new(|| {
    let parts = lua!(
        "number",
        "clock",
        "token_bucket_value",
        "smoothed_rate",
        "quota",
        "window",
        "fixed_window",
        "sliding_window",
        "rule_log",
        "undo"
    );
    Script::new(parts.to_owned())
});
/// Decides by a rule that is one rate.
pub(super) static RULE_PLAIN: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("rule_plain").to_owned() + &settle(iter::empty(), true).source));
/// Enters a request of a domain in a list.
pub(super) static REPORT_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "report_window").to_owned()));
/// Enters a request of a domain in one time for each rule.
pub(super) static REPORT_GCRA: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "report_gcra").to_owned()));

/// Reads one bucket whole.
#[cfg(feature = "journal")]
pub(super) static READ_BUCKET: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "read_bucket").to_owned()));
/// Replaces one bucket, unless it has changed since it was read.
#[cfg(feature = "journal")]
pub(super) static REPLACE_BUCKET: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("number", "clock", "replace_bucket").to_owned()));

/// Returns the script for a bill with these algorithms, and with rules or without.
pub(super) fn settle<'a>(
    algorithms: impl Iterator<Item = &'a Algorithm>,
    has_rules: bool,
) -> &'static Script {
    static SCRIPTS: [ScriptSets; 2] = [
        ScriptSets::new(concat!("local RULES = false\n", lua!("expression", "settle"))),
        ScriptSets::new(concat!("local RULES = true\n", lua!("expression", "rule_log", "settle"))),
    ];
    SCRIPTS[usize::from(has_rules)].with(algorithms)
}

/// Returns the script that gives back to one bucket.
pub(super) fn refund(algorithm: &Algorithm) -> &'static Script {
    static SCRIPTS: ScriptSets = ScriptSets::new(lua!("refund"));
    SCRIPTS.with([algorithm])
}

/// Returns the script that reads one bucket, or only the time if the id is unlimited.
pub(super) fn inspect(algorithm: Option<&Algorithm>) -> &'static Script {
    static SCRIPTS: ScriptSets = ScriptSets::new(lua!("inspect"));
    SCRIPTS.with(algorithm)
}

/// The letter, the name and the functions of each algorithm.
const ALGORITHMS: [(&str, &str, &str); 6] = [
    ("b", "token_bucket", lua!("token_bucket_value", "token_bucket")),
    ("l", "sliding_log", lua!("sliding_log")),
    ("r", "smoothed_rate", lua!("smoothed_rate")),
    ("q", "quota", lua!("quota")),
    ("f", "fixed_window", lua!("window", "fixed_window")),
    ("s", "sliding_window", lua!("window", "sliding_window")),
];

const fn place(algorithm: &Algorithm) -> usize {
    match algorithm {
        Algorithm::TokenBucket(_) => 0,
        Algorithm::SlidingLog(_) => 1,
        Algorithm::SmoothedRate(_) => 2,
        Algorithm::Quota(_) => 3,
        Algorithm::FixedWindow(_) => 4,
        Algorithm::SlidingWindow(_) => 5,
    }
}

/// A script with each set of algorithms, which is assembled at its first use. All functions of a script are created
/// again for each call, so a script with all of them takes a third longer.
struct ScriptSets {
    script: &'static str,
    /// The scripts, at the index that has the bits of their algorithms.
    sets: [OnceLock<Script>; 1 << ALGORITHMS.len()],
}

impl ScriptSets {
    const fn new(script: &'static str) -> Self {
        Self { script, sets: [const { OnceLock::new() }; 1 << ALGORITHMS.len()] }
    }

    fn with<'a>(&self, algorithms: impl IntoIterator<Item = &'a Algorithm>) -> &Script {
        let set = algorithms.into_iter().fold(0, |set, algorithm| set | 1 << place(algorithm));
        self.sets[set].get_or_init(|| {
            let algorithms = ALGORITHMS.iter().enumerate().filter(|(place, _)| set & 1 << place != 0);
            let (mut functions, mut table) = (String::new(), String::new());
            for (_, (letter, name, lua)) in algorithms {
                functions += lua;
                table += &format!("{letter} = {name}, ");
            }
            let (start, script) = (lua!("number", "clock"), self.script);
            Script::new(format!("{start}{functions}local ALGORITHMS = {{{table}}}\n\n{script}"))
        })
    }
}

/// Writes an expression in postfix form: `1 2 |2` holds if the first or the second answer does. `place` returns the
/// index of an answer; one without an index does not hold.
pub(super) fn postfix(expression: &Expression, place: &impl Fn(usize) -> Option<usize>) -> String {
    let several = |sign: char, parts: &[Expression]| {
        let mut text: String = parts.iter().map(|part| postfix(part, place)).collect();
        // A `String` takes whatever is written to it.
        let _ = write!(text, "{sign}{} ", parts.len());
        text
    };
    match expression {
        Expression::Charge(index) => {
            place(*index).map_or_else(|| several('|', &[]), |place| format!("{} ", place + 1))
        }
        Expression::Or(parts) => several('|', parts),
        Expression::And(parts) => several('&', parts),
    }
}

/// The bound below which spans are exact as doubles, even with a second more.
pub(super) const EXACT: Nanos = Nanos::new(9_000_000_000_000_000);

const BILLION: u64 = 1_000_000_000;

/// A call whose arguments are being added.
pub(super) struct CallBuilder {
    command: Cmd,
    script: &'static Script,
    slot: u16,
}

impl CallBuilder {
    /// Begins a call for keys that are all in one slot.
    pub(super) fn new(script: &'static Script, keys: &[&[u8]]) -> Self {
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

    /// Adds the time, or nothing if Redis reads its own clock.
    pub(super) fn now(self, now: Option<Timestamp>) -> Self {
        match now {
            Some(now) => self.arg(now.as_nanos()),
            None => self.arg(""),
        }
    }

    /// Adds the time in seconds and nanoseconds, or nothing if Redis reads its own clock.
    pub(super) fn now_pair(self, now: Option<Timestamp>) -> Self {
        match now {
            Some(now) => self.pair(now.as_nanos()),
            None => self,
        }
    }

    /// Adds a number of 64 bits: the billions, and the nine digits below them.
    pub(super) fn pair(self, number: u64) -> Self {
        self.arg(number / BILLION).arg(number % BILLION)
    }

    /// Adds the letter of an algorithm.
    pub(super) fn algorithm(self, algorithm: &Algorithm) -> Self {
        self.arg(ALGORITHMS[place(algorithm)].0)
    }

    /// Adds the six numbers that an algorithm needs for a charge.
    pub(super) fn numbers(self, algorithm: &Algorithm, cost: u64) -> Self {
        match algorithm {
            Algorithm::TokenBucket(limit) => {
                let increment = limit.emission_interval().saturating_mul(cost);
                self.pair(increment.get()).pair(limit.fill_time().get()).unit(limit).arg("")
            }
            // No log is as long as the highest cost that a double holds.
            Algorithm::SlidingLog(limit) => {
                self.arg(cost.min(EXACT.get())).arg("").arg(limit.count()).arg("").pair(limit.period().get())
            }
            Algorithm::SmoothedRate(limit) => self.rate(limit, cost),
            Algorithm::Quota(limit) => self.pair(cost).pair(limit.count()).pair(limit.period().get()),
            Algorithm::FixedWindow(limit) => {
                self.arg(cost).arg(limit.count()).pair(limit.period().get()).pair(limit.offset().get())
            }
            // No count is as high as the highest cost that a double holds.
            Algorithm::SlidingWindow(limit) => self
                .arg(cost.min(EXACT.get()))
                .arg(limit.count())
                .pair(limit.period().get())
                .arg(limit.kept_after_end().get())
                .arg(""),
        }
    }

    /// Adds the time of one unit, or nothing if the numbers came with the request.
    pub(super) fn unit(self, limit: &TokenBucket) -> Self {
        if limit.is_inline() { self.arg("") } else { self.arg(limit.emission_interval().get()) }
    }

    /// Adds the six numbers that a rate needs for a request.
    pub(super) fn rate(self, limit: &SmoothedRate, cost: u64) -> Self {
        self.arg(cost as f64)
            .arg(limit.limit())
            .arg(limit.period().as_secs_f64())
            .arg(u8::from(limit.strict()))
            .pair(limit.forget_after(0.0).get())
    }
}
