//! The token buckets that a store keeps although they have expired, because their limit got other numbers.
//!
//! A bucket expires when it is full. If its limit is made slower while something of it is used, it is full later, but
//! it still has the old moment in it until its id comes back and it is converted. A store that dropped it at the old
//! moment would give that id a full bucket. A store finds buckets by hashes and does not know which of them belong to
//! the limit. But all of them expire within the old fill time after the change: what expires then is kept until the new
//! numbers would have filled any bucket.

use std::collections::BTreeMap;

use crate::time::{Nanos, Timestamp};

/// The token buckets that are kept beyond their expiry, of all limits whose numbers were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerBuckets {
    /// The steps in the order of their first moments: a bucket that expires from the first moment of a step on, and
    /// before that of the next step, is kept until the second.
    steps: Vec<(Timestamp, Timestamp)>,
}

/// The buckets that expire in a span of time, and the moment until which they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptExpiries {
    /// Buckets that expire later than this are kept.
    pub(crate) after: Timestamp,
    /// Buckets that expire later than this are not.
    pub(crate) to: Timestamp,
    /// The moment from which on nobody needs them.
    pub(crate) until: Timestamp,
}

impl FormerBuckets {
    /// Returns the moment at which a token bucket can be dropped that expires at this one.
    pub fn dropped_at(&self, expires_at: Timestamp) -> Timestamp {
        let step = self.steps.partition_point(|(from, _)| *from <= expires_at).checked_sub(1);
        step.map_or(expires_at, |step| expires_at.max(self.steps[step].1))
    }

    /// Returns the moment at which all token buckets can be dropped that expire at this one or before.
    pub(crate) fn kept_until(&self, expires_at: Timestamp) -> Timestamp {
        let steps = self.steps.iter().take_while(|(from, _)| *from <= expires_at);
        steps.map(|(_, until)| *until).fold(expires_at, Timestamp::max)
    }
}

impl FromIterator<KeptExpiries> for FormerBuckets {
    fn from_iter<I: IntoIterator<Item = KeptExpiries>>(kept: I) -> Self {
        let mut edges = BTreeMap::<Timestamp, Vec<(Timestamp, bool)>>::new();
        for KeptExpiries { after, to, until } in kept {
            for (edge, begins) in [(after, true), (to, false)] {
                edges.entry(edge + Nanos::new(1)).or_default().push((until, begins));
            }
        }
        let mut open = BTreeMap::<Timestamp, usize>::new();
        let mut steps = Vec::with_capacity(edges.len());
        for (edge, changes) in edges {
            // One that begins and ends at the same edge must begin first.
            for (until, _) in changes.iter().filter(|(_, begins)| *begins) {
                *open.entry(*until).or_default() += 1;
            }
            for (until, _) in changes.iter().filter(|(_, begins)| !*begins) {
                if let Some(count) = open.get_mut(until).filter(|count| **count > 1) {
                    *count -= 1;
                } else {
                    open.remove(until);
                }
            }
            steps.push((edge, open.last_key_value().map_or(Timestamp::EPOCH, |(until, _)| *until)));
        }
        Self { steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(after: u64, to: u64, until: u64) -> KeptExpiries {
        let [after, to, until] = [after, to, until].map(Timestamp::from_nanos);
        KeptExpiries { after, to, until }
    }

    #[test]
    fn buckets_are_kept_as_long_as_any_limit_needs_them() {
        let same_until = [kept(44, 50, 90), kept(46, 54, 90), kept(52, 56, 90)];
        let spans = [&[kept(10, 20, 100), kept(15, 40, 50), kept(15, 18, 300)][..], &same_until].concat();
        let former: FormerBuckets = spans.iter().copied().collect();
        for expires_at in 0..60 {
            let expires_at = Timestamp::from_nanos(expires_at);
            let needed = spans.iter().filter(|kept| kept.after < expires_at && expires_at <= kept.to);
            let expected = needed.map(|kept| kept.until).max().unwrap_or_default();
            assert_eq!(former.dropped_at(expires_at), expected.max(expires_at), "{expires_at:?}");
        }
    }

    #[test]
    fn nothing_is_kept_without_a_change() {
        let at = Timestamp::from_nanos(7);
        assert_eq!(FormerBuckets::default().dropped_at(at), at);
    }
}
