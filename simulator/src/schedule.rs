//! The events to come, in the order of their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tollway::core::{Nanos, Timestamp};

/// The time at which every simulation begins: a day in November 2023.
pub(crate) const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// A queue that holds events. Events of one moment come in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    now: Timestamp,
    added: u64,
    events: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Timestamp,
    number: u64,
    event: E,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self { now: START, added: 0, events: BinaryHeap::new() }
    }
}

impl<E> Schedule<E> {
    /// Returns the time of the event that was taken last.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(START).into()
    }

    /// Adds an event that happens `wait` from now.
    pub(crate) fn after(&mut self, wait: Nanos, event: E) {
        self.added += 1;
        let entry = Entry { at: self.now + wait, number: self.added, event };
        self.events.push(Reverse(entry));
    }

    /// Takes the next event, and moves the time on to it.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse(entry) = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
