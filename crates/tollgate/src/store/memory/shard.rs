//! A lock and what it guards: one table for each algorithm.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use tollgate_core::Timestamp;
use tollgate_core::algorithm::{Quota, SlidingLog, SmoothedRate, TokenBucket};

use super::hash::BucketHash;
use super::prefetch::prefetch;
use super::table::{Slot, Swept, Table};

/// One part of the store. Aligned so that two shards never share a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shard {
    tables: SpinMutex<Tables, Patience>,
    /// Where the token buckets are, for prefetching without the lock. Stale while they move, which costs a cache miss.
    slots: AtomicPtr<Slot<TokenBucket>>,
    homes: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) token_buckets: Table<TokenBucket>,
    pub(super) sliding_logs: Table<SlidingLog>,
    pub(super) smoothed_rates: Table<SmoothedRate>,
    pub(super) quotas: Table<Quota>,
    sweep: Cursor,
}

/// Where the sweep is in this shard.
#[derive(Debug, Default)]
struct Cursor {
    table: usize,
    slot: usize,
}

const TABLES: usize = 4;

pub(super) type Guard<'a> = SpinMutexGuard<'a, Tables>;

/// How to wait for a lock that is held for some tens of nanoseconds: look again, and now and then let others run, in
/// case it is the holder that has no core.
#[derive(Debug)]
struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        thread_local! {
            static LOOKS: Cell<u32> = const { Cell::new(0) };
        }
        let looks = LOOKS.get().wrapping_add(1);
        LOOKS.set(looks);
        if looks.is_multiple_of(LOOKS_PER_YIELD) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// A microsecond or so: many times as long as a lock is held by somebody who runs.
const LOOKS_PER_YIELD: u32 = 64;

/// Runs the same expression on the table and the numbers of whichever algorithm it is.
macro_rules! with_table {
    ($tables:expr, $algorithm:expr, |$table:ident, $limit:ident| $body:expr) => {
        match $algorithm {
            Algorithm::TokenBucket($limit) => {
                let $table = &mut $tables.token_buckets;
                $body
            }
            Algorithm::SlidingLog($limit) => {
                let $table = &mut $tables.sliding_logs;
                $body
            }
            Algorithm::SmoothedRate($limit) => {
                let $table = &mut $tables.smoothed_rates;
                $body
            }
            Algorithm::Quota($limit) => {
                let $table = &mut $tables.quotas;
                $body
            }
        }
    };
}
pub(super) use with_table;

impl Shard {
    /// A shard whose tables are meant to hold up to `reserve` buckets.
    pub(super) fn new(reserve: usize) -> Self {
        let tables = Tables {
            token_buckets: Table::new(reserve),
            sliding_logs: Table::new(reserve),
            smoothed_rates: Table::new(reserve),
            quotas: Table::new(reserve),
            sweep: Cursor::default(),
        };
        Self { tables: SpinMutex::new(tables), slots: AtomicPtr::default(), homes: AtomicUsize::new(0) }
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_> {
        self.tables.lock()
    }

    /// Fetches the cache lines where the token bucket of `hash` is likely to be.
    #[inline]
    pub(super) fn prefetch(&self, hash: BucketHash) {
        let slots = self.slots.load(Ordering::Relaxed);
        prefetch(slots.wrapping_add(hash.home(self.homes.load(Ordering::Relaxed))));
    }

    /// Says anew where the token buckets are, after some were added or dropped.
    #[inline]
    pub(super) fn note_place(&self, tables: &Tables) {
        let (slots, homes) = tables.token_buckets.place();
        self.slots.store(slots.cast_mut(), Ordering::Relaxed);
        self.homes.store(homes, Ordering::Relaxed);
    }

    /// Drops what is silent among the next `slots` slots of one table, and says whether the shard is done. One in use is
    /// passed over: a sweep can wait, a decision cannot.
    pub(super) fn sweep(&self, slots: usize, now: Timestamp) -> (Swept, bool) {
        let Some(mut tables) = self.tables.try_lock() else {
            return (Swept { looked_at: 0, dropped: 0, next: None }, true);
        };
        let swept = tables.sweep(slots, now);
        self.note_place(&tables);
        let finished = swept.next.is_none() && tables.sweep.table == 0;
        (swept, finished)
    }
}

impl Tables {
    fn sweep(&mut self, slots: usize, now: Timestamp) -> Swept {
        let start = self.sweep.slot;
        let swept = match self.sweep.table {
            0 => self.token_buckets.sweep(start, slots, now),
            1 => self.sliding_logs.sweep(start, slots, now),
            2 => self.smoothed_rates.sweep(start, slots, now),
            _ => self.quotas.sweep(start, slots, now),
        };
        self.sweep = match swept.next {
            Some(slot) => Cursor { table: self.sweep.table, slot },
            None => Cursor { table: (self.sweep.table + 1) % TABLES, slot: 0 },
        };
        swept
    }
}
