//! The smoothed rate, in literal doubles.

use tollway_core::algorithm::SmoothedRate;
use tollway_core::{Decision, Timestamp, Verdict};

use super::{decision, wide};

/// A naive model that computes a rate in literal doubles.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NaiveSmoothedRate {
    state: Option<(Timestamp, f64)>,
    forgotten_at: i128,
}

impl NaiveSmoothedRate {
    /// Returns the rate with this request in it.
    pub(crate) fn rate(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> f64 {
        let Some((time, rate)) = self.state.filter(|_| wide(now) < self.forgotten_at) else { return 0.0 };
        let i = if now > time { (wide(now) - wide(time)) as f64 / 1e9 } else { 1e-9 };
        let x = i / (limit.period().get() as f64 / 1e9);
        let a = f64::exp(-x);
        (1.0 - a) / x * cost as f64 + a * rate
    }

    pub(crate) fn over(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> bool {
        self.rate(limit, cost, now) >= limit.limit()
    }

    /// The decision but for its `retry_after`, which is judged by what happens then.
    pub(crate) fn spend(&mut self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Decision {
        let (rate, over) = (self.rate(limit, cost, now), self.over(limit, cost, now));
        if cost > 0 && (!over || limit.strict()) {
            self.store(limit, rate, now);
        } else if let Some((time, rate)) = self.state
            && time > now
        {
            self.store(limit, rate, now);
        }
        let verdict = if over { Verdict::Deny } else { Verdict::Allow };
        let remaining = if over { 0 } else { whole_below(limit.limit() - rate) };
        decision(verdict, remaining, 0, (self.forgotten_at - wide(now)).max(0))
    }

    #[expect(clippy::cast_possible_truncation, reason = "cut to 292 years")]
    fn store(&mut self, limit: &SmoothedRate, rate: f64, now: Timestamp) {
        self.state = Some((now, rate));
        // After 25 periods, or as many as one request takes to be below a limit under one; 40 times that from a million
        // on; and nothing takes longer than 292 years.
        let periods = (f64::ceil(1.0 / limit.limit()) as i128).saturating_add(1).max(25);
        let span = periods.saturating_mul(i128::from(limit.period().get())).min(i128::from(i64::MAX) / 40);
        self.forgotten_at = wide(now) + span * if rate >= 1e6 { 40 } else { 1 };
    }
}

/// Returns the largest whole number below `room`.
#[expect(clippy::cast_possible_truncation, reason = "rates are at most 2^53")]
fn whole_below(room: f64) -> i128 {
    let whole = room.floor() as i128;
    if whole as f64 == room { whole - 1 } else { whole }
}
