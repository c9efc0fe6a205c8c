//! The sliding log: the newest timestamps themselves, so "at most 10 in any second" is exactly that.
//!
//! Three readers share one log. A named limit spends from it ([`Bucket`]); a rule reads if the N-th newest entry is
//! younger than a span ([`SlidingLogState::reached`]); a Smockron master reads when the next request is allowed
//! ([`SlidingLogState::next_allowed`]).

mod entries;

use std::time::Duration;

use self::entries::Entries;

use crate::algorithm::{Bucket, NumbersError, TokenBucket, sensible};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

/// The largest number of entries that one log keeps: half a megabyte. A token bucket serves larger limits.
pub const LOG_MAX: u64 = 65_536;

/// Numbers of a sliding log that allows at most `count` in any `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    count: u64,
    period: Nanos,
}

impl SlidingLog {
    /// Rejects zeros, and logs longer than [`LOG_MAX`].
    pub fn new(count: u64, period: Duration) -> Result<Self, NumbersError> {
        let period = Nanos::from(period);
        sensible(&[("count", count)], period)?;
        if count > LOG_MAX {
            return Err(NumbersError::LogTooLong);
        }
        Ok(Self { count, period })
    }

    /// Returns the number of units that fit in a period.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the span that slides.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the number of `live` entries that must expire before a second charge of `cost` fits after this one.
    pub fn excess(&self, live: u64, cost: u64) -> u64 {
        let fits = cost <= self.count.saturating_sub(live);
        let taken = if fits { cost } else { 0 };
        live.saturating_add(taken).saturating_add(cost).saturating_sub(self.count)
    }

    /// Decides about a charge of `cost` from a summary of the log.
    pub fn decide(&self, log: &LogSummary, cost: u64, now: Timestamp) -> Decision {
        let left = self.count.saturating_sub(log.live);
        let reset_now = log.newest.map_or(Nanos::ZERO, |newest| self.expires_after(newest, now));
        let wait_for_room = match log.in_the_way {
            Some(entry) => self.expires_after(entry, now),
            None if self.excess(log.live, cost) == 0 => Nanos::ZERO,
            None => self.period,
        };
        let Some(left_after) = left.checked_sub(cost) else {
            return Decision::new(Verdict::Deny, left, wait_for_room, reset_now);
        };
        let (retry, reset) = if cost == 0 { (Nanos::ZERO, reset_now) } else { (wait_for_room, self.period) };
        Decision::new(Verdict::Allow, left_after, retry, reset)
    }

    /// Returns the time until `entry` no longer counts. An entry from the future, left by a clock that stepped back,
    /// counts as made now: nobody waits longer than a period.
    fn expires_after(&self, entry: Timestamp, now: Timestamp) -> Nanos {
        (entry.min(now) + self.period).since(now)
    }
}

/// The part of a log that one decision needs, for a store that keeps the log elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// The number of entries that are younger than the period.
    pub live: u64,
    /// The newest entry that still counts.
    pub newest: Option<Timestamp>,
    /// The one that [`SlidingLog::excess`] counts up to from the oldest, if there are so many.
    pub in_the_way: Option<Timestamp>,
}

/// Timestamps in ascending order, whatever order they came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    entries: Entries,
    expires_at: Timestamp,
}

impl SlidingLogState {
    /// Makes a log of these entries that expires at this moment. `keep` is the most entries that any of its readers
    /// wanted kept.
    pub fn restored(entries: &[Timestamp], keep: usize, expires_at: Timestamp) -> Self {
        let mut log = Self { entries: Entries::default(), expires_at };
        log.entries.keep_at_least(keep);
        log.entries.make_room(entries.len() as u64, entries.len() as u64);
        entries.iter().for_each(|entry| log.entries.insert(*entry));
        log
    }

