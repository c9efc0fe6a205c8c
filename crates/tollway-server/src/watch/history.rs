//! Keeps the rates of the last ten minutes, for those who start to watch.

use std::collections::{BTreeMap, VecDeque};

use tollway_wire::http::{LimitHistory, LiveCounts, LiveHistory, SubjectKind};

use crate::metrics::DecisionCounts;

/// The number of seconds that totals are kept for, one point each.
const POINTS: usize = 600;
/// The number of points of one limit.
const LIMIT_POINTS: usize = 60;
/// The seconds of one point of a limit.
const LIMIT_STEP: u64 = 10;
/// The number of limits, rules and domains whose points are kept. Others are in the totals only. A limit that decided
/// nothing in all of its points makes room: a reload may have removed it.
pub(super) const LIMITS: usize = 500;

/// Holds a value for each limit, rule and domain, by its kind and its name.
pub(super) type ByName<T> = BTreeMap<(SubjectKind, Box<str>), T>;

/// The rates of the last ten minutes.
#[derive(Debug, Default)]
pub(crate) struct History {
    until: f64,
    seconds: u64,
    totals: VecDeque<LiveCounts>,
    limits: ByName<LimitPoints>,
}

#[derive(Debug, Default)]
struct LimitPoints {
    points: VecDeque<Point>,
    /// The point that is not complete yet.
    current: Point,
}

/// The requests of some seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    decided: u64,
    denied: u64,
}

impl History {
    /// Adds the counts of one second, which ended at this time.
    pub(super) fn push(&mut self, at: f64, second: &DecisionCounts) {
        self.until = at;
        push_bounded(&mut self.totals, second.totals, POINTS);
        for (name, counts) in &second.by_name {
            let has_counted = counts.allowed + counts.denied > 0;
            if !self.limits.contains_key(name) && (!has_counted || self.limits.len() >= LIMITS) {
                continue;
            }
            let current = &mut self.limits.entry(name.clone()).or_default().current;
            current.decided += counts.allowed + counts.denied;
            current.denied += counts.denied;
        }
        self.seconds += 1;
        if self.seconds.is_multiple_of(LIMIT_STEP) {
            for limit in self.limits.values_mut() {
                let point = std::mem::take(&mut limit.current);
                push_bounded(&mut limit.points, point, LIMIT_POINTS);
            }
            self.limits.retain(|_, limit| limit.points.iter().any(|point| point.decided > 0));
        }
    }

    /// Returns the counts of the last second.
    pub(super) fn last(&self) -> LiveCounts {
        self.totals.back().copied().unwrap_or_default()
    }

    /// Returns the share of a limit's requests that were denied; `None` if there were none.
    pub(super) fn denied_share(&self, name: &(SubjectKind, Box<str>)) -> Option<f64> {
        let limit = self.limits.get(name)?;
        let points = || limit.points.iter().chain([&limit.current]);
        let decided: u64 = points().map(|point| point.decided).sum();
        let denied: u64 = points().map(|point| point.denied).sum();
        (decided > 0).then(|| denied as f64 / decided as f64)
    }

    pub(super) fn report(&self) -> LiveHistory {
        let totals = |of: fn(&LiveCounts) -> u64| self.totals.iter().map(of).collect();
        let limits = self.limits.iter().map(|((kind, name), limit)| LimitHistory {
            name: name.to_string(),
            kind: *kind,
            step: LIMIT_STEP,
            decided: limit.points.iter().map(|point| point.decided).collect(),
            denied: limit.points.iter().map(|point| point.denied).collect(),
        });
        LiveHistory {
            step: 1,
            until: self.until,
            allowed: totals(|counts| counts.allowed),
            denied: totals(|counts| counts.denied),
            degraded: totals(|counts| counts.degraded),
            limits: limits.collect(),
        }
    }
}

pub(super) fn push_bounded<T>(points: &mut VecDeque<T>, point: T, max: usize) {
    if points.len() == max {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn counts(name: &str, allowed: u64, denied: u64) -> DecisionCounts {
        let totals = LiveCounts { allowed, denied, degraded: 0 };
        DecisionCounts { totals, by_name: ByName::from([((SubjectKind::Limit, name.into()), totals)]) }
    }

    #[test]
    fn the_last_ten_minutes_are_kept() {
        let mut history = History::default();
        for second in 0..1_000 {
            history.push(second as f64, &counts("a", second, 1));
        }
        let report = history.report();
        assert_eq!((report.allowed.len(), report.allowed[0], report.until), (600, 400, 999.0));
        assert_eq!(history.last(), LiveCounts { allowed: 999, denied: 1, degraded: 0 });
        let [limit] = &report.limits[..] else { panic!("{report:?}") };
        assert_eq!((limit.decided.len(), limit.denied.len(), limit.denied[0]), (60, 60, 10));
        assert_eq!(limit.decided[59], (990..1_000).sum::<u64>() + 10);
    }

    #[test]
    fn the_number_of_limits_is_bounded_and_silent_ones_take_no_place() {
        let mut history = History::default();
        let many = |name: &str, allowed| {
            let each = (0..LIMITS).flat_map(|index| counts(&format!("{name}{index}"), allowed, 0).by_name);
            let totals = LiveCounts { allowed: allowed * LIMITS as u64, ..LiveCounts::default() };
            DecisionCounts { totals, by_name: each.collect() }
        };
        history.push(0.0, &many("silent", 0));
        history.push(0.0, &many("busy", 1));
        history.push(0.0, &many("late", 1));
        let names = |history: &History| -> BTreeSet<_> {
            history
                .report()
                .limits
                .iter()
                .map(|limit| limit.name.trim_end_matches(char::is_numeric).to_owned())
                .collect()
        };
        assert_eq!((history.report().limits.len(), names(&history)), (LIMITS, ["busy".to_owned()].into()));
        assert_eq!(history.report().allowed, [0, 500, 500]);
        // Those that are silent for ten minutes make room.
        for _ in 0..610 {
            history.push(0.0, &many("busy", 0));
        }
        history.push(0.0, &many("late", 1));
        assert_eq!(history.report().limits.len(), LIMITS);
        assert_eq!(names(&history), ["late".to_owned()].into());
    }

    #[test]
    fn the_share_of_denials_is_over_everything_that_is_kept() {
        let mut history = History::default();
        let name = (SubjectKind::Limit, "a".into());
        assert_eq!(history.denied_share(&name), None);
        (0..7).for_each(|_| history.push(0.0, &counts("a", 3, 1)));
        assert_eq!(history.denied_share(&name), Some(0.25));
        (0..1_000).for_each(|_| history.push(0.0, &counts("a", 0, 0)));
        assert_eq!(history.denied_share(&name), None);
    }
}
