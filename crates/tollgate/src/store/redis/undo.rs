//! What a charge took, for the script that takes it back.

use tollgate_core::algorithm::{Bucket, SmoothedRate};
use tollgate_core::{Nanos, Timestamp};

use super::script::Draft;
use super::seen::Seen;

/// What was taken, and what must be known besides to take back that and nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    /// A span, and the moment from which on the bucket would have been full without it.
    Span(Nanos, Timestamp),
    /// So many entries of this moment.
    Entries(u64, Timestamp),
    /// So much of the rate, of this period, at this moment, to this rate; and what there was before.
    Rate { added: f64, period: Nanos, at: Timestamp, to: f64, before: SmoothedRate },
    /// So many of the window that ends at this moment.
    Units(u64, Timestamp),
}

impl Taken {
    /// What a charge of `cost`, or as much of it as fitted, took from a bucket; `None` is nothing.
    pub(super) fn from(seen: &Seen<'_>, cost: u64, now: Timestamp) -> Option<Self> {
        match seen {
            Seen::TokenBucket(before, limit) => {
                let full_at = before.silent_at().clamp(now, now + limit.fill_time());
                let mut after = *before;
                after.take(limit, cost, now);
                let span = after.silent_at().since(full_at);
                (span > Nanos::ZERO).then_some(Self::Span(span, full_at))
            }
            Seen::SlidingLog(before, limit) => {
                let entries = cost.min(limit.count().saturating_sub(before.live));
                (entries > 0).then_some(Self::Entries(entries, now))
            }
            Seen::SmoothedRate(before, limit) => {
                let after = before.measure(limit, cost, now);
                let added = after.rate - before.measure(limit, 0, now).rate;
                let counted = !after.over || limit.strict();
                (counted && cost > 0).then_some(Self::Rate {
                    added,
                    period: limit.period(),
                    at: now,
                    to: after.rate,
                    before: *before,
                })
            }
            Seen::Quota(before, limit) => {
                let mut after = *before;
                after.take(limit, cost, now);
                let used = if before.silent_at() > now { before.counter() } else { 0 };
                let units = after.counter().saturating_sub(used);
                let ends_at = after.silent_at();
                (units > 0 && ends_at > now).then_some(Self::Units(units, ends_at))
            }
        }
    }

    /// The letter of the algorithm, and six values.
    pub(super) fn write(self, draft: Draft) -> Draft {
        match self {
            Self::Span(span, full_at) => {
                draft.arg("b").pair(span.get()).pair(full_at.as_nanos()).arg(&["", ""])
            }
            Self::Entries(entries, at) => draft.arg("l").pair(entries).pair(at.as_nanos()).arg(&["", ""]),
            Self::Units(units, ends_at) => draft.arg("q").pair(units).pair(ends_at.as_nanos()).arg(&["", ""]),
            Self::Rate { added, period, at, to, before } => {
                let (last, rate) = before.last();
                let silent_at = before.silent_at();
                let text = || format!("r{} {rate} {}", last.as_nanos(), silent_at.as_nanos());
                let before = if silent_at > at { text() } else { String::new() };
                draft.arg("r").arg(added).arg(period.as_secs_f64()).pair(at.as_nanos()).arg(to).arg(before)
            }
        }
    }
}
