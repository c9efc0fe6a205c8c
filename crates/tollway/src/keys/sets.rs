//! A small memory of many keys: sets of four, each as long as a cache line.
//!
//! A key belongs in one set, or in its neighbour if that is full; when both are, one of the four gives way. Once the sets are
//! well used there are twice as many, up to a bound. What was known then moves over as it is asked for: nothing ever stops
//! to move all of it.

use memmap2::MmapMut;

use crate::hash::BucketHash;
use crate::prefetch::prefetch;

const WAYS: usize = 4;
const SETS_MIN: usize = 1 << 8;
/// Two million keys, in 32 MiB.
const SETS_MAX: usize = 1 << 19;

/// What stands for a key, 96 bits of it, in the place where the code is added; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u128);

const CODE: u128 = 0xffff_ffff;

impl Tag {
    #[inline]
    pub(super) fn of(hash: BucketHash) -> Self {
        let (high, low) = hash.halves();
        Self((u128::from(high) << 64 | u128::from(low)) & !CODE | (1 << 32))
    }
}

#[derive(Debug)]
pub(super) struct Sets {
    now: Level,
    /// From before there were more sets.
    before: Option<Level>,
}

#[derive(Debug)]
struct Level {
    /// A tag and a code each; 0 is nobody.
    entries: Entries,
    sets: usize,
    taken: usize,
    /// Which of a full set gives way next.
    turn: usize,
}

impl Sets {
    pub(super) fn new() -> Self {
        Self { now: Level::new(SETS_MIN), before: None }
    }

    #[inline]
    pub(super) fn prefetch(&self, tag: Tag) {
        prefetch(&raw const self.now.entries.as_slice()[self.now.place(tag)]);
    }

    #[inline]
    pub(super) fn get(&mut self, tag: Tag) -> Option<u32> {
        self.now.get(tag).or_else(|| self.fetch(tag))
    }

    /// Takes over what was known before.
    #[cold]
    fn fetch(&mut self, tag: Tag) -> Option<u32> {
        let code = self.before.as_ref()?.get(tag)?;
        self.insert(tag, code);
        Some(code)
    }

    pub(super) fn insert(&mut self, tag: Tag, code: u32) {
        if self.now.is_crowded() && self.now.sets < SETS_MAX {
            let more = Level::new(self.now.sets * 2);
            self.before = Some(std::mem::replace(&mut self.now, more));
        }
        self.now.insert(tag, code);
        // By now whoever is still asked for has moved over.
        if self.before.as_ref().is_some_and(|before| before.taken < self.now.taken) {
            self.before = None;
        }
    }
}

impl Level {
    fn new(sets: usize) -> Self {
        Self { entries: Entries::new(sets * WAYS), sets, taken: 0, turn: 0 }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of sets")]
    fn place(&self, tag: Tag) -> usize {
        ((tag.0 >> 64) as usize & (self.sets - 1)) * WAYS
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the code is the lowest 32 bits")]
    fn get(&self, tag: Tag) -> Option<u32> {
        let (entries, home) = (self.entries.as_slice(), self.place(tag));
        let look = |place: usize| entries[place..][..WAYS].iter().find(|entry| **entry & !CODE == tag.0);
        look(home).or_else(|| look(home ^ WAYS)).map(|entry| *entry as u32)
    }

    fn insert(&mut self, tag: Tag, code: u32) {
        let home = self.place(tag);
        self.turn = (self.turn + 1) % WAYS;
        let entries = self.entries.as_mut_slice();
        let places = (home..home + WAYS).chain((home ^ WAYS)..(home ^ WAYS) + WAYS);
        let own = places.clone().find(|place| entries[*place] & !CODE == tag.0);
        let place =
            own.or_else(|| places.clone().find(|place| entries[*place] == 0)).unwrap_or(home + self.turn);
        self.taken += usize::from(entries[place] == 0);
        entries[place] = tag.0 | u128::from(code);
    }

    /// Half full: beyond it too many sets overflow.
    fn is_crowded(&self) -> bool {
        self.taken >= self.sets * WAYS / 2
    }
}

/// Zeros to begin with, where a page begins: in pages of two megabytes if the system gives such, because with small ones
/// the processor looks longer for the page than for what is on it.
#[derive(Debug)]
enum Entries {
    Mapped(MmapMut),
    /// Where nothing can be mapped.
    Allocated(Vec<u128>),
}

impl Entries {
    fn new(entries: usize) -> Self {
        match MmapMut::map_anon(entries * size_of::<u128>()) {
            Ok(map) => {
                #[cfg(target_os = "linux")]
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

    fn tag(number: u64) -> Tag {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Tag::of(BucketHash::of(mixed ^ (mixed >> 29), number))
    }

    #[test]
    fn nearly_all_of_what_fits_is_remembered_and_nothing_is_made_up() {
        let mut sets = Sets::new();
        let keys = 50_000;
        for number in 0..keys {
            assert_eq!(sets.get(tag(number)), None);
            sets.insert(tag(number), u32::try_from(number % 1_000).unwrap_or(0));
        }
        // What was put in before the sets became more, and not asked for since, is forgotten.
        let known = (0..keys).filter(|number| sets.get(tag(*number)).is_some()).count();
        assert!(known > 10_000, "only {known} of {keys} are known");
        // Twice: the sets may become more once again.
        for number in (0..keys).chain(0..keys) {
            sets.insert(tag(number), 7);
        }
        let known = (0..keys).filter(|number| sets.get(tag(*number)) == Some(7)).count();
        assert!(known > 49_900, "only {known} of {keys} are known");
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        let mut level = Level::new(SETS_MIN);
        for number in 0..100_000 {
            level.insert(tag(number), 0);
        }
        assert!(level.taken <= SETS_MIN * WAYS && level.entries.as_slice().len() == SETS_MIN * WAYS);
    }
}
