//! What the master said about whom, and what that means for a request now.
//!
//! The delay that holds for an identifier is one place in time, and one request takes it. The master answers that request
//! with the next place. Whoever comes before that answer stands in line, and places that come are given out in the order in
//! which requests came. Without an answer, those in line pass when the place that was taken has come: never later than if
//! there were no line.
//!
//! Other gatekeepers offer the same place until they have heard that it is taken, so that several requests may take one. The
//! master answers each of them, and says the same to all: as often as it repeats itself, so many requests too many will
//! pass at that place. The next place is later by as much as they are owed, or else a fleet would let a multiple of the
//! rate pass. How far places are from each other is learned from the answers to those that were taken here.
//!
//! Time is an argument, and a waiter `W` is whatever its owner wants back when it has a place.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use tollway_core::{Nanos, Timestamp};

/// How many delays that are over are forgotten whenever one is told. More than one, so that those that are over never gather.
const SWEPT_AT_ONCE: usize = 4;

/// Times that differ by less are the same: they were said in milliseconds, and carried over from another clock.
const SAME: Nanos = Nanos::new(500_000);

/// What holds for a gatekeeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Who would have to wait longer is rejected.
    pub(super) max_delay: Nanos,
    /// If as many wait, others are rejected.
    pub(super) max_delayed: usize,
    /// How many delays are remembered.
    pub(super) max_known: usize,
}

/// All that is remembered.
#[derive(Debug)]
pub(super) struct Book<W> {
    bounds: Bounds,
    hashers: [RandomState; 2],
    known: HashMap<Key, Delay<W>>,
    /// The same, by when they end.
    ends: BTreeSet<(Timestamp, Key)>,
    waiting: usize,
    next_ticket: u64,
    /// How often a master was found.
    session: u64,
}

/// What stands for an identifier: a hash of 128 bits, keyed so that nobody can aim at another's. A master can thus make
/// us remember how many it likes, up to the bound, but not how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u64, u64);

/// A place in line. Who came first has the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
struct Delay<W> {
    /// The place on offer.
    until: Timestamp,
    /// What the master said: the same, or earlier by what passes too much.
    told: Timestamp,
    /// And in which session.
    session: u64,
    /// From one place to the next, as far as that is known.
    step: Nanos,
    /// A request waits for it, and the master has not said what comes next.
    taken: bool,
    /// Empty unless it is taken.
    line: BTreeMap<Ticket, InLine<W>>,
}

#[derive(Debug)]
struct InLine<W> {
    came: Timestamp,
    waiter: W,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It passes.
    Pass,
    /// It passes then.
    Place(Timestamp),
    /// It passes then unless it is given a place until then.
    Line(Timestamp, Ticket),
    /// It is turned away; then it would not be.
    Reject(Timestamp),
}

/// What became of one that stood in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It passes then.
    Place(Timestamp),
    /// That would be too late.
    Reject(Timestamp),
}

/// How it is with one in line whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No place came: it passes, and is no longer in line.
    Pass,
    /// Others got places: it passes then unless it is given one until then.
    Line(Timestamp),
    /// It is not in line: it has its fate, or it has been forgotten and passes.
    Gone,
}

