//! The history of one simulation: a hash of everything that was decided, counters, and the last events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use tollway::core::Timestamp;

use crate::schedule::START;

/// The number of events that are kept, to be shown before a violation.
const RECENT_MAX: usize = 24;

/// The number of violations that are kept. The first one is what matters.
const VIOLATIONS_MAX: usize = 8;

/// Everything that one simulation remembers about what happened.
#[derive(Debug, Default)]
pub struct History {
    hash: u64,
    counts: BTreeMap<&'static str, u64>,
    recent: VecDeque<Entry>,
    violations: Vec<Violation>,
    now: Timestamp,
}

/// One event, in numbers: text is made of it only if it is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The time of the event.
    pub at: Timestamp,
    /// The part of the world in which it happened.
    pub place: &'static str,
    /// The kind of event.
    pub what: &'static str,
    /// The limit that it is about.
    pub limit: &'static str,
    /// The numbers of the event, such as an id, a cost and what is left.
    pub numbers: [u64; 4],
    /// The outcome.
    pub outcome: &'static str,
}

/// A broken promise, with the events before it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seconds since the start of the simulation.
    pub at: f64,
    /// The promise that was broken.
    pub what: String,
    /// The last events.
    pub before: Vec<String>,
}

impl History {
    /// Sets the time of the events that follow.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Records an event.
    pub fn record(&mut self, entry: Entry) {
        let entry = Entry { at: self.now, ..entry };
        *self.counts.entry(entry.what).or_default() += 1;
        self.mix(entry.at.as_nanos());
        for text in [entry.place, entry.what, entry.limit, entry.outcome] {
            text.bytes().for_each(|byte| self.mix(byte.into()));
        }
        entry.numbers.into_iter().for_each(|number| self.mix(number));
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(entry);
    }

    /// Counts something without an entry.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Records a broken promise.
    pub fn violated(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let before = self.recent.iter().map(ToString::to_string).collect();
            let at = self.now.since(START).as_secs_f64();
            self.violations.push(Violation { at, what, before });
        }
    }

    /// Returns the hash of everything that was recorded.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns how often each kind of event happened.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Returns the broken promises.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Mixes a number into the hash (the step of SplitMix64).
    fn mix(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.hash = mixed ^ (mixed >> 27);
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, place, what, limit, numbers: [a, b, c, d], outcome } = self;
        let seconds = at.since(START).as_secs_f64();
        write!(f, "{seconds:.9}s {place} {what} {limit} [{a} {b} {c} {d}] {outcome}")
    }
}
