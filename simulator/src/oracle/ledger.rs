//! Compares what every id was granted with `burst + rate * d` for every time d.
//!
//! Adding up every interval would take ever longer. A bucket that leaks at the rate is above the burst exactly if some
//! interval that ends now has seen more than its burst and its rate allow.

use std::collections::HashMap;

use tollway::core::algorithm::TokenBucket;
use tollway::core::{Algorithm, Timestamp};

use crate::requests::{Id, LimitName};

/// The grants of all ids under token buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    ids: HashMap<(LimitName, Id), Grants>,
}

/// The units that one id was granted and that have not leaked yet, in nanoseconds of its rate.
#[derive(Clone, Copy, Debug)]
struct Grants {
    level: i128,
    at: i128,
    unit: i128,
    /// The part that was granted since everything was last safe from a crash.
    unsafe_level: i128,
}

impl Ledger {
    /// Adds a grant, or says by how much it is too much.
    pub(crate) fn grant(
        &mut self,
        key: (LimitName, Id),
        algorithm: &Algorithm,
        cost: u64,
        now: Timestamp,
    ) -> Result<(), String> {
        let Algorithm::TokenBucket(limit) = algorithm else { return Ok(()) };
        let (unit, burst) = (unit(limit), i128::from(limit.burst()));
        let grants = self.at(key, limit, now);
        grants.level += unit * i128::from(cost);
        grants.unsafe_level += unit * i128::from(cost);
        if grants.level <= unit * burst {
            return Ok(());
        }
        let excess = grants.level - unit * burst;
        let what = format!("{}:{} got {} ns more than burst + rate * d ({limit:?})", key.0, key.1, excess);
        // What follows is judged from here on.
        grants.level = unit * burst;
        Err(what)
    }

    /// Takes over the numbers of a process that was denied: from now on the id's bucket fills at their rate.
    pub(crate) fn touch(&mut self, key: (LimitName, Id), algorithm: &Algorithm, now: Timestamp) {
        if let Algorithm::TokenBucket(limit) = algorithm {
            let _ = self.at(key, limit, now);
        }
    }

    /// Takes a grant back.
    pub(crate) fn refund(&mut self, key: (LimitName, Id), algorithm: &Algorithm, cost: u64, now: Timestamp) {
        let Algorithm::TokenBucket(limit) = algorithm else { return };
        let grants = self.at(key, limit, now);
        grants.level = (grants.level - grants.unit * i128::from(cost)).max(0);
    }

    /// Forgets what an id was granted.
    pub(crate) fn reset(&mut self, key: (LimitName, Id)) {
        self.ids.remove(&key);
    }

    /// Changes the numbers of a limit: what was used stays used, up to what the new numbers hold.
    pub(crate) fn change(&mut self, limit: LimitName, algorithm: &Algorithm, now: Timestamp) {
        let Algorithm::TokenBucket(numbers) = algorithm else { return };
        let keys: Vec<_> = self.ids.keys().filter(|key| key.0 == limit).copied().collect();
        for key in keys {
            let _ = self.at(key, numbers, now);
        }
    }

    /// Says that everything so far is safe from a crash.
    pub(crate) fn saved(&mut self) {
        self.ids.values_mut().for_each(|grants| grants.unsafe_level = 0);
    }

    /// Allows for a crash: of each id, what was not safe may be granted again, and never more than one burst.
    pub(crate) fn crashed(&mut self) {
        for grants in self.ids.values_mut() {
            // A level is never above one burst.
            grants.level = (grants.level - grants.unsafe_level).max(0);
            grants.unsafe_level = 0;
        }
    }

    /// Returns the grants of an id as they are now, under these numbers.
    fn at(&mut self, key: (LimitName, Id), limit: &TokenBucket, now: Timestamp) -> &mut Grants {
        let (now, unit) = (i128::from(now.as_nanos()), unit(limit));
        let new = Grants { level: 0, at: now, unit, unsafe_level: 0 };
        let grants = self.ids.entry(key).or_insert(new);
        grants.level = (grants.level - (now - grants.at).max(0)).max(0);
        grants.at = grants.at.max(now);
        if grants.unit != unit {
            grants.level = grants.level * unit / grants.unit;
            grants.unsafe_level = grants.unsafe_level * unit / grants.unit;
            grants.unit = unit;
        }
        grants.level = grants.level.min(unit * i128::from(limit.burst()));
        grants
    }
}

fn unit(limit: &TokenBucket) -> i128 {
    i128::from(limit.period().get()) / i128::from(limit.count())
}
