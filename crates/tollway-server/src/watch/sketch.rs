//! Finds the ids that use the most, in bounded memory: Space-Saving, in sets.
//!
//! ```text
//! hash of (subject, id)  ──>  one of 64 sets of 16 places   16 tags | 16 hashes | 16 counts | 16 errors
//! found:     count += amount
//! not found: one of 16384 cells += amount, while that stays below the smallest count of the set
//!            otherwise it takes the place with the smallest count, as count = cell + amount, error = cell
//! ```
//!
//! Most ids of a busy server come too seldom to be shown. They end at a cell, which costs less than taking a place: no
//! search for the smallest count, and no id is copied.
//!
//! Whatever comes, `count - error <= true <= count` for an id that has a place, and `true <= smallest` of its set for
//! one that has none: an id that never had a place is below its cell, and one that lost it had the smallest count. So
//! every bound that is shown holds, and not only probably. An id with more than a sixteenth of what its set counts
//! keeps its place for certain. The hash is keyed with random numbers, so nobody can choose ids that share a set.
//!
//! Nothing here reads a clock. A sketch counts what it is told until it is cleared; [`Generations`] lets old counts go.
//!
//! [`Generations`]: super::generations::Generations

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// The number of places in a set: their tags are one cache line.
const WAYS: usize = 16;
/// The number of sets. It is a power of two, because bits of the hash choose the set.
pub(super) const SETS: usize = 64;
/// The number of ids that have a place.
pub(crate) const PLACES: usize = SETS * WAYS;
/// The number of bytes of an id that are kept. A longer id is cut, and its hash tells it from others that start alike.
pub(crate) const ID_MAX: usize = 96;
/// The number of cells. It is a power of two, because bits of the hash choose the cell.
const CELLS: usize = 1 << 14;

/// The number of a limit, a rule or a domain in [`Subjects`](super::subjects::Subjects).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Subject(pub(crate) u32);

/// The random key that one process hashes ids with. All its workers share it, so that their counts can be merged.
#[derive(Clone, Debug)]
pub(crate) struct SketchKey(RapidSecrets);

/// The hash of a subject and an id, which stands for both. It is never 0: that marks an empty place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IdHash(u64);

impl SketchKey {
    pub(crate) fn random() -> Self {
        Self(RapidSecrets::seed(RandomState::new().hash_one("watch")))
    }

    #[inline]
    pub(crate) fn hash(&self, subject: Subject, id: &[u8]) -> IdHash {
        // An odd factor, so that subjects differ in all bits that follow.
        let spread = u64::from(subject.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        IdHash((rapidhash_v3_nano_inline::<true, true>(id, &self.0) ^ spread).max(1))
    }
}

impl IdHash {
    const EMPTY: Self = Self(0);

    /// Returns the index of the set that the id belongs to.
    #[inline]
    pub(super) const fn set(self) -> usize {
        // Not the lowest bits: subjects differ there in a way that ids can repeat.
        (self.0 >> 32) as usize & (SETS - 1)
    }

    #[inline]
    const fn cell(self) -> usize {
        (self.0 >> 40) as usize & (CELLS - 1)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is a part of the hash")]
    const fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// The start of an id, and whether it is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortId {
    bytes: [u8; ID_MAX],
    len: u8,
    is_cut: bool,
}

impl ShortId {
    pub(crate) const EMPTY: Self = Self { bytes: [0; ID_MAX], len: 0, is_cut: false };

