//! Naive buckets, which follow the definition of their algorithm.

use tollway::core::algorithm::TokenBucket;
use tollway::core::{Algorithm, Decision, Nanos, Refund, Timestamp, Verdict};

use super::naive::{
    NaiveFixedWindow, NaiveQuota, NaiveSlidingLog, NaiveSlidingWindow, NaiveSmoothedRate, NaiveTokenBucket,
};

/// The moment at which a token bucket takes over the numbers that its limit was changed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// At the change, as it turns out at its next use: one process has the bucket.
    Own,
    /// At its next use: processes that share it change their numbers at different moments.
    Shared,
}

/// A bucket that follows the specification of its algorithm, word for word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NaiveBucket {
    TokenBucket(OwnTokenBucket),
    SharedTokenBucket(SharedTokenBucket),
    SlidingLog(NaiveSlidingLog),
    SmoothedRate(NaiveSmoothedRate),
    Quota(NaiveQuota),
    FixedWindow(NaiveFixedWindow),
    SlidingWindow(NaiveSlidingWindow),
}

impl NaiveBucket {
    pub(super) fn new(algorithm: &Algorithm, sharing: Sharing) -> Self {
        match (algorithm, sharing) {
            (Algorithm::TokenBucket(numbers), Sharing::Own) => {
                Self::TokenBucket(OwnTokenBucket { bucket: NaiveTokenBucket::default(), numbers: *numbers })
            }
            (Algorithm::TokenBucket(_), Sharing::Shared) => {
                Self::SharedTokenBucket(SharedTokenBucket::default())
            }
            (Algorithm::SlidingLog(_), _) => Self::SlidingLog(NaiveSlidingLog::default()),
            (Algorithm::SmoothedRate(_), _) => Self::SmoothedRate(NaiveSmoothedRate::default()),
            (Algorithm::Quota(_), _) => Self::Quota(NaiveQuota::default()),
            (Algorithm::FixedWindow(_), _) => Self::FixedWindow(NaiveFixedWindow::default()),
            (Algorithm::SlidingWindow(_), _) => Self::SlidingWindow(NaiveSlidingWindow::default()),
        }
    }

    /// Takes the cost if it fits. The wait of a smoothed rate is not worked out.
    pub(super) fn spend(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        match (self, algorithm) {
            (Self::TokenBucket(own), Algorithm::TokenBucket(limit)) => own.bucket.spend(limit, cost, now),
            (Self::SharedTokenBucket(bucket), Algorithm::TokenBucket(limit)) => {
                bucket.spend(limit, cost, now)
            }
            (Self::SlidingLog(bucket), Algorithm::SlidingLog(limit)) => bucket.spend(limit, cost, now),
            (Self::SmoothedRate(bucket), Algorithm::SmoothedRate(limit)) => bucket.spend(limit, cost, now),
            (Self::Quota(bucket), Algorithm::Quota(limit)) => bucket.spend(limit, cost, now),
            (Self::FixedWindow(bucket), Algorithm::FixedWindow(limit)) => bucket.spend(limit, cost, now),
            (Self::SlidingWindow(bucket), Algorithm::SlidingWindow(limit)) => bucket.spend(limit, cost, now),
            (_, changed) => panic!("no simulation changes an algorithm to {changed:?}"),
        }
    }

