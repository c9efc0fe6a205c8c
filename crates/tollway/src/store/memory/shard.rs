//! The shards of the memory store: each is a lock around one table for each algorithm.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use tollway_core::Timestamp;
use tollway_core::algorithm::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState,
};

use super::table::{NEAR_SLOTS, Slot, SweepResult, Table};
use crate::hash::BucketHash;
use crate::prefetch::prefetch;

/// All shards of a store. Their number is a power of two.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// The location of every table, outside the locks. They lie side by side, so that a prefetch does not first miss
    /// the cache for the location itself.
    locations: [Box<[TableLocation]>; TABLES],
    /// The moment before which no bucket of a shard expires, in nanoseconds, for each shard. It is written under the
    /// lock of the shard, and read without it: a full store finds out what to sweep without a look at its buckets.
    next_expiries: Box<[AtomicU64]>,
}

/// One shard, which is aligned so that two shards never share a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(SpinMutex<Tables, SpinThenYield>);

/// The location of a table, which a prefetch reads without the lock. It is stale while the table moves, which costs a
/// cache miss and nothing else.
#[derive(Debug, Default)]
struct TableLocation {
    slots: AtomicPtr<u8>,
    homes: AtomicUsize,
}

/// The position that the sweep has reached in a shard.
#[derive(Debug, Default)]
struct SweepPosition {
    table: usize,
    slot: usize,
}

/// A type of bucket that has a table in every shard.
pub(super) trait HasTable: Bucket {
    /// The index that its table has in [`Shards::locations`].
    const TABLE_INDEX: usize;

    fn table(tables: &Tables) -> &Table<Self>;

    fn table_mut(tables: &mut Tables) -> &mut Table<Self>;
}

/// Makes the tables of a shard from their list.
macro_rules! tables {
    ($($index:literal $bucket:ty: $table:ident;)*) => {
        /// The tables that a shard has, one for each algorithm.
        #[derive(Debug)]
        pub(super) struct Tables {
            $($table: Table<$bucket>,)*
            sweep: SweepPosition,
        }

        const TABLES: usize = [$($index),*].len();

        $(impl HasTable for $bucket {
            const TABLE_INDEX: usize = $index;

            #[inline]
            fn table(tables: &Tables) -> &Table<Self> {
                &tables.$table
            }

            #[inline]
            fn table_mut(tables: &mut Tables) -> &mut Table<Self> {
                &mut tables.$table
            }
        })*

        impl Tables {
            fn new(reserve: usize) -> Self {
                Self { $($table: Table::new(reserve),)* sweep: SweepPosition::default() }
            }

            fn are_empty(&self) -> bool {
                $(self.$table.is_empty())&&*
            }

            fn next_expiry(&self) -> Timestamp {
                Timestamp::MAX$(.min(self.$table.next_expiry()))*
            }

            fn sweep_whole(&mut self, now: Timestamp) -> SweepResult {
                let mut swept = SweepResult::default();
                $(swept.add(&self.$table.sweep_if_due(now));)*
                swept
            }

            /// Sweeps the table that the sweep has reached. There is nothing beyond the last table.
            fn sweep_table(&mut self, slots: usize, now: Timestamp) -> SweepResult {
                let SweepPosition { table, slot } = self.sweep;
                match table {
                    $($index => self.$table.sweep(slot, slots, now),)*
                    _ => SweepResult::default(),
                }
            }
        }

        impl Shards {
            /// Updates the published locations of a shard's tables, after buckets were dropped.
            fn publish_locations(&self, number: usize, tables: &Tables) {
                $(self.publish_location::<$bucket>(number, tables);)*
            }
        }
    };
}
tables! {
    0 TokenBucketState: token_buckets;
    1 SlidingLogState: sliding_logs;
    2 SmoothedRateState: smoothed_rates;
    3 QuotaState: quotas;
    4 FixedWindowState: fixed_windows;
    5 SlidingWindowState: sliding_windows;
}

pub(super) type TablesGuard<'a> = SpinMutexGuard<'a, Tables>;

/// Waits for a lock by spinning, because locks are held for some tens of nanoseconds. Now and then it yields the core:
/// the holder of the lock may be waiting for one.
#[derive(Debug)]
struct SpinThenYield;

