//! The shards of the memory store: each is a lock around one table for each algorithm.

mod hot_bucket;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use tollway_core::algorithm::{
    FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState, TokenBucketState,
};
use tollway_core::{FormerBuckets, Timestamp};

use self::hot_bucket::HotPlace;
pub(super) use self::hot_bucket::{HotBucket, HotWords};
#[cfg(feature = "journal")]
use super::changes::LastChanges;
#[cfg(feature = "journal")]
use super::journaled::LoadedShard;
use super::slot::StoredBucket;
use super::table::{GROUP, SweepResult, Table};
use crate::hash::{BucketHash, Tag};
#[cfg(feature = "journal")]
use crate::journal::{AnyState, BlockEncoder};
use crate::prefetch::prefetch;

/// All shards of a store. Their number is a power of two.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[Shard]>,
    /// The number of slots that a table is expected to have at most. Only slots up to here are prefetched.
    slots: usize,
    /// The location of every table, outside the locks. They lie side by side, so that a prefetch does not first miss
    /// the cache for the location itself.
    locations: [Box<[TableLocation]>; TABLES],
    /// The moment before which no bucket of a shard expires, in nanoseconds, for each shard. It is written under the
    /// lock of the shard, and read without it: a full store finds out what to sweep without a look at its buckets.
    next_expiries: Box<[AtomicU64]>,
}

/// One shard, which is aligned so that two shards never share a cache line. The hot bucket and the lock share one.
#[derive(Debug)]
#[repr(C, align(64))]
struct Shard {
    hot: HotBucket,
    tables: SpinMutex<Tables, SpinThenYield>,
}

/// The location of a table, which a prefetch reads without the lock. It is stale while the table moves, which costs a
/// cache miss and nothing else.
#[derive(Debug, Default)]
struct TableLocation {
    homes: AtomicUsize,
    /// The address of a table that is one piece of memory.
    slots: AtomicPtr<u8>,
    /// The addresses of the chunks of a table that has had several, as many as a table is expected to have. They are
    /// thin pointers, so that those of all tables stay in the cache.
    chunks: OnceLock<Box<[AtomicPtr<u8>]>>,
}

/// The position that the sweep has reached in a shard.
#[derive(Debug, Default)]
struct SweepPosition {
    table: usize,
    slot: usize,
}

/// A type of bucket that has a table in every shard.
pub(super) trait HasTable: StoredBucket {
    /// The index that its table has in [`Shards::locations`].
    const TABLE_INDEX: usize;

    fn table(tables: &Tables) -> &Table<Self>;

    fn table_mut(tables: &mut Tables) -> &mut Table<Self>;

    #[cfg(feature = "journal")]
    fn list_mut(lists: &mut SlotLists) -> &mut Vec<Self::Slot>;
}

