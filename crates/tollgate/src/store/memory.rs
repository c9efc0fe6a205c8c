//! Buckets in this process's memory.

use std::collections::HashMap;
use std::sync::Mutex;

use tollgate_core::algorithm::{Bucket, Quota, SlidingLog, SmoothedRate, TokenBucket};
use tollgate_core::{Algorithm, Bill, Charge, Decision, Kind, Refund, Timestamp};

/// How many buckets are kept unless configured otherwise.
pub const MAX_BUCKETS: usize = 10_000_000;

/// What the store holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Buckets held now.
    pub buckets: usize,
    /// The most that may be held.
    pub max_buckets: usize,
    /// Buckets dropped because they had nothing to say any more.
    pub swept: u64,
    /// New ids that found no room.
    pub refused_full: u64,
}

/// The memory store.
pub struct Memory {
    buckets: Mutex<HashMap<(u64, Vec<u8>), AnyBucket>>,
    max_buckets: usize,
}

#[derive(Clone)]
enum AnyBucket {
    TokenBucket(TokenBucket),
    SlidingLog(SlidingLog),
    SmoothedRate(SmoothedRate),
    Quota(Quota),
}

impl Memory {
    /// A store of at most this many buckets.
    pub fn new(max_buckets: usize) -> Self {
        Self { buckets: Mutex::default(), max_buckets }
    }

    /// Settles each bill on its own: all its charges or none, in one step no other caller can split. Appends a decision each.
    pub fn settle(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        self.check(bills, now, decisions);
        let fresh = decisions.len() - bills.len();
        for (bill, decision) in bills.iter().zip(&decisions[fresh..]) {
            if decision.allowed() {
                bill.charges().iter().filter(|charge| charge.kind() != Kind::CheckOnly).for_each(|charge| {
                    self.with(charge, |bucket, algorithm| bucket.take(algorithm, charge.cost(), now));
                });
            }
        }
    }

    /// The decisions that [`settle`](Self::settle) would make, remembering nothing.
    pub fn check(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        for bill in bills {
            let answers: Vec<_> = bill
                .charges()
                .iter()
                .map(|charge| {
                    self.with(charge, |bucket, algorithm| {
                        bucket.clone().charge(algorithm, charge.cost(), now)
                    })
                    .unwrap_or(Decision::UNLIMITED)
                })
                .collect();
            decisions.push(bill.answer(&answers));
        }
    }

    /// Gives back what a charge took.
    pub fn refund(&self, charge: &Charge<'_>, now: Timestamp) -> Refund {
        self.with(charge, |bucket, algorithm| bucket.refund(algorithm, charge.cost(), now))
            .flatten()
            .unwrap_or(Refund::UNLIMITED)
    }

    /// Forgets the bucket of a charge.
    pub fn reset(&self, charge: &Charge<'_>) {
        let key = (charge.limit().fingerprint(), charge.id().to_vec());
        self.buckets.lock().expect("not poisoned").remove(&key);
    }

    /// What the store holds and has done.
    pub fn census(&self) -> Census {
        let buckets = self.buckets.lock().expect("not poisoned").len();
        Census { buckets, max_buckets: self.max_buckets, ..Census::default() }
    }

    fn with<T>(&self, charge: &Charge<'_>, f: impl FnOnce(&mut AnyBucket, &Algorithm) -> T) -> Option<T> {
        let algorithm = charge.algorithm()?;
        let key = (charge.limit().fingerprint(), charge.id().to_vec());
        let mut buckets = self.buckets.lock().expect("not poisoned");
        Some(f(buckets.entry(key).or_insert_with(|| AnyBucket::new(algorithm)), algorithm))
    }
}

macro_rules! each {
    ($self:expr, $algorithm:expr, |$bucket:ident, $limit:ident| $body:expr, $mismatch:expr) => {
        match ($self, $algorithm) {
            (AnyBucket::TokenBucket($bucket), Algorithm::TokenBucket($limit)) => $body,
            (AnyBucket::SlidingLog($bucket), Algorithm::SlidingLog($limit)) => $body,
            (AnyBucket::SmoothedRate($bucket), Algorithm::SmoothedRate($limit)) => $body,
            (AnyBucket::Quota($bucket), Algorithm::Quota($limit)) => $body,
            (stale, algorithm) => {
                *stale = AnyBucket::new(algorithm);
                $mismatch
            }
        }
    };
}

impl AnyBucket {
    fn new(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::TokenBucket(_) => Self::TokenBucket(TokenBucket::default()),
            Algorithm::SlidingLog(_) => Self::SlidingLog(SlidingLog::default()),
            Algorithm::SmoothedRate(_) => Self::SmoothedRate(SmoothedRate::default()),
            Algorithm::Quota(_) => Self::Quota(Quota::default()),
        }
    }

    fn charge(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        each!(&mut *self, algorithm, |b, limit| b.charge(limit, cost, now), self.charge(algorithm, cost, now))
    }

    fn take(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) {
        each!(&mut *self, algorithm, |b, limit| b.take(limit, cost, now), self.take(algorithm, cost, now));
    }

    fn refund(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Option<Refund> {
        each!(&mut *self, algorithm, |b, limit| b.refund(limit, cost, now), self.refund(algorithm, cost, now))
    }
}
