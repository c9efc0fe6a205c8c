//! A four-way set-associative cache: sets of four entries, each set as long as a cache line.
//!
//! A key belongs in one set, or in the neighbouring one if that is full. If both are full, one of the four entries is
//! evicted. When half of the entries are taken, the cache doubles, up to a bound. Old entries move over when they are
//! looked up; moving all of them at once would stall the request that made the cache grow.

use memmap2::MmapMut;

use crate::hash::BucketHash;
use crate::prefetch::prefetch;

const WAYS: usize = 4;
const SETS_MIN: usize = 1 << 8;
/// The most sets that a cache grows to: two million keys, in 32 MiB.
const SETS_MAX: usize = 1 << 19;

/// The upper 96 bits of an entry, which identify a key. The lower 32 bits are left free for the code. A tag is never
/// zero, because a zero entry is an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyTag(u128);

const CODE: u128 = 0xffff_ffff;

impl KeyTag {
    #[inline]
    pub(super) fn of(hash: BucketHash) -> Self {
        // The set is chosen by the lowest bits of the upper half: those of the tag are marks.
        let (tag, shard) = hash.halves();
        Self((u128::from(shard) << 64 | u128::from(tag)) & !CODE | (1 << 32))
    }
}

#[derive(Debug)]
pub(super) struct SetCache {
    current: CacheTable,
    /// The smaller table from before the last growth, until its entries have moved over.
    previous: Option<CacheTable>,
}

#[derive(Debug)]
struct CacheTable {
    /// Entries of a tag and a code each; 0 is an empty entry.
    entries: EntryMemory,
    sets: usize,
    taken: usize,
    /// The entry of a full set that is evicted next.
    next_evicted: usize,
}

impl SetCache {
    pub(super) fn new() -> Self {
        Self { current: CacheTable::new(SETS_MIN), previous: None }
    }

    #[inline]
    pub(super) fn prefetch(&self, tag: KeyTag) {
        prefetch(&raw const self.current.entries.as_slice()[self.current.place(tag)]);
    }

    #[inline]
    pub(super) fn get(&mut self, tag: KeyTag) -> Option<u32> {
        self.current.get(tag).or_else(|| self.carry_over(tag))
    }

    /// Looks up a key in the previous table, and moves its entry to the current one.
    #[cold]
    fn carry_over(&mut self, tag: KeyTag) -> Option<u32> {
        let code = self.previous.as_ref()?.get(tag)?;
        self.insert(tag, code);
        Some(code)
    }

    pub(super) fn insert(&mut self, tag: KeyTag, code: u32) {
        if self.current.is_half_full() && self.current.sets < SETS_MAX {
            let more = CacheTable::new(self.current.sets * 2);
            self.previous = Some(std::mem::replace(&mut self.current, more));
        }
        self.current.insert(tag, code);
        // By now the keys that are still in use have moved over.
        if self.previous.as_ref().is_some_and(|before| before.taken < self.current.taken) {
            self.previous = None;
        }
    }
}

impl CacheTable {
    fn new(sets: usize) -> Self {
        Self { entries: EntryMemory::new(sets * WAYS), sets, taken: 0, next_evicted: 0 }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of sets")]
    fn place(&self, tag: KeyTag) -> usize {
        ((tag.0 >> 64) as usize & (self.sets - 1)) * WAYS
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the code is the lowest 32 bits")]
    fn get(&self, tag: KeyTag) -> Option<u32> {
        let (entries, home) = (self.entries.as_slice(), self.place(tag));
        let look = |place: usize| entries[place..][..WAYS].iter().find(|entry| **entry & !CODE == tag.0);
        look(home).or_else(|| look(home ^ WAYS)).map(|entry| *entry as u32)
    }

    fn insert(&mut self, tag: KeyTag, code: u32) {
        let home = self.place(tag);
        self.next_evicted = (self.next_evicted + 1) % WAYS;
        let entries = self.entries.as_mut_slice();
        let places = (home..home + WAYS).chain((home ^ WAYS)..(home ^ WAYS) + WAYS);
        let own = places.clone().find(|place| entries[*place] & !CODE == tag.0);
        let place = own
            .or_else(|| places.clone().find(|place| entries[*place] == 0))
            .unwrap_or(home + self.next_evicted);
        self.taken += usize::from(entries[place] == 0);
        entries[place] = tag.0 | u128::from(code);
    }

    /// Returns whether half of the entries are taken. Beyond that too many sets overflow.
    fn is_half_full(&self) -> bool {
        self.taken >= self.sets * WAYS / 2
    }
}

/// The memory of a table, all zeros at first and aligned to pages. It asks for pages of two megabytes: with small pages
/// the processor spends more time on looking up the page (a TLB miss) than on the entry itself.
#[derive(Debug)]
enum EntryMemory {
    Mapped(MmapMut),
    /// Ordinary memory, which is used where mapping fails.
    Allocated(Vec<u128>),
}

impl EntryMemory {
    fn new(entries: usize) -> Self {
        match MmapMut::map_anon(entries * size_of::<u128>()) {
            Ok(map) => {
                // Miri has no pages to advise about.
                #[cfg(all(target_os = "linux", not(miri)))]
                let _ = map.advise(memmap2::Advice::HugePage);
                Self::Mapped(map)
            }
            Err(_) => Self::Allocated(vec![0; entries]),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u128] {
        match self {
            Self::Mapped(map) => bytemuck::cast_slice(map),
            Self::Allocated(entries) => entries,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [u128] {
        match self {
            Self::Mapped(map) => bytemuck::cast_slice_mut(map),
            Self::Allocated(entries) => entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(number: u64) -> KeyTag {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        KeyTag::of(BucketHash::of(mixed ^ (mixed >> 29), number))
    }

    #[test]
    fn nearly_all_of_what_fits_is_remembered_and_nothing_is_made_up() {
        let mut sets = SetCache::new();
        let keys = if cfg!(miri) { 1_000 } else { 50_000 };
        for number in 0..keys {
            sets.prefetch(tag(number));
            assert_eq!(sets.get(tag(number)), None);
            sets.insert(tag(number), u32::try_from(number % 1_000).unwrap_or(0));
        }
        // Entries from before a growth that were not looked up since are forgotten.
        let known = (0..keys).filter(|number| sets.get(tag(*number)).is_some()).count();
        assert!(known as u64 > keys / 5, "only {known} of {keys} are known");
        // Twice, because the cache may grow once more in between.
        for number in (0..keys).chain(0..keys) {
            sets.insert(tag(number), 7);
        }
        let known = (0..keys).filter(|number| sets.get(tag(*number)) == Some(7)).count();
        assert!(known as u64 >= keys - keys / 500, "only {known} of {keys} are known");
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        let mut level = CacheTable::new(SETS_MIN);
        for number in 0..if cfg!(miri) { 2_000 } else { 100_000 } {
            level.insert(tag(number), 0);
        }
        assert!(level.taken <= SETS_MIN * WAYS && level.entries.as_slice().len() == SETS_MIN * WAYS);
    }
}