    /// Replaces the id, in place: most ids are far shorter than the room for them.
    #[inline]
    pub(crate) fn set(&mut self, id: &[u8]) {
        let kept = &id[..id.len().min(ID_MAX)];
        self.bytes[..kept.len()].copy_from_slice(kept);
        self.len = u8::try_from(kept.len()).expect("at most ID_MAX");
        self.is_cut = id.len() > ID_MAX;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns whether the id was longer.
    pub(crate) const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Writes printable ASCII as it is, a backslash as two, other bytes as `\xff`, and an ellipsis where the id was cut. So
/// no two ids look alike, unless they were cut.
impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.bytes() {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str(if self.is_cut { "…" } else { "" })
    }
}

/// Counts amounts by id, for the ids with the largest counts.
#[derive(Debug)]
pub(crate) struct Sketch {
    sets: Box<[Set]>,
    ids: Box<[ShortId]>,
    total: u64,
}

/// The places of the ids whose hash chooses this set. An empty place has a count of 0.
///
/// Most ids are looked for in vain, so what is read for them stands first, in two cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set {
    /// A part of the hash of each id.
    tags: [u32; WAYS],
    /// The smallest count.
    smallest: u64,
    /// True if every id that was counted has a place, with its exact count.
    is_exact: bool,
    subjects: [Subject; WAYS],
    hashes: [IdHash; WAYS],
    counts: [u64; WAYS],
    errors: [u64; WAYS],
}

/// Counts the ids that have no place, several in one cell.
#[derive(Debug)]
pub(crate) struct Cells(Box<[u32]>);

/// The bounds of what one id used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounded {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

#[cfg(test)]
impl Bounded {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }
}

/// One id that has a place in a sketch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) hash: IdHash,
    pub(crate) subject: Subject,
    pub(crate) bounds: Bounded,
    /// The most that it could have used there without a place.
    pub(crate) max_without_place: u64,
}

/// The counts of a sketch at one moment, without the ids: little enough to copy while a lock is held.
#[derive(Clone, Debug)]
pub(crate) struct SketchCounts {
    sets: Box<[Set]>,
    total: u64,
}

impl Set {
    const EMPTY: Self = Self {
        tags: [0; WAYS],
        smallest: 0,
        is_exact: true,
        subjects: [Subject(0); WAYS],
        hashes: [IdHash::EMPTY; WAYS],
        counts: [0; WAYS],
        errors: [0; WAYS],
    };