    /// Returns the entries, the oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Timestamp> + '_ {
        (0..self.len()).map(|index| self.entries.get(index).unwrap_or_default())
    }

    /// Returns the most entries that any of its readers wanted kept.
    pub fn keep(&self) -> usize {
        self.entries.keep()
    }

    /// Adds an entry in time order and keeps the newest `keep`. An entry counts while it is younger than `span`, so the
    /// log expires a `span` after its newest entry. If readers pass different numbers, the largest hold until the log
    /// expires.
    pub fn record(&mut self, at: Timestamp, keep: usize, span: Nanos) {
        let longest = self.entries.newest().map_or(span, |newest| self.expires_at.since(newest).max(span));
        let keep = self.entries.keep_at_least(keep);
        if self.entries.len() >= keep {
            // The oldest makes way, unless that is the new one.
            if self.entries.get(0).is_none_or(|oldest| at < oldest) {
                return;
            }
            self.entries.drop_oldest(1);
        }
        self.entries.make_room(1, keep as u64);
        self.entries.insert(at);
        self.expires_at = self.entries.newest().map_or(Timestamp::EPOCH, |newest| newest + longest);
    }

    /// Returns the number of entries after [`record`](Self::record).
    pub fn len_after_record(&self, keep: usize) -> usize {
        (self.entries.len() + 1).min(self.entries.keep().max(keep))
    }

    /// Forgets everything, but keeps its room.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.expires_at = Timestamp::EPOCH;
    }

    /// Returns true if there are `count` entries that are all younger than `span`. A count of zero is always reached.
    pub fn reached(&self, count: usize, span: Nanos, now: Timestamp) -> bool {
        count == 0 || self.nth_newest(count).is_some_and(|entry| now.since(entry) < span)
    }

    /// Returns when the next request is allowed after a burst, at one per interval; `None` means now.
    pub fn next_allowed(&self, limit: &TokenBucket, now: Timestamp) -> Option<Timestamp> {
        let oldest = self.nth_newest(usize::try_from(limit.burst()).ok()?)?;
        limit.next_allowed_by_log(oldest, self.nth_newest(1)?, now)
    }

    /// Returns the number of entries that are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the log was never used.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// The `n`-th newest entry, the newest being the first.
    pub fn nth_newest(&self, n: usize) -> Option<Timestamp> {
        self.entries.get(self.entries.len().checked_sub(n)?)
    }

    /// Returns the index of the first entry that is younger than the limit's period.
    fn first_live(&self, limit: &SlidingLog, now: Timestamp) -> usize {
        if now >= self.expires_at {
            // A sweep may have dropped the log, so it counts for nothing even if the period is longer now.
            return self.entries.len();
        }
        self.entries.partition_point(|entry| now.since(entry) >= limit.period)
    }

    /// Summarizes the log for a charge of `cost`.
    fn glimpse(&self, limit: &SlidingLog, cost: u64, now: Timestamp) -> LogSummary {
        let first = self.first_live(limit, now);
        let live = self.entries.len() - first;
        let in_the_way = usize::try_from(limit.excess(live as u64, cost)).unwrap_or(usize::MAX);
        LogSummary {
            live: live as u64,
            newest: self.entries.newest().filter(|_| live > 0),
            in_the_way: if (1..=live).contains(&in_the_way) {
                self.entries.get(first + in_the_way - 1)
            } else {
                None
            },
        }
    }

    /// Drops what no longer counts, and pulls entries from the future back to now.
    fn tidy(&mut self, limit: &SlidingLog, now: Timestamp) {
        self.entries.drop_oldest(self.first_live(limit, now));
        self.entries.pull_back_to(now);
        self.expires_at = self.entries.newest().map_or(Timestamp::EPOCH, |newest| newest + limit.period);
    }
}

impl Bucket for SlidingLogState {
    type Limit = SlidingLog;

    fn check(&self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Decision {
        limit.decide(&self.glimpse(limit, cost, now), cost, now)
    }

    fn charge(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Decision {
        let decision = self.check(limit, cost, now);
        self.tidy(limit, now);
        if decision.allowed() && cost > 0 {
            self.entries.make_room(cost, limit.count);
            self.entries.append(now, cost);
            self.expires_at = now + limit.period;
        }
        decision
    }

    fn refund(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Option<Refund> {
        self.tidy(limit, now);
        let before = self.entries.len();
        let given_back = usize::try_from(cost).unwrap_or(usize::MAX).min(before);
        self.entries.truncate(before - given_back);
        self.tidy(limit, now);
        let remaining = limit.count.saturating_sub(self.entries.len() as u64);
        Some(Refund::new(given_back > 0, remaining, self.expires_at.since(now)))
    }

    fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    const GROWS: bool = true;

    fn entries(&self) -> usize {
        self.entries.len()
    }

    fn room(&self) -> usize {
        self.entries.room()
    }

    fn entries_after(&self, limit: &SlidingLog, cost: u64, now: Timestamp) -> usize {
        let live = self.entries.len() - self.first_live(limit, now);
        let fits = cost <= limit.count.saturating_sub(live as u64);
        live + if fits { usize::try_from(cost).unwrap_or(usize::MAX) } else { 0 }
    }

    fn trim(&mut self, now: Timestamp) {
        let Some(span) = self.entries.newest().map(|newest| self.expires_at.since(newest)) else { return };
        self.entries.drop_oldest(self.entries.partition_point(|entry| now.since(entry) >= span));
    }
}
