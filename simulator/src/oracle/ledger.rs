//! Compares what every id was granted with `burst + rate * d` for every time d.
//!
//! Adding up every interval would take ever longer. A bucket that leaks at the rate is above the burst exactly if some
//! interval that ends now has seen more than its burst and its rate allow.

use std::rc::Rc;

use foldhash::HashMap;
use tollway::core::algorithm::TokenBucket;
use tollway::core::{Algorithm, Timestamp};

use crate::requests::{Id, LimitName};

/// The most changes of a limit that are remembered for a bucket that is not used.
const CHANGES_MAX: usize = 8;

/// The grants of all ids under token buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    ids: HashMap<(LimitName, Id), Grants>,
    /// Shared with the copies, of which there is one for each round of a journal.
    changes: Rc<HashMap<LimitName, Changes>>,
}

/// The changes of one limit.
#[derive(Clone, Debug, Default)]
struct Changes {
    /// The number of all changes.
    count: usize,
    /// The last of them, with the numbers that the limit has from then on.
    last: Vec<(i128, TokenBucket)>,
}

static NO_CHANGES: Changes = Changes { count: 0, last: Vec::new() };

/// The grants of one id, now and when a crash would have left them.
#[derive(Clone, Copy, Debug)]
struct Grants {
    now: Level,
    /// The level when everything was last safe from a crash; `None` if the id was not asked about since.
    safe: Option<Level>,
}

/// The units that one id was granted and that have not leaked yet, in nanoseconds of its rate.
#[derive(Clone, Copy, Debug)]
struct Level {
    level: i128,
    at: i128,
    /// The number of changes of the limit before that. A change may come at the same moment as a grant, after it.
    changes: usize,
    unit: i128,
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

    /// Takes over the numbers of a request that was not granted, and that found a bucket written under others: it has
    /// moved the bucket, so the numbers before do not find it as though they had never been away.
    pub(crate) fn carry_over(&mut self, key: (LimitName, Id), algorithm: &Algorithm, now: Timestamp) {
        if let Algorithm::TokenBucket(limit) = algorithm
            && self.ids.get(&key).is_some_and(|grants| grants.now.unit != unit(limit))
        {
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

    /// Changes the numbers of a limit: what was used stays used, up to what the new numbers hold. Numbers that come
    /// back before an id is seen again find it as though they had never been away.
    pub(crate) fn change(&mut self, limit: LimitName, algorithm: &Algorithm, now: Timestamp) {
        let Algorithm::TokenBucket(numbers) = algorithm else { return };
        let changes = Rc::make_mut(&mut self.changes).entry(limit).or_default();
        changes.count += 1;
        changes.last.push((now.as_nanos().into(), *numbers));
        let surplus = changes.last.len().saturating_sub(CHANGES_MAX);
        changes.last.drain(..surplus);
    }

    /// Says that everything so far is safe from a crash.
    pub(crate) fn saved(&mut self) {
        self.ids.values_mut().for_each(|grants| grants.safe = None);
    }

    /// Allows for a crash: each id may be as it was when everything was last safe, also under the numbers that its
    /// limit had then, at whose rate it goes on.
    pub(crate) fn crashed(&mut self) {
        for grants in self.ids.values_mut() {
            grants.now = grants.safe.take().unwrap_or(grants.now);
        }
    }

    /// Takes over what another ledger knows of one id.
    pub(crate) fn adopt(&mut self, other: &Self, key: (LimitName, Id)) {
        match other.ids.get(&key) {
            Some(grants) => drop(self.ids.insert(key, *grants)),
            None => drop(self.ids.remove(&key)),
        }
    }

    /// Returns the grants of an id as they are now, under these numbers.
    fn at(&mut self, key: (LimitName, Id), limit: &TokenBucket, now: Timestamp) -> &mut Level {
        let (now, unit) = (i128::from(now.as_nanos()), unit(limit));
        let changes = self.changes.get(key.0).unwrap_or(&NO_CHANGES);
        let new = Level { level: 0, at: now, changes: changes.count, unit };
        let Grants { now: grants, safe } = self.ids.entry(key).or_insert(Grants { now: new, safe: None });
        safe.get_or_insert(*grants);
        let later = (changes.count - grants.changes).min(changes.last.len());
        let later = &changes.last[changes.last.len() - later..];
        grants.changes = changes.count;
        if later.len() == CHANGES_MAX && !later.iter().any(|(_, numbers)| self::unit(numbers) == grants.unit)
        {
            // Its bucket may be forgotten: not more than eight changes are remembered.
            grants.level = 0;
        }
        let same = later.iter().rposition(|(_, numbers)| self::unit(numbers) == grants.unit);
        for (at, numbers) in &later[same.map_or(0, |same| same + 1)..] {
            grants.leak_until(*at);
            grants.hold_to(numbers);
        }
        grants.leak_until(now);
        grants.hold_to(limit);
        grants
    }
}

impl Level {
    fn leak_until(&mut self, now: i128) {
        self.level = (self.level - (now - self.at).max(0)).max(0);
        self.at = self.at.max(now);
    }

    /// Takes over other numbers: as many units stay used, up to a burst.
    fn hold_to(&mut self, limit: &TokenBucket) {
        let unit = unit(limit);
        if self.unit != unit {
            self.level = self.level * unit / self.unit;
            self.unit = unit;
        }
        self.level = self.level.min(unit * i128::from(limit.burst()));
    }
}

fn unit(limit: &TokenBucket) -> i128 {
    i128::from(limit.period().get()) / i128::from(limit.count())
}
