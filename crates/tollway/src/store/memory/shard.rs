//! Shards: each a lock and what it guards, one table for each algorithm.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use tollway_core::Timestamp;
use tollway_core::algorithm::{Bucket, QuotaState, SlidingLogState, SmoothedRateState, TokenBucketState};

use super::table::{Growth, NEAR, Slot, SweepResult, Table};
use crate::hash::BucketHash;
use crate::prefetch::prefetch;

/// All of them, a power of two.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// Where each shard's buckets are, for each algorithm, side by side so that knowing it costs no cache miss of its own.
    places: [Box<[TableLocation]>; TABLES],
}

/// Aligned so that two shards never share a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(SpinMutex<Tables, SpinThenYield>);

/// For prefetching without the lock. Stale while the buckets move, which costs a cache miss and nothing else.
#[derive(Debug, Default)]
struct TableLocation {
    slots: AtomicPtr<u8>,
    homes: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) token_buckets: Table<TokenBucketState>,
    pub(super) sliding_logs: Table<SlidingLogState>,
    pub(super) smoothed_rates: Table<SmoothedRateState>,
    pub(super) quotas: Table<QuotaState>,
    sweep: Cursor,
}

/// Where the sweep is in this shard.
#[derive(Debug, Default)]
struct Cursor {
    table: usize,
    slot: usize,
}

const TABLES: usize = 4;

/// A bucket that has a table in every shard.
pub(super) trait HasTable: Bucket {
    /// The place of its table among them.
    const SHELF: usize;

    fn table(tables: &mut Tables) -> &mut Table<Self>;
}

macro_rules! shelve {
    ($($shelf:literal $bucket:ty: $table:ident;)*) => {$(
        impl HasTable for $bucket {
            const SHELF: usize = $shelf;

            #[inline]
            fn table(tables: &mut Tables) -> &mut Table<Self> {
                &mut tables.$table
            }
        }
    )*};
}
shelve! {
    0 TokenBucketState: token_buckets;
    1 SlidingLogState: sliding_logs;
    2 SmoothedRateState: smoothed_rates;
    3 QuotaState: quotas;
}

pub(super) type Guard<'a> = SpinMutexGuard<'a, Tables>;

/// How to wait for a lock that is held for some tens of nanoseconds: look again, and now and then let others run, in
/// case it is the holder that has no core.
#[derive(Debug)]
struct SpinThenYield;

impl RelaxStrategy for SpinThenYield {
    fn relax() {
        thread_local! {
            static LOOKS: Cell<u32> = const { Cell::new(0) };
        }
        let looks = LOOKS.get().wrapping_add(1);
        LOOKS.set(looks);
        if looks.is_multiple_of(LOOKS_PER_YIELD) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// What a processor fetches at a time.
const CACHE_LINE: usize = 64;

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

impl Shards {
    /// So many shards, whose tables are meant to hold up to `reserve` buckets each.
    pub(super) fn new(shards: usize, reserve: usize) -> Self {
        let shard = |_| Shard(SpinMutex::new(Tables::new(reserve)));
        Self {
            shards: (0..shards).map(shard).collect(),
            places: std::array::from_fn(|_| (0..shards).map(|_| TableLocation::default()).collect()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// The number of the shard that `hash` belongs to.
    #[inline]
    pub(super) fn number(&self, hash: BucketHash) -> usize {
        hash.shard(self.shards.len())
    }

    #[inline]
    pub(super) fn lock(&self, number: usize) -> Guard<'_> {
        self.shards[number].0.lock()
    }

    /// Fetches the cache lines where the bucket of `hash` is likely to be.
    #[inline]
    pub(super) fn prefetch_bucket<B: HasTable>(&self, hash: BucketHash) {
        let place = &self.places[B::SHELF][self.number(hash)];
        let home = hash.home(place.homes.load(Ordering::Relaxed));
        let first = place.slots.load(Ordering::Relaxed).wrapping_add(home * size_of::<Slot<B>>());
        let near = NEAR * size_of::<Slot<B>>();
        // Of two lines the first and the last are all there is; of more, each is asked for.
        let rest = if near > 2 * CACHE_LINE { near } else { near - CACHE_LINE };
        for offset in (0..rest).step_by(CACHE_LINE) {
            prefetch(first.wrapping_add(offset));
        }
        prefetch(first.wrapping_add(near - 1));
    }

    /// Fetches the lock of the shard of `hash`. Not for one that is taken next: another thread may be using it.
    #[inline]
    pub(super) fn prefetch_lock(&self, hash: BucketHash) {
        prefetch(&raw const self.shards[self.number(hash)]);
    }

    /// Says where the buckets of a shard are now, after some were added or dropped.
    pub(super) fn note_places(&self, number: usize, tables: &mut Tables) {
        self.note_place::<TokenBucketState>(number, tables);
        self.note_place::<SlidingLogState>(number, tables);
        self.note_place::<SmoothedRateState>(number, tables);
        self.note_place::<QuotaState>(number, tables);
    }

    pub(super) fn note_place<B: HasTable>(&self, number: usize, tables: &mut Tables) {
        let (slots, homes) = B::table(tables).place();
        let (slots, place) = (slots.cast::<u8>(), &self.places[B::SHELF][number]);
        // Only if it changed: other shards' places are on the same cache line.
        if place.homes.load(Ordering::Relaxed) != homes
            || !std::ptr::eq(place.slots.load(Ordering::Relaxed), slots)
        {
            place.slots.store(slots.cast_mut(), Ordering::Relaxed);
            place.homes.store(homes, Ordering::Relaxed);
        }
    }

    /// Drops what is silent among the next `slots` slots of one table, and says whether the shard is done. One with nothing
    /// in it, or in use, is passed over: a sweep can wait, a decision cannot.
    pub(super) fn sweep(&self, number: usize, slots: usize, now: Timestamp) -> (SweepResult, bool) {
        let in_use_or_empty =
            (SweepResult { looked_at: 0, dropped: 0, next: None, growth: Growth::default() }, true);
        let Some(mut tables) = self.shards[number].0.try_lock() else { return in_use_or_empty };
        if tables.are_empty() {
            tables.sweep = Cursor::default();
            return in_use_or_empty;
        }
        let swept = tables.sweep(slots, now);
        self.note_places(number, &mut tables);
        let finished = swept.next.is_none() && tables.sweep.table == 0;
        (swept, finished)
    }
}

impl Tables {
    fn new(reserve: usize) -> Self {
        Self {
            token_buckets: Table::new(reserve),
            sliding_logs: Table::new(reserve),
            smoothed_rates: Table::new(reserve),
            quotas: Table::new(reserve),
            sweep: Cursor::default(),
        }
    }

    fn are_empty(&self) -> bool {
        self.token_buckets.is_empty()
            && self.sliding_logs.is_empty()
            && self.smoothed_rates.is_empty()
            && self.quotas.is_empty()
    }

    fn sweep(&mut self, slots: usize, now: Timestamp) -> SweepResult {
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