impl RelaxStrategy for SpinThenYield {
    fn relax() {
        thread_local! {
            static SPINS: Cell<u32> = const { Cell::new(0) };
        }
        let spins = SPINS.get().wrapping_add(1);
        SPINS.set(spins);
        if spins.is_multiple_of(SPINS_PER_YIELD) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// The bytes that a processor fetches from memory at a time.
const CACHE_LINE: usize = 64;

/// The number of spins before a yield, which take about a microsecond: many times as long as a running thread holds a
/// lock.
const SPINS_PER_YIELD: u32 = 64;

/// Runs an expression with the type of an algorithm's buckets and with the algorithm's numbers.
macro_rules! with_bucket_type {
    ($algorithm:expr, |$bucket:ident, $limit:ident| $body:expr) => {
        with_bucket_type! { @match $algorithm, $bucket, $limit, $body;
            TokenBucket TokenBucketState,
            SlidingLog SlidingLogState,
            SmoothedRate SmoothedRateState,
            Quota QuotaState,
            FixedWindow FixedWindowState,
            SlidingWindow SlidingWindowState
        }
    };
    (@match $algorithm:expr, $bucket:ident, $limit:ident, $body:expr; $($kind:ident $state:ident),*) => {
        match $algorithm {
            $(tollway_core::Algorithm::$kind($limit) => {
                type $bucket = tollway_core::algorithm::$state;
                $body
            })*
        }
    };
}
pub(super) use with_bucket_type;

impl Shards {
    /// Returns this many shards, with tables that can grow to `reserve` slots in place.
    pub(super) fn new(shards: usize, reserve: usize) -> Self {
        let shard = |_| Shard(SpinMutex::new(Tables::new(reserve)));
        Self {
            shards: (0..shards).map(shard).collect(),
            locations: std::array::from_fn(|_| (0..shards).map(|_| TableLocation::default()).collect()),
            next_expiries: (0..shards).map(|_| AtomicU64::new(Timestamp::MAX.as_nanos())).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns the number of the shard that `hash` belongs to.
    #[inline]
    pub(super) fn number(&self, hash: BucketHash) -> usize {
        hash.shard(self.shards.len())
    }

    #[inline]
    pub(super) fn lock(&self, number: usize) -> TablesGuard<'_> {
        self.shards[number].0.lock()
    }

    /// Starts to fetch the cache lines in which the bucket of `hash` is likely to be.
    #[inline]
    pub(super) fn prefetch_bucket<B: HasTable>(&self, hash: BucketHash) {
        let place = &self.locations[B::TABLE_INDEX][self.number(hash)];
        let home = hash.home(place.homes.load(Ordering::Relaxed));
        let first = place.slots.load(Ordering::Relaxed).wrapping_add(home * size_of::<Slot<B>>());
        let near = NEAR_SLOTS * size_of::<Slot<B>>();
        // The slots span two cache lines or more. The last line is fetched below, the loop fetches those before it.
        let rest = if near >= 2 * CACHE_LINE { near } else { near - CACHE_LINE };
        for offset in (0..rest).step_by(CACHE_LINE) {
            prefetch(first.wrapping_add(offset));
        }
        prefetch(first.wrapping_add(near - 1));
    }

    /// Starts to fetch the lock of the shard of `hash`. Do not use it for a lock that is taken immediately afterwards:
    /// it only adds traffic for the cache line, which another thread may be using.
    #[inline]
    pub(super) fn prefetch_lock(&self, hash: BucketHash) {
        prefetch(&raw const self.shards[self.number(hash)]);
    }

    /// Updates the published location of one table of a shard, and the next expiry of the shard.
    pub(super) fn publish_location<B: HasTable>(&self, number: usize, tables: &Tables) {
        let (slots, homes) = B::table(tables).location();
        let (slots, place) = (slots.cast::<u8>(), &self.locations[B::TABLE_INDEX][number]);
        // Written only if it changed: the locations of other shards are on the same cache line.
        if place.homes.load(Ordering::Relaxed) != homes
            || !std::ptr::eq(place.slots.load(Ordering::Relaxed), slots)
        {
            place.slots.store(slots.cast_mut(), Ordering::Relaxed);
            place.homes.store(homes, Ordering::Relaxed);
        }
        self.publish_next_expiry(number, tables);
    }

    /// Updates the published next expiry of a shard.
    pub(super) fn publish_next_expiry(&self, number: usize, tables: &Tables) {
        let (next_expiry, published) = (tables.next_expiry().as_nanos(), &self.next_expiries[number]);
        if published.load(Ordering::Relaxed) != next_expiry {
            published.store(next_expiry, Ordering::Relaxed);
        }
    }

    /// Returns whether a bucket of the shard may have expired.
    pub(super) fn is_due(&self, number: usize, now: Timestamp) -> bool {
        self.next_expiries[number].load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Drops all expired buckets of a shard, for which it waits for the lock.
    pub(super) fn sweep_whole(&self, number: usize, now: Timestamp) -> SweepResult {
        let mut tables = self.lock(number);
        let swept = tables.sweep_whole(now);
        self.publish_locations(number, &tables);
        swept
    }

    /// Drops the expired buckets among the next `slots` slots of one table, and returns whether the whole shard is
    /// done. A shard that is empty or locked is skipped: a sweep can wait, a decision cannot.
    pub(super) fn sweep(&self, number: usize, slots: usize, now: Timestamp) -> (SweepResult, bool) {
        let in_use_or_empty = (SweepResult::default(), true);
        let Some(mut tables) = self.shards[number].0.try_lock() else { return in_use_or_empty };
        if tables.are_empty() {
            tables.sweep = SweepPosition::default();
            return in_use_or_empty;
        }
        let swept = tables.sweep(slots, now);
        self.publish_locations(number, &tables);
        let finished = swept.next.is_none() && tables.sweep.table == 0;
        (swept, finished)
    }
}

impl Tables {
    fn sweep(&mut self, slots: usize, now: Timestamp) -> SweepResult {
        let swept = self.sweep_table(slots, now);
        self.sweep = match swept.next {
            Some(slot) => SweepPosition { table: self.sweep.table, slot },
            None => SweepPosition { table: (self.sweep.table + 1) % TABLES, slot: 0 },
        };
        swept
    }
}