    pub(super) fn refund(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Option<Refund> {
        match (self, algorithm) {
            (Self::TokenBucket(own), Algorithm::TokenBucket(limit)) => {
                Some(own.bucket.refund(limit, cost, now))
            }
            (Self::SharedTokenBucket(bucket), Algorithm::TokenBucket(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            (Self::SlidingLog(bucket), Algorithm::SlidingLog(limit)) => Some(bucket.refund(limit, cost, now)),
            (Self::Quota(bucket), Algorithm::Quota(limit)) => Some(bucket.refund(limit, cost, now)),
            (Self::FixedWindow(bucket), Algorithm::FixedWindow(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            (Self::SlidingWindow(bucket), Algorithm::SlidingWindow(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            _ => None,
        }
    }

    /// Returns true if the numbers that its limit has now are to be taken over.
    pub(super) fn is_outdated(&self, algorithm: &Algorithm) -> bool {
        matches!((self, algorithm), (Self::TokenBucket(own), Algorithm::TokenBucket(numbers)) if own.numbers != *numbers)
    }

    /// Takes over the numbers that its limit has now, if one process has the bucket.
    pub(super) fn take_over(&mut self, former: &[FormerNumbers], algorithm: &Algorithm) {
        if let (Self::TokenBucket(own), Algorithm::TokenBucket(numbers)) = (self, algorithm) {
            own.take_over(former, numbers);
        }
    }

    /// Returns true if it was going to be full by now, under the numbers that it was written under.
    pub(super) fn was_full(&self, now: Timestamp) -> bool {
        match self {
            Self::TokenBucket(own) => {
                own.bucket.clone().spend(&own.numbers, 0, now).reset_nanos == Nanos::ZERO
            }
            _ => false,
        }
    }
}

/// The numbers of a limit until a reload, and the moment of that.
pub(super) type FormerNumbers = (Algorithm, Timestamp);

/// A token bucket of one process. The numbers of its limit change at one moment, but it is converted when its id comes
/// back: numbers that come back before that find it as though they had never been away.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnTokenBucket {
    bucket: NaiveTokenBucket,
    /// The numbers that it was written under.
    numbers: TokenBucket,
}

impl OwnTokenBucket {
    fn take_over(&mut self, former: &[FormerNumbers], numbers: &TokenBucket) {
        let is_unit_of = |other: &TokenBucket| unit(other) == unit(&self.numbers);
        if !is_unit_of(numbers) {
            let former = former.iter().filter_map(|(algorithm, until)| match algorithm {
                Algorithm::TokenBucket(numbers) => Some((numbers, *until)),
                _ => None,
            });
            let former: Vec<_> = former.collect();
            match former.iter().rposition(|(numbers, _)| is_unit_of(numbers)) {
                Some(index) => {
                    let later = former[index + 1..].iter().map(|(numbers, _)| *numbers).chain([numbers]);
                    for ((from, until), to) in former[index..].iter().zip(later) {
                        self.bucket.change(from, to, *until);
                    }
                }
                // Its limit was changed too often since.
                None => self.bucket = NaiveTokenBucket::default(),
            }
        }
        self.numbers = *numbers;
    }
}

/// A token bucket of processes that may disagree about its numbers, as `docs/redis.md` describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SharedTokenBucket {
    full_at: i128,
    /// The time of one unit when it was written, and true if more was used than it could hold then.
    unit: i128,
    overdrawn: bool,
}

impl SharedTokenBucket {
    fn spend(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Decision {
        let (now, unit, fill) = (wide(now), unit(limit), fill(limit));
        let mut seen = self.seen(limit, now);
        let owed = seen.full_at - now;
        let after = owed + unit * i128::from(cost);
        let fits = after <= fill;
        if fits && cost > 0 {
            seen.full_at = now + after;
        }
        // What is further ahead than the bucket holds, or was written in another unit, is written anew.
        let was_owed = (self.full_at - now).max(0);
        let changes = was_owed > fill || (was_owed > 0 && self.unit != unit);
        if (fits && cost > 0) || changes {
            *self = seen;
        }
        let left = if fits { fill - after } else { fill - owed };
        let cost_span = unit * i128::from(cost);
        let (verdict, retry, reset) = match fits {
            true => (Verdict::Allow, (cost_span - left).max(0), after),
            false => (Verdict::Deny, after - fill, owed),
        };
        Decision::new(verdict, narrow(left / unit), nanos(retry), nanos(reset))
    }

    fn refund(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Refund {
        let (now, unit, fill) = (wide(now), unit(limit), fill(limit));
        let mut seen = self.seen(limit, now);
        let before = seen.full_at - now;
        let owed = (before - unit * i128::from(cost)).max(0);
        if before > 0 {
            seen.full_at = now + owed;
            *self = seen;
        }
        Refund::new(owed < before, narrow((fill - owed) / unit), nanos(owed))
    }

    /// Returns the bucket under these numbers: as many units are used as before, and a part of one counts whole.
    fn seen(&self, limit: &TokenBucket, now: i128) -> Self {
        let (to, fill, owed) = (unit(limit), fill(limit), (self.full_at - now).max(0));
        if owed == 0 {
            return Self { full_at: now, unit: to, overdrawn: false };
        }
        if self.unit == to {
            return Self { full_at: now + owed.min(fill), ..*self };
        }
        let used = (owed + self.unit - 1) / self.unit * to;
        let (owed, overdrawn) = if self.overdrawn { (fill, false) } else { (used.min(fill), used > fill) };
        Self { full_at: now + owed, unit: to, overdrawn }
    }
}

fn unit(limit: &TokenBucket) -> i128 {
    i128::from(limit.period().get()) / i128::from(limit.count())
}

fn fill(limit: &TokenBucket) -> i128 {
    unit(limit) * i128::from(limit.burst())
}

fn wide(now: Timestamp) -> i128 {
    now.as_nanos().into()
}

fn narrow(number: i128) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn nanos(span: i128) -> Nanos {
    Nanos::new(narrow(span))
}
