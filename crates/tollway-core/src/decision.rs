//! Answers to charges and refunds: allow or deny, what is left, and how long to wait.

use std::time::Duration;

use crate::time::Nanos;

/// A decision about one charge, or about one whole bill: what a caller gets back.
///
/// Stores and codecs count in nanoseconds, so the two times are fields in [`Nanos`]. Applications use
/// [`retry_after`](Self::retry_after) and [`reset_after`](Self::reset_after), which return a [`Duration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not looked at limits nothing"]
#[non_exhaustive]
pub struct Decision {
    /// Says if the request is allowed, and on what ground.
    pub verdict: Verdict,
    /// The whole units that are left in the bucket after this request.
    pub remaining: u64,
    /// The time until the same request would be allowed (again) if nobody else came; [`Nanos::FOREVER`] if no passing
    /// of time would allow it.
    pub retry_nanos: Nanos,
    /// The time until the bucket is like one that was never used, or until the window ends that a fixed window is in.
    pub reset_nanos: Nanos,
    /// The index of the charge that decided, counted from 0 in the order of the bill. Its rules are counted after its
    /// charges: [`decider`](Self::decider) tells one from the other.
    pub charge: usize,
    /// True if the store gave no answer, so that the limit's `on_store_failure` decided.
    pub degraded: bool,
}

impl Decision {
    /// The decision that is made where no limit applies.
    pub const UNLIMITED: Self = Self::new(Verdict::Unlimited, u64::MAX, Nanos::ZERO, Nanos::ZERO);

    /// Makes a decision about the first charge of a bill, by a store that answered.
    #[inline]
    pub const fn new(verdict: Verdict, remaining: u64, retry: Nanos, reset: Nanos) -> Self {
        Self { verdict, remaining, retry_nanos: retry, reset_nanos: reset, charge: 0, degraded: false }
    }

    /// Returns true if the request may pass.
    #[inline]
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.verdict.allowed()
    }

    /// Returns the time until the same request would be allowed (again) if nobody else came; `None` if no passing of
    /// time would allow it.
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        if self.retry_nanos.is_forever() { None } else { Some(self.retry_nanos.as_duration()) }
    }

    /// Returns the time until the bucket is like one that was never used.
    #[inline]
    pub const fn reset_after(&self) -> Duration {
        self.reset_nanos.as_duration()
    }

    /// Returns the same decision with another verdict.
    #[inline]
    pub const fn with_verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// Returns the same decision as the answer to charge `index` of its bill.
    #[inline]
    pub const fn with_charge(mut self, index: usize) -> Self {
        self.charge = index;
        self
    }

    /// Returns the same decision, marked as made without an answer of the store.
    #[inline]
    pub const fn with_degraded(mut self) -> Self {
        self.degraded = true;
        self
    }

    /// Returns what decided a bill of these charges.
    pub fn decider<'a, C>(&self, charges: &'a [C]) -> Decider<'a, C> {
        match charges.get(self.charge) {
            Some(charge) => Decider::Charge(charge),
            None => Decider::Rule(self.charge - charges.len()),
        }
    }

    /// Returns true if this decision is stricter than `other`: denied where the other is allowed, else by the longer
    /// wait, else by the fewer left, else made by a rule or a limit where the other has none.
    #[inline]
    #[must_use]
    pub fn is_stricter_than(&self, other: &Self) -> bool {
        if self.allowed() != other.allowed() {
            return other.allowed();
        }
        if self.retry_nanos != other.retry_nanos {
            return self.retry_nanos > other.retry_nanos;
        }
        if self.remaining != other.remaining {
            return self.remaining < other.remaining;
        }
        other.verdict == Verdict::Unlimited && self.verdict != Verdict::Unlimited
    }

    /// Returns the stricter of two decisions, and this one of equals.
    #[inline]
    pub fn stricter(self, other: Self) -> Self {
        if other.is_stricter_than(&self) { other } else { self }
    }
}

/// The part of a bill that decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider<'a, C> {
    /// This charge decided.
    Charge(&'a C),
    /// The rule at this index decided, counted from 0 in the order of the bill.
    Rule(usize),
}

/// Says if a request is allowed or denied, and on what ground.
///
/// It can be matched exhaustively: a new verdict breaks the code that turns verdicts into statuses or metrics, which is
/// better than to count it as something else. [`allowed`](Self::allowed) is enough for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Verdict {
    /// The request fits.
    Allow,
    /// The request does not fit now.
    Deny,
    /// No limit applies to this id.
    Unlimited,
    /// There was no room to remember a new id, and its limit says to allow then.
    AllowFull,
    /// There was no room to remember a new id, and its limit says to deny then.
    DenyFull,
    /// The store gave no answer, and the limit says to allow then.
    AllowUnreachable,
    /// The store gave no answer, and the limit says to deny then. Nobody is over a limit.
    DenyUnreachable,
}

impl Verdict {
    /// Returns true if the request may pass.
    #[inline]
    #[must_use]
    pub const fn allowed(self) -> bool {
        match self {
            Self::Allow | Self::Unlimited | Self::AllowFull | Self::AllowUnreachable => true,
            Self::Deny | Self::DenyFull | Self::DenyUnreachable => false,
        }
    }
}

/// The answer to a refund: what was given back, and what the bucket has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Refund {
    /// False if there was nothing to give back.
    pub refunded: bool,
    /// The whole units that are in the bucket now.
    pub remaining: u64,
    /// The time until the bucket is like one that was never used, or until the window ends that a fixed window is in.
    pub reset_nanos: Nanos,
}

impl Refund {
    /// The answer to a refund where no limit applies.
    pub const UNLIMITED: Self = Self::new(false, u64::MAX, Nanos::ZERO);

    /// Makes the answer to a refund.
    #[inline]
    pub const fn new(refunded: bool, remaining: u64, reset: Nanos) -> Self {
        Self { refunded, remaining, reset_nanos: reset }
    }

    /// Returns the time until the bucket is like one that was never used.
    #[inline]
    pub const fn reset_after(&self) -> Duration {
        self.reset_nanos.as_duration()
    }

    /// Joins the answers to two refunds of one bill: refunded if either was, with the least left and the longest time.
    pub fn and(self, other: Self) -> Self {
        Self {
            refunded: self.refunded || other.refunded,
            remaining: self.remaining.min(other.remaining),
            reset_nanos: self.reset_nanos.max(other.reset_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_passing_of_time_is_no_time_to_wait() {
        let deny = |retry| Decision::new(Verdict::Deny, 0, retry, Nanos::new(7));
        assert_eq!(deny(Nanos::new(5)).retry_after(), Some(Duration::from_nanos(5)));
        assert_eq!(deny(Nanos::FOREVER).retry_after(), None);
        assert_eq!(deny(Nanos::FOREVER).reset_after(), Duration::from_nanos(7));
    }

    #[test]
    fn two_refunds_gave_something_back_if_one_of_them_did() {
        let refund = |refunded, remaining, reset| Refund::new(refunded, remaining, Nanos::new(reset));
        for (one, other) in [(true, false), (false, true), (true, true), (false, false)] {
            let both = refund(one, 3, 20).and(refund(other, 5, 10));
            assert_eq!(both, refund(one || other, 3, 20), "{one} {other}");
            assert_eq!(both.reset_after(), Duration::from_nanos(20));
        }
    }
}
