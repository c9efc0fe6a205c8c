//! The delays that a master published, and what they mean for a request.
//!
//! The delay of an identifier names one slot in time, and one request takes it. The master answers that request with
//! the next slot. Requests that come before this answer are queued, and new slots are given out in the order of
//! arrival. Without an answer, queued requests pass at the slot that was taken: never later than if there were no
//! queue.
//!
//! Other gatekeepers offer the same slot until they receive the next one, so several requests may take one slot. The
//! master answers each of them with the same time. So each time that the master repeats itself, one request too many
//! passes at that slot. Each repetition moves the next slot by one step, or else a fleet would let a multiple of the
//! rate pass. The step between slots is learned from the answers to slots that were taken here.
//!
//! Time is an argument, and a waiter `W` is a value that its owner gets back with its slot.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use tollway_core::{Nanos, Timestamp};

/// The number of past delays that are removed whenever one is recorded. It is more than one, so that past delays never
/// pile up.
const SWEPT_PER_RECORD: usize = 4;

/// Times that differ by less are equal: they were sent in milliseconds, and converted from another clock.
const SAME: Nanos = Nanos::new(500_000);

/// The bounds that a gatekeeper keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayBounds {
    /// The longest wait; a request that would wait longer is rejected.
    pub(super) max_delay: Nanos,
    /// The number of requests that may wait; others are rejected.
    pub(super) max_delayed: usize,
    /// The number of delays that are remembered.
    pub(super) max_known_delays: usize,
}

/// The delays that hold for all identifiers.
#[derive(Debug)]
pub(super) struct DelayTable<W> {
    bounds: DelayBounds,
    hashers: [RandomState; 2],
    delays: HashMap<IdentifierHash, DelayEntry<W>>,
    /// The delays of the table, sorted by the time at which they end.
    by_end: BTreeSet<(Timestamp, IdentifierHash)>,
    waiting: usize,
    next_position: u64,
    /// The number of times that a connection to a master was opened.
    session: u64,
}

/// The hash that stands for an identifier, with a random key so that nobody can aim at another identifier's.
///
/// It bounds the memory of an entry: a master decides how many identifiers are remembered, up to the bound, but not how
/// long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct IdentifierHash(u64, u64);

/// The position that a request has in the queue of its identifier. The request that came first has the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition(u64);

#[derive(Debug)]
struct DelayEntry<W> {
    /// The slot on offer.
    until: Timestamp,
    /// The time that the master published: the same, or earlier by the requests too many.
    published: Timestamp,
    /// The session in which it was published.
    session: u64,
    /// The time from one slot to the next, or zero until it is learned.
    step: Nanos,
    /// True if a request waits for the slot and the master has not published the next one.
    taken: bool,
    /// The requests that wait for a slot. Empty unless the slot is taken.
    queue: BTreeMap<QueuePosition, QueuedWaiter<W>>,
}

#[derive(Debug)]
struct QueuedWaiter<W> {
    arrived: Timestamp,
    waiter: W,
}

/// The decision that the table makes on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayDecision {
    /// The request passes now.
    Pass,
    /// The request has a slot, and passes then.
    Slot(Timestamp),
    /// The request is queued, and passes then unless it gets a slot before.
    Queue(Timestamp, QueuePosition),
    /// The request is rejected; at this time it would pass.
    Reject(Timestamp),
}

/// The way in which a request left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOutcome {
    /// The request got this slot.
    Slot(Timestamp),
    /// The slot would be too late for the request.
    Reject(Timestamp),
}

/// The status of a queued request at the time at which it was to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueStatus {
    /// No slot came: the request passes, and has left the queue.
    Pass,
    /// Other requests got slots: the request passes at this time unless it gets a slot before.
    Queued(Timestamp),
    /// The request is not in the queue: it has its outcome, or its delay was removed and it passes.
    Gone,
}

impl<W> DelayTable<W> {
    pub(super) fn new(bounds: DelayBounds) -> Self {
        Self {
            bounds,
            hashers: [RandomState::new(), RandomState::new()],
            delays: HashMap::new(),
            by_end: BTreeSet::new(),
            waiting: 0,
            next_position: 0,
            session: 0,
        }
    }

    /// Starts a session with another master, or with the same one again. A time that it publishes again is then a
    /// reminder, and no repeated answer.
    pub(super) fn start_session(&mut self) {
        self.session += 1;
    }

    pub(super) fn hash(&self, identifier: &[u8]) -> IdentifierHash {
        let [one, other] = self.hashers.each_ref().map(|hasher| hasher.hash_one(identifier));
        IdentifierHash(one, other)
    }

    /// Returns the number of delays that are remembered.
    pub(super) fn known(&self) -> usize {
        self.delays.len()
    }