    #[inline]
    fn find(&self, hash: IdHash) -> Option<usize> {
        let tag = hash.tag();
        // Compares all places without a branch between them, so that the processor does several at once. Most ids have
        // no place, and to find that out takes a third of the instructions.
        if !self.tags.iter().fold(false, |found, other| found | (*other == tag)) {
            return None;
        }
        let bit = |way: usize| if self.tags[way] == tag { 1_u32 << way } else { 0 };
        let mut matches = (0..WAYS).fold(0, |bits, way| bits | bit(way));
        while matches != 0 {
            let way = matches.trailing_zeros() as usize;
            if self.hashes[way] == hash {
                return Some(way);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Adds an amount to the id at this place.
    #[inline]
    fn add(&mut self, way: usize, amount: u64) {
        let before = self.counts[way];
        self.counts[way] = before.saturating_add(amount);
        if before == self.smallest {
            self.find_smallest();
        }
    }

    /// Gives the place with the smallest count to an id, and returns it with the id that had it.
    fn replace(&mut self, hash: IdHash, subject: Subject, error: u64, amount: u64) -> (usize, IdHash) {
        let way = self.counts.iter().position(|count| *count == self.smallest).unwrap_or(0);
        let lost = self.hashes[way];
        self.is_exact &= lost == IdHash::EMPTY;
        self.tags[way] = hash.tag();
        self.hashes[way] = hash;
        self.subjects[way] = subject;
        self.errors[way] = error;
        self.counts[way] = error.saturating_add(amount);
        self.find_smallest();
        (way, lost)
    }

    fn find_smallest(&mut self) {
        self.smallest = self.counts.iter().copied().fold(u64::MAX, u64::min);
    }

    /// Returns the bounds of the id at this place.
    const fn bounds(&self, way: usize) -> Bounded {
        Bounded { min: self.counts[way].saturating_sub(self.errors[way]), max: self.counts[way] }
    }

    /// Returns the most that an id of this set can have used if it has no place.
    const fn max_without_place(&self) -> u64 {
        if self.is_exact { 0 } else { self.smallest }
    }
}

impl Cells {
    /// The bytes that all cells have.
    pub(crate) const SIZE: usize = CELLS * size_of::<u32>();
    /// The value of a cell that says nothing, because its sum does not fit.
    const UNKNOWN: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self(vec![0; CELLS].into_boxed_slice())
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Adds an amount to the cell of an id if the sum is below the smallest count of its set. Returns whether it did.
    #[inline]
    fn add_below(&mut self, smallest: u64, hash: IdHash, amount: u64) -> bool {
        let cell = &mut self.0[hash.cell()];
        let sum = u64::from(*cell).saturating_add(amount);
        match u32::try_from(sum) {
            Ok(sum32) if sum < smallest && sum32 < Self::UNKNOWN => {
                *cell = sum32;
                true
            }
            _ => false,
        }
    }

    /// Returns the most that an id without a place can have used.
    fn max(&self, hash: IdHash) -> u64 {
        match self.0[hash.cell()] {
            Self::UNKNOWN => u64::MAX,
            sum => u64::from(sum),
        }
    }

    /// Notes that an id with this count has lost its place.
    fn raise(&mut self, hash: IdHash, count: u64) {
        let cell = &mut self.0[hash.cell()];
        *cell = (*cell).max(u32::try_from(count).unwrap_or(Self::UNKNOWN));
    }
}

impl Sketch {
    /// The bytes that one sketch has.
    pub(crate) const SIZE: usize = SETS * size_of::<Set>() + PLACES * size_of::<ShortId>();

    pub(crate) fn new() -> Self {
        let (sets, ids) = (vec![Set::EMPTY; SETS], vec![ShortId::EMPTY; PLACES]);
        Self { sets: sets.into_boxed_slice(), ids: ids.into_boxed_slice(), total: 0 }
    }

    /// Forgets everything. The ids stay in memory until their places are taken again, and nothing shows them.
    pub(crate) fn clear(&mut self) {
        self.sets.fill(Set::EMPTY);
        self.total = 0;
    }

    /// Adds an amount to an id of a subject, which have this hash. Without cells, every id takes a place.
    #[inline]
    pub(crate) fn add(
        &mut self,
        cells: Option<&mut Cells>,
        hash: IdHash,
        subject: Subject,
        id: &[u8],
        amount: u64,
    ) {
        if amount == 0 {
            return;
        }
        self.total = self.total.saturating_add(amount);
        let index = hash.set();
        let set = &mut self.sets[index];
        if let Some(way) = set.find(hash) {
            return set.add(way, amount);
        }
        let smallest = set.smallest;
        let Some(cells) = cells else {
            let (way, _) = set.replace(hash, subject, smallest, amount);
            return self.ids[index * WAYS + way].set(id);
        };
        if cells.add_below(smallest, hash, amount) {
            set.is_exact = false;
            return;
        }
        let error = cells.max(hash).min(smallest);
        let (way, lost) = set.replace(hash, subject, error, amount);
        if lost != IdHash::EMPTY {
            cells.raise(lost, smallest);
        }
        self.ids[index * WAYS + way].set(id);
    }

    /// Returns the id that has this hash, if it has a place.
    pub(crate) fn id(&self, hash: IdHash) -> Option<&ShortId> {
        let way = self.sets[hash.set()].find(hash)?;
        Some(&self.ids[hash.set() * WAYS + way])
    }

    pub(crate) fn counts(&self) -> SketchCounts {
        SketchCounts { sets: self.sets.clone(), total: self.total }
    }
}

impl SketchCounts {
    /// Returns the sum of all amounts, which is exact.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the ids that have a place.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held> {
        self.sets.iter().flat_map(|set| {
            let max_without_place = set.max_without_place();
            let ways = (0..WAYS).filter(|way| set.hashes[*way] != IdHash::EMPTY);
            ways.map(move |way| Held {
                hash: set.hashes[way],
                subject: set.subjects[way],
                bounds: set.bounds(way),
                max_without_place,
            })
        })
    }

    /// Returns the most that an id of each set can have used if it has no place.
    pub(crate) fn max_without_place(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().map(Set::max_without_place)
    }

    /// Returns the bounds of an id, whether it has a place or not.
    #[cfg(test)]
    pub(crate) fn bounds(&self, hash: IdHash) -> Bounded {
        let set = &self.sets[hash.set()];
        let without_place = Bounded { min: 0, max: set.max_without_place() };
        set.find(hash).map_or(without_place, |way| set.bounds(way))
    }

    /// Returns whether every count is exact: no id has lost its place.
    pub(crate) fn is_exact(&self) -> bool {
        self.sets.iter().all(|set| set.is_exact)
    }
}

#[cfg(test)]
mod tests;
