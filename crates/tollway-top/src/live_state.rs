//! Holds what a server has sent: the last snapshot, and the points of the last minutes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tollway_client::http::{LimitState, LiveCounts, LiveEvent, LiveHistory, LiveSnapshot, SubjectKind};

/// The number of seconds that totals are kept for.
const POINTS: usize = 600;
/// The number of points of one limit.
const LIMIT_POINTS: usize = 60;
/// The seconds of one point of a limit that the history did not have.
const LIMIT_STEP: u64 = 10;
/// The number of limits whose points are kept: more than a server sends.
const LIMITS_MAX: usize = 1_000;

/// Keeps the figures of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveState {
    totals: VecDeque<LiveCounts>,
    limits: HashMap<(SubjectKind, String), LimitPoints>,
    snapshot: Option<LiveSnapshot>,
    lost: Option<LostConnection>,
}

/// The reason why no events arrive.
#[derive(Clone, Debug)]
pub(crate) struct LostConnection {
    /// The time when the last event had not come.
    pub(crate) since: Duration,
    pub(crate) reason: String,
}

/// Counts the decisions of one limit over the last minutes.
#[derive(Clone, Debug)]
struct LimitPoints {
    step: u64,
    decided: VecDeque<u64>,
    /// The point that is not complete yet, and its seconds.
    current: u64,
    seconds: u64,
}

impl LiveState {
    /// Takes an event of the server. It also tells that the connection is there.
    pub(crate) fn apply(&mut self, event: LiveEvent) {
        self.lost = None;
        match event {
            LiveEvent::History(history) => self.replace_history(&history),
            LiveEvent::Snapshot(snapshot) => {
                self.append(&snapshot);
                self.snapshot = Some(*snapshot);
            }
        }
    }

    /// Remembers that the connection ended. Everything else stays.
    pub(crate) fn set_lost(&mut self, reason: String, now: Duration) {
        let since = self.lost.as_ref().map_or(now, |lost| lost.since);
        self.lost = Some(LostConnection { since, reason });
    }

    pub(crate) const fn lost(&self) -> Option<&LostConnection> {
        self.lost.as_ref()
    }

    pub(crate) const fn snapshot(&self) -> Option<&LiveSnapshot> {
        self.snapshot.as_ref()
    }

    /// Returns the totals of each second, oldest first.
    pub(crate) const fn totals(&self) -> &VecDeque<LiveCounts> {
        &self.totals
    }

    /// Returns the decisions of a limit over the last minutes, oldest first.
    pub(crate) fn points(&self, limit: &LimitState) -> Vec<u64> {
        let points = self.limits.get(&(limit.kind, limit.name.clone()));
        points.map(|points| points.decided.iter().copied().collect()).unwrap_or_default()
    }

    fn replace_history(&mut self, history: &LiveHistory) {
        let LiveHistory { allowed, denied, degraded, limits, .. } = history;
        let seconds = allowed.iter().zip(denied).zip(degraded);
        let totals: Vec<_> = seconds
            .map(|((allowed, denied), degraded)| LiveCounts {
                allowed: *allowed,
                denied: *denied,
                degraded: *degraded,
            })
            .collect();
        self.totals = newest(&totals, POINTS);
        let points = limits.iter().take(LIMITS_MAX).map(|limit| {
            let decided = newest(&limit.decided, LIMIT_POINTS);
            let points = LimitPoints { step: limit.step.max(1), decided, current: 0, seconds: 0 };
            ((limit.kind, limit.name.clone()), points)
        });
        self.limits = points.collect();
    }

    /// Appends a snapshot to the history, which a server sends only once.
    fn append(&mut self, snapshot: &LiveSnapshot) {
        push_bounded(&mut self.totals, snapshot.totals, POINTS);
        for limit in &snapshot.limits {
            let key = (limit.kind, limit.name.clone());
            if !self.limits.contains_key(&key) && self.limits.len() >= LIMITS_MAX {
                continue;
            }
            let new = || LimitPoints { step: LIMIT_STEP, decided: VecDeque::new(), current: 0, seconds: 0 };
            self.limits.entry(key).or_insert_with(new).push(decided(&limit.counts));
        }
    }
}

impl LimitPoints {
    fn push(&mut self, decided: u64) {
        self.current = self.current.saturating_add(decided);
        self.seconds += 1;
        if self.seconds >= self.step {
            push_bounded(&mut self.decided, self.current, LIMIT_POINTS);
            (self.current, self.seconds) = (0, 0);
        }
    }
}

/// Returns the number of requests that were decided.
pub(crate) const fn decided(counts: &LiveCounts) -> u64 {
    counts.allowed.saturating_add(counts.denied)
}

fn newest<T: Copy>(points: &[T], max: usize) -> VecDeque<T> {
    points[points.len().saturating_sub(max)..].iter().copied().collect()
}

fn push_bounded<T>(points: &mut VecDeque<T>, point: T, max: usize) {
    if points.len() >= max {
        points.pop_front();
    }
    points.push_back(point);
}