    /// Returns the number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Decides on a request. One that must wait counts as waiting until it leaves.
    pub(super) fn decide(
        &mut self,
        key: IdentifierHash,
        now: Timestamp,
        waiter: impl FnOnce() -> W,
    ) -> DelayDecision {
        let Some(delay) = self.delays.get_mut(&key).filter(|delay| delay.until > now) else {
            return DelayDecision::Pass;
        };
        let until = delay.until;
        if until.since(now) > self.bounds.max_delay || self.waiting >= self.bounds.max_delayed {
            return DelayDecision::Reject(until);
        }
        self.waiting += 1;
        if !delay.taken {
            delay.taken = true;
            return DelayDecision::Slot(until);
        }
        let position = QueuePosition(self.next_position);
        self.next_position += 1;
        delay.queue.insert(position, QueuedWaiter { arrived: now, waiter: waiter() });
        DelayDecision::Queue(until, position)
    }

    /// Records a delay that the master published. The new slot goes to the first queued request for which it is not too
    /// late.
    pub(super) fn record(
        &mut self,
        key: IdentifierHash,
        until: Timestamp,
        now: Timestamp,
    ) -> Vec<(W, QueueOutcome)> {
        self.sweep(now, SWEPT_PER_RECORD);
        if until <= now {
            return Vec::new();
        }
        // Requests that are still queued at a past slot were to pass by now, and do.
        if let Some(past) = self.delays.get(&key).map(|delay| delay.until).filter(|until| *until <= now) {
            self.by_end.remove(&(past, key));
            self.delays.remove(&key);
        }
        let delay = self.delays.entry(key).or_insert_with(DelayEntry::new);
        let Some(next) = delay.next_slot(until, self.session, self.bounds.max_delay) else {
            return Vec::new();
        };
        self.by_end.remove(&(delay.until, key));
        self.by_end.insert((next, key));
        (delay.published, delay.session) = (delay.published.max(until), self.session);
        let settled = delay.offer(next, self.bounds.max_delay);
        while self.delays.len() > self.bounds.max_known_delays {
            self.remove_first();
        }
        settled
    }

    /// Returns the status of a queued request at the time at which it was to pass.
    pub(super) fn status(
        &mut self,
        key: IdentifierHash,
        position: QueuePosition,
        now: Timestamp,
    ) -> QueueStatus {
        let Some(delay) = self.delays.get_mut(&key) else { return QueueStatus::Gone };
        if delay.until > now && delay.queue.contains_key(&position) {
            return QueueStatus::Queued(delay.until);
        }
        delay.queue.remove(&position).map_or(QueueStatus::Gone, |_| QueueStatus::Pass)
    }

    /// Ends the wait of a request: it passed, was rejected after all, or its caller gave up.
    pub(super) fn leave(&mut self, key: IdentifierHash, position: Option<QueuePosition>) {
        self.waiting = self.waiting.saturating_sub(1);
        if let (Some(position), Some(delay)) = (position, self.delays.get_mut(&key)) {
            delay.queue.remove(&position);
        }
    }

    /// Removes up to `at_most` past delays. Requests that are still queued there pass.
    pub(super) fn sweep(&mut self, now: Timestamp, at_most: usize) {
        for _ in 0..at_most {
            match self.by_end.first() {
                Some((until, _)) if *until <= now => self.remove_first(),
                _ => return,
            }
        }
    }

    /// Removes the delay that ends first: it matters least.
    fn remove_first(&mut self) {
        if let Some((_, key)) = self.by_end.pop_first() {
            self.delays.remove(&key);
        }
    }
}

impl<W> DelayEntry<W> {
    const fn new() -> Self {
        Self {
            until: Timestamp::EPOCH,
            published: Timestamp::EPOCH,
            session: 0,
            step: Nanos::ZERO,
            taken: false,
            queue: BTreeMap::new(),
        }
    }

    /// Returns the next slot after the master published `published`, or `None` if that changes nothing.
    fn next_slot(&mut self, published: Timestamp, session: u64, max_delay: Nanos) -> Option<Timestamp> {
        let owed = self.until.since(self.published);
        if published.since(self.published) > SAME {
            if self.taken && published > self.until {
                self.step = published.since(self.until);
            }
            // Slots that the master left out pay back what is owed.
            let left_out = published.since(self.published).saturating_sub(self.step);
            return Some(published + owed.saturating_sub(left_out));
        }
        let repeated = self.published.since(published) <= SAME && session == self.session;
        // However often a time is repeated, no request waits longer than `max_delay` because of it.
        let owed_now = (owed + self.step).min(max_delay);
        (repeated && owed_now > owed).then(|| self.published + owed_now)
    }

    /// Offers the new slot to the queue. Requests for which it is too late arrived first, so they are at the front.
    fn offer(&mut self, until: Timestamp, max_delay: Nanos) -> Vec<(W, QueueOutcome)> {
        (self.until, self.taken) = (until, false);
        let mut settled = Vec::new();
        while let Some((_, QueuedWaiter { arrived, waiter })) = self.queue.pop_first() {
            if until.since(arrived) <= max_delay {
                self.taken = true;
                settled.push((waiter, QueueOutcome::Slot(until)));
                break;
            }
            settled.push((waiter, QueueOutcome::Reject(until)));
        }
        settled
    }
}

#[cfg(test)]
mod tests;