impl<W> Book<W> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            hashers: [RandomState::new(), RandomState::new()],
            known: HashMap::new(),
            ends: BTreeSet::new(),
            waiting: 0,
            next_ticket: 0,
            session: 0,
        }
    }

    /// From now on another master speaks, or the same one again. What it repeats are reminders.
    pub(super) fn met(&mut self) {
        self.session += 1;
    }

    pub(super) fn key(&self, identifier: &[u8]) -> Key {
        let [one, other] = self.hashers.each_ref().map(|hasher| hasher.hash_one(identifier));
        Key(one, other)
    }

    /// How many delays are remembered.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Rules on a request. Whoever is told to wait is counted until it leaves.
    pub(super) fn decide(&mut self, key: Key, now: Timestamp, waiter: impl FnOnce() -> W) -> Ruling {
        let Some(delay) = self.known.get_mut(&key).filter(|delay| delay.until > now) else {
            return Ruling::Pass;
        };
        let until = delay.until;
        if until.since(now) > self.bounds.max_delay || self.waiting >= self.bounds.max_delayed {
            return Ruling::Reject(until);
        }
        self.waiting += 1;
        if !delay.taken {
            delay.taken = true;
            return Ruling::Place(until);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        delay.line.insert(ticket, InLine { came: now, waiter: waiter() });
        Ruling::Line(until, ticket)
    }

    /// Remembers what the master said. The new place goes to the first in line, if there is one, for whom it is not too late.
    pub(super) fn told(&mut self, key: Key, until: Timestamp, now: Timestamp) -> Vec<(W, Fate)> {
        self.sweep(now, SWEPT_AT_ONCE);
        if until <= now {
            return Vec::new();
        }
        // Whoever is still in line at a place that is past was to pass by now, and does.
        if let Some(over) = self.known.get(&key).map(|delay| delay.until).filter(|until| *until <= now) {
            self.ends.remove(&(over, key));
            self.known.remove(&key);
        }
        let delay = self.known.entry(key).or_insert_with(Delay::new);
        let Some(next) = delay.next(until, self.session, self.bounds.max_delay) else { return Vec::new() };
        self.ends.remove(&(delay.until, key));
        self.ends.insert((next, key));
        (delay.told, delay.session) = (delay.told.max(until), self.session);
        let settled = delay.moved_to(next, self.bounds.max_delay);
        while self.known.len() > self.bounds.max_known {
            self.forget_first();
        }
        settled
    }

    /// One in line whose time has come.
    pub(super) fn look(&mut self, key: Key, ticket: Ticket, now: Timestamp) -> Standing {
        let Some(delay) = self.known.get_mut(&key) else { return Standing::Gone };
        if delay.until > now && delay.line.contains_key(&ticket) {
            return Standing::Line(delay.until);
        }
        delay.line.remove(&ticket).map_or(Standing::Gone, |_| Standing::Pass)
    }

    /// One waits no longer: it passed, was rejected after all, or gave up.
    pub(super) fn leave(&mut self, key: Key, ticket: Option<Ticket>) {
        self.waiting = self.waiting.saturating_sub(1);
        if let (Some(ticket), Some(delay)) = (ticket, self.known.get_mut(&key)) {
            delay.line.remove(&ticket);
        }
    }

    /// Forgets up to so many delays that are over. Whoever is still in line there passes.
    pub(super) fn sweep(&mut self, now: Timestamp, at_most: usize) {
        for _ in 0..at_most {
            match self.ends.first() {
                Some((until, _)) if *until <= now => self.forget_first(),
                _ => return,
            }
        }
    }

    /// The one that ends first is the one that matters least.
    fn forget_first(&mut self) {
        if let Some((_, key)) = self.ends.pop_first() {
            self.known.remove(&key);
        }
    }
}

impl<W> Delay<W> {
    const fn new() -> Self {
        Self {
            until: Timestamp::EPOCH,
            told: Timestamp::EPOCH,
            session: 0,
            step: Nanos::ZERO,
            taken: false,
            line: BTreeMap::new(),
        }
    }

    /// Where the next place is, now that the master said this; `None` if that is no news.
    fn next(&mut self, told: Timestamp, session: u64, max_delay: Nanos) -> Option<Timestamp> {
        let owed = self.until.since(self.told);
        if told.since(self.told) > SAME {
            if self.taken && told > self.until {
                self.step = told.since(self.until);
            }
            // Places that were left out pay back what is owed.
            let left_out = told.since(self.told).saturating_sub(self.step);
            return Some(told + owed.saturating_sub(left_out));
        }
        let repeated = self.told.since(told) <= SAME && session == self.session;
        // However often it is said: nobody waits for longer than that because of it.
        let owed_now = (owed + self.step).min(max_delay);
        (repeated && owed_now > owed).then(|| self.told + owed_now)
    }

    /// Gives the new place out. Those for whom it is too late came first, so they are at the front.
    fn moved_to(&mut self, until: Timestamp, max_delay: Nanos) -> Vec<(W, Fate)> {
        (self.until, self.taken) = (until, false);
        let mut settled = Vec::new();
        while let Some((_, InLine { came, waiter })) = self.line.pop_first() {
            if until.since(came) <= max_delay {
                self.taken = true;
                settled.push((waiter, Fate::Place(until)));
                break;
            }
            settled.push((waiter, Fate::Reject(until)));
        }
        settled
    }
}

#[cfg(test)]
mod tests;