/// Makes the tables of a shard from their list.
macro_rules! tables {
    ($($index:literal $bucket:ty: $table:ident;)*) => {
        /// The tables that a shard has, one for each algorithm.
        ///
        /// The fields have this order in memory: those that a request for a token bucket reads are behind the lock, on
        /// its cache line and the next one.
        #[derive(Debug)]
        #[repr(C)]
        pub(super) struct Tables {
            /// The bucket that the last single request used.
            last_used: Tag,
            $($table: Table<$bucket>,)*
            sweep: SweepPosition,
        }

        /// Lists of slots, one for each table of a shard.
        #[cfg(feature = "journal")]
        #[derive(Default)]
        pub(super) struct SlotLists {
            $($table: Vec<<$bucket as StoredBucket>::Slot>,)*
        }

        #[cfg(feature = "journal")]
        impl SlotLists {
            /// Returns the number of slots in all lists.
            pub(super) fn len(&self) -> usize {
                0 $(+ self.$table.len())*
            }

            /// Passes each list to its table. The lists are empty afterwards.
            pub(super) fn load_into(&mut self, shard: &mut LoadedShard<'_>) {
                $(shard.load::<$bucket>(std::mem::take(&mut self.$table));)*
            }
        }

        const TABLES: usize = [$($index),*].len();
        const _: () = assert!(TABLES <= HotPlace::TABLES_MAX);

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

            #[inline]
            #[cfg(feature = "journal")]
            fn list_mut(lists: &mut SlotLists) -> &mut Vec<Self::Slot> {
                &mut lists.$table
            }
        })*

        impl Tables {
            const fn new() -> Self {
                let sweep = SweepPosition { table: 0, slot: 0 };
                Self { $($table: Table::new(),)* sweep, last_used: Tag::NONE }
            }

            fn are_empty(&self) -> bool {
                $(self.$table.is_empty())&&*
            }

            /// Writes a bucket that was hot to its place.
            fn store_hot(&mut self, place: HotPlace, words: HotWords) {
                $(if place.table == $index && let Some(bucket) = <$bucket>::from_hot(words) {
                    self.$table.store_at(place.slot, bucket);
                })*
            }

            /// Exchanges the lists of changes for empty ones.
            #[cfg(feature = "journal")]
            pub(super) fn swap_changes(&mut self, empty: &mut SlotLists) {
                $(if !self.$table.changes().is_empty() {
                    self.$table.changes().swap(&mut empty.$table);
                })*
            }

            /// Begins to keep lists of changes, or ends them.
            #[cfg(feature = "journal")]
            pub(super) fn set_journaled(&mut self, journaled: bool) {
                let mut changes = SlotLists::default();
                self.swap_changes(&mut changes);
                $(
                    for slot in changes.$table {
                        self.$table.unmark(<$bucket>::tag(&slot).unmarked());
                    }
                    self.$table.changes().turn(journaled);
                )*
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
            fn sweep_table(&mut self, slots: usize, now: Timestamp, former: &FormerBuckets) -> SweepResult {
                let SweepPosition { table, slot } = self.sweep;
                let has_former = table == TokenBucketState::TABLE_INDEX;
                let dropped_at =
                    |expires_at| if has_former { former.dropped_at(expires_at) } else { expires_at };
                match table {
                    $($index => self.$table.sweep(slot, slots, now, dropped_at),)*
                    _ => SweepResult::default(),
                }
            }
        }

        impl Shards {
            /// Passes changes of a shard to a journal, and leaves the lists empty.
            #[cfg(feature = "journal")]
            pub(super) fn encode_changes(
                &self,
                number: usize,
                changes: &mut SlotLists,
                last: &mut LastChanges,
                out: &mut BlockEncoder,
            ) {
                $(self.encode_changes_of::<$bucket>(number, &mut changes.$table, last, out);)*
            }

            /// Passes all buckets of a shard to a journal.
            #[cfg(feature = "journal")]
            pub(super) fn collect_all(&self, number: usize, out: &mut BlockEncoder) {
                $(self.collect_all_in::<$bucket>(number, out);)*
            }

            /// Passes all buckets of a shard to `visit`.
            #[cfg(feature = "journal")]
            pub(super) fn visit_all(&self, number: usize, visit: &mut dyn FnMut(Tag, AnyState)) {
                $(self.visit_all_in::<$bucket>(number, visit);)*
            }

            /// Updates the published locations of a shard's tables, after buckets were dropped.
            fn publish_locations(&self, number: usize, tables: &mut Tables) {
                $(self.publish_location_if_moved::<$bucket>(number, tables);)*
                self.publish_next_expiry(number, tables);
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
    /// Returns this many shards, whose tables are expected to have at most `slots` slots.
    pub(super) fn new(shards: usize, slots: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Shard::new()).collect(),
            slots,
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

    /// Locks a shard. Its hot bucket is in its table then, and stays there unless the caller
    /// [keeps it hot](Self::keep_hot).
    #[inline]
    pub(super) fn lock(&self, number: usize) -> TablesGuard<'_> {
        let shard = &self.shards[number];
        let mut tables = shard.tables.lock();
        shard.cool_down(&mut tables);
        tables
    }

    /// Returns the hot bucket of a shard.
    #[inline]
    pub(super) fn hot(&self, number: usize) -> &HotBucket {
        &self.shards[number].hot
    }

    /// Makes the bucket in this slot of a shard the hot one of the shard, unless it has too many words.
    #[inline(never)]
    pub(super) fn keep_hot<B: HasTable>(&self, number: usize, tables: &mut Tables, tag: Tag, slot: usize) {
        if let Some(words) = B::table(tables).get_at(slot).and_then(|bucket| bucket.to_hot()) {
            self.shards[number].hot.put(tag.to_word(), words, HotPlace { table: B::TABLE_INDEX, slot });
        }
    }

    /// Starts to fetch the cache lines of the home of `hash`, in which four buckets of five are, and of the home behind
    /// it, in which nearly all others are. Where homes begin in the middle of a line, the last half line is left out.
    #[inline]
    pub(super) fn prefetch_bucket<B: HasTable>(&self, hash: BucketHash) {
        let first = self.locations[B::TABLE_INDEX][self.number(hash)].home::<B>(hash.tag());
        for offset in (0..2 * GROUP * size_of::<B::Slot>()).step_by(CACHE_LINE) {
            prefetch(first.wrapping_add(offset));
        }
    }

    /// Starts to fetch the lock of the shard of `hash`. Do not use it for a lock that is taken immediately afterwards:
    /// it only adds traffic for the cache line, which another thread may be using.
    #[inline]
    pub(super) fn prefetch_lock(&self, hash: BucketHash) {
        prefetch(&raw const self.shards[self.number(hash)]);
    }

    /// Updates the published location of one table of a shard, and the next expiry of the shard.
    pub(super) fn publish_location<B: HasTable>(&self, number: usize, tables: &mut Tables) {
        self.publish_location_if_moved::<B>(number, tables);
        self.publish_next_expiry(number, tables);
    }

    /// Updates the published location of one table of a shard, if it has one since the last time.
    #[inline]
    fn publish_location_if_moved<B: HasTable>(&self, number: usize, tables: &mut Tables) {
        let table = B::table_mut(tables);
        // Written only if it changed: the locations of other shards are on the same cache line.
        if table.take_moved() {
            self.locations[B::TABLE_INDEX][number].publish(table, self.slots);
        }
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
        self.publish_locations(number, &mut tables);
        swept
    }

    /// Drops the expired buckets among the next `slots` slots of one table, without those of former numbers that are
    /// still needed, and returns whether the whole shard is done. A shard that is empty or locked is skipped: a sweep
    /// can wait, a decision cannot.
    pub(super) fn sweep(
        &self,
        number: usize,
        slots: usize,
        now: Timestamp,
        former: &FormerBuckets,
    ) -> (SweepResult, bool) {
        let in_use_or_empty = (SweepResult::default(), true);
        let shard = &self.shards[number];
        let Some(mut tables) = shard.tables.try_lock() else { return in_use_or_empty };
        shard.cool_down(&mut tables);
        if tables.are_empty() {
            tables.sweep = SweepPosition::default();
            return in_use_or_empty;
        }
        let swept = tables.sweep(slots, now, former);
        self.publish_locations(number, &mut tables);
        let finished = swept.next.is_none() && tables.sweep.table == 0;
        (swept, finished)
    }
}

impl Shard {
    fn new() -> Self {
        Self { hot: HotBucket::new(), tables: SpinMutex::new(Tables::new()) }
    }

    /// Writes the hot bucket, if there is one, to its slot.
    #[inline]
    fn cool_down(&self, tables: &mut Tables) {
        if let Some((words, place)) = self.hot.take() {
            tables.store_hot(place, words);
        }
    }
}

impl TableLocation {
    /// Returns the address of the home that a tag has.
    #[inline]
    fn home<B: HasTable>(&self, tag: Tag) -> *const u8 {
        let homes_per_chunk = B::CHUNK_SLOTS / GROUP;
        let home = tag.home(self.homes.load(Ordering::Relaxed));
        let (memory, home) = match self.chunks.get() {
            Some(chunks) => (chunks.get(home / homes_per_chunk), home % homes_per_chunk),
            None => (Some(&self.slots), home),
        };
        let memory = memory.unwrap_or(&self.slots).load(Ordering::Relaxed);
        // Wrapping: it cannot overflow, and to check that would cost every request. A stale address is only a hint.
        memory.wrapping_add(home.wrapping_mul(GROUP * size_of::<B::Slot>()))
    }

    fn publish<B: HasTable>(&self, table: &Table<B>, slots: usize) {
        let (homes, mut addresses) = table.location();
        let address = |memory: Option<*const B::Slot>| memory.unwrap_or_default().cast_mut().cast();
        let first = addresses.next();
        self.slots.store(address(first), Ordering::Relaxed);
        if homes * GROUP > B::CHUNK_SLOTS || self.chunks.get().is_some() {
            let places = slots.div_ceil(B::CHUNK_SLOTS);
            let chunks = self.chunks.get_or_init(|| (0..places).map(|_| AtomicPtr::default()).collect());
            for (place, chunk) in chunks.iter().zip(first.into_iter().chain(addresses)) {
                place.store(address(Some(chunk)), Ordering::Relaxed);
            }
        }
        self.homes.store(homes, Ordering::Relaxed);
    }
}

impl Tables {
    /// Returns whether the last single request was for this bucket, and notes that this one is.
    #[inline]
    pub(super) fn is_used_again(&mut self, tag: Tag) -> bool {
        std::mem::replace(&mut self.last_used, tag) == tag
    }

    fn sweep(&mut self, slots: usize, now: Timestamp, former: &FormerBuckets) -> SweepResult {
        let swept = self.sweep_table(slots, now, former);
        self.sweep = match swept.next {
            Some(slot) => SweepPosition { table: self.sweep.table, slot },
            None => SweepPosition { table: (self.sweep.table + 1) % TABLES, slot: 0 },
        };
        swept
    }
}

/// The atomics of [`hot_bucket`]; its test has others.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    /// Waits for another thread for a moment.
    pub(super) fn relax() {
        <super::SpinThenYield as spin::RelaxStrategy>::relax();
    }
}
