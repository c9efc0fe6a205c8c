//! Finds the ids that use the most, in bounded memory: Space-Saving, in sets.
//!
//! ```text
//! hash of (subject, id)  ──┬──>  one of 8192 cells            sum | ids with a place | the place of one of them
//!                          └──>  one of 64 sets of 16 places   16 tags | 16 hashes | 16 counts | 16 errors
//! the id has a place:            its count += amount
//! it has none:                   the cell += amount, while that stays below the threshold of the set
//! the cell is at the threshold:  it takes the place with the smallest count, as count = cell + amount, error = cell
//! ```
//!
//! The threshold is the smallest count of the set, or 1/4096 of everything that was counted, if that is more; it is 0
//! while a place is free. Most ids of a busy server come too seldom to be shown. They end at their cell, without a look
//! at the places of their set. An id that comes often is found by the place that its cell names, without a search too.
//! Without the share of everything, ids that come equally often would take the places from each other all the time,
//! which took longer than all the rest.
//!
//! Whatever comes, `count - error <= true <= count` for an id that has a place, and `true <= threshold` of its set for
//! one that has none: an id that never had a place is below its cell, and one that lost it had the smallest count. The
//! threshold never falls. So these bounds of what was counted are certain. An id loses its place only if all sixteen
//! of its set have counts as large as its own. The hash is keyed with random numbers, so nobody can choose ids that
//! share a set.
//!
//! Nothing here reads a clock. A sketch counts what it is told until it is cleared; [`Generations`] lets old counts go.
//! A sketch does not know what was skipped: on a busy worker, [`DecisionSampler`] passes on one unit in 16, as 16
//! units. So the bounds in this file are about what was counted. [`SampledUnits::widen`] turns them into bounds of what
//! an id really used, and must be called before they are shown.
//!
//! [`Generations`]: super::generations::Generations
//! [`DecisionSampler`]: super::decision_sampler::DecisionSampler

mod cells;

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

pub(crate) use self::cells::Cells;
use super::decision_sampler::SampledUnits;

/// The number of places in a set: their tags are one cache line.
const WAYS: usize = 16;
/// The number of sets. It is a power of two, because bits of the hash choose the set.
pub(super) const SETS: usize = 64;
/// The number of ids that have a place.
pub(crate) const PLACES: usize = SETS * WAYS;
/// The number of bytes of an id that are kept. A longer id is cut, and its hash tells it from others that start alike.
pub(crate) const ID_MAX: usize = 96;

/// The share of everything below which an id needs no place: one in this many.
const SHARE_MIN: u64 = 4_096;

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

/// Writes an ellipsis where the id was cut.
impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", EscapedId(self.bytes()), if self.is_cut { "…" } else { "" })
    }
}

/// An id, as people read it.
pub(crate) struct EscapedId<'a>(pub(crate) &'a [u8]);

/// Writes printable ASCII as it is, a backslash as two, and other bytes as `\xff`, so that no two ids look alike.
impl fmt::Display for EscapedId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

/// An amount that is added to the count of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added<'i> {
    /// The hash of the subject and the id.
    pub(crate) hash: IdHash,
    pub(crate) subject: Subject,
    pub(crate) id: &'i [u8],
    pub(crate) amount: u64,
}

/// Counts amounts by id, for the ids with the largest counts.
#[derive(Debug)]
pub(crate) struct Sketch {
    sets: Box<[Set; SETS]>,
    bounds: SetBounds,
    ids: Box<[ShortId]>,
    units: SampledUnits,
}

/// The places of the ids whose hash chooses this set. An empty place has a count of 0.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set {
    /// A part of the hash of each id.
    tags: [u32; WAYS],
    subjects: [Subject; WAYS],
    hashes: [IdHash; WAYS],
    counts: [u64; WAYS],
    errors: [u64; WAYS],
}

/// The bounds of the ids without a place. They are apart from the sets: this is all that most requests read of them,
/// and it stays in the first cache.
#[derive(Clone, Debug)]
struct SetBounds {
    /// The sum of all amounts that were counted.
    counted: u64,
    /// The smallest count of each set.
    smallest: [u64; SETS],
    /// A bit for each set: 1 if an id was counted there that has no place, or has none with its exact count.
    inexact: u64,
}
const _: () = assert!(SETS <= u64::BITS as usize);

/// The bounds of what one id used, or of what was counted of it.
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
pub(crate) struct PlacedId {
    pub(crate) hash: IdHash,
    pub(crate) subject: Subject,
    pub(crate) bounds: Bounded,
    /// The most that could have been counted of it there without a place.
    pub(crate) max_without_place: u64,
}

/// The counts of a sketch at one moment, without the ids: little enough to copy while a lock is held.
#[derive(Clone, Debug)]
pub(crate) struct SketchCounts {
    sets: Box<[Set; SETS]>,
    bounds: SetBounds,
    units: SampledUnits,
}

impl Set {
    const EMPTY: Self = Self {
        tags: [0; WAYS],
        subjects: [Subject(0); WAYS],
        hashes: [IdHash::EMPTY; WAYS],
        counts: [0; WAYS],
        errors: [0; WAYS],
    };

    fn find(&self, hash: IdHash) -> Option<usize> {
        let tag = hash.tag();
        // Compares all places without a branch between them, so that the processor does several at once.
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

    /// Gives a place to an id, and returns the id that had it.
    fn replace(&mut self, way: usize, added: &Added<'_>, error: u64) -> IdHash {
        let lost = self.hashes[way];
        self.tags[way] = added.hash.tag();
        self.hashes[way] = added.hash;
        self.subjects[way] = added.subject;
        self.errors[way] = error;
        self.counts[way] = error.saturating_add(added.amount);
        lost
    }

    /// Returns the smallest count.
    fn smallest(&self) -> u64 {
        self.counts.iter().copied().fold(u64::MAX, u64::min)
    }

    /// Returns the bounds of the id at this place.
    const fn bounds(&self, way: usize) -> Bounded {
        Bounded { min: self.counts[way].saturating_sub(self.errors[way]), max: self.counts[way] }
    }
}

impl SetBounds {
    const EMPTY: Self = Self { counted: 0, smallest: [0; SETS], inexact: 0 };

    /// Returns the count from which on an id of this set takes a place: none, as long as a place is free.
    #[inline]
    fn threshold(&self, set: usize) -> u64 {
        match self.smallest[set] {
            0 => 0,
            smallest => smallest.max(self.counted / SHARE_MIN),
        }
    }

    /// Notes that not every id of a set has a place with its exact count.
    #[inline]
    const fn set_inexact(&mut self, set: usize) {
        self.inexact |= 1 << set;
    }

    /// Returns the most that can have been counted of an id of this set if it has no place.
    fn max_without_place(&self, set: usize) -> u64 {
        if self.inexact >> set & 1 == 0 { 0 } else { self.threshold(set) }
    }
}

impl Sketch {
    /// The bytes that one sketch has.
    pub(crate) const SIZE: usize = SETS * size_of::<Set>()
        + PLACES * size_of::<ShortId>()
        + size_of::<SetBounds>()
        + size_of::<SampledUnits>();

    pub(crate) fn new() -> Self {
        let (sets, ids) = (Box::new([Set::EMPTY; SETS]), vec![ShortId::EMPTY; PLACES]);
        let (bounds, units) = (SetBounds::EMPTY, SampledUnits::default());
        Self { sets, bounds, ids: ids.into_boxed_slice(), units }
    }

    /// Forgets everything. The ids stay in memory until their places are taken again, and nothing shows them.
    pub(crate) fn clear(&mut self) {
        self.sets.fill(Set::EMPTY);
        self.bounds = SetBounds::EMPTY;
        self.units = SampledUnits::default();
    }

    /// Adds amounts to the counts of ids.
    #[inline]
    pub(crate) fn add_all(&mut self, cells: &mut Cells, added: &[Added<'_>]) {
        self.add_to_total(added);
        for added in added.iter().filter(|added| added.amount > 0) {
            let (set, cell) = (added.hash.set(), cells.of(added.hash));
            if cell.has_no_place() && cell.add_below(self.bounds.threshold(set), added.amount) {
                self.bounds.set_inexact(set);
            } else {
                self.add_to_place(cells, added);
            }
        }
    }

    /// Adds amounts to the counts of ids without cells: every id takes a place.
    pub(crate) fn add_all_without_cells(&mut self, added: &[Added<'_>]) {
        self.add_to_total(added);
        for added in added.iter().filter(|added| added.amount > 0) {
            match self.find(added.hash) {
                Some(place) => self.add_at(place, added.amount),
                None => _ = self.replace(added, self.bounds.threshold(added.hash.set())),
            }
        }
    }

    /// Adds units that were not counted one by one. The amounts of those that were sampled are added as well.
    pub(crate) fn add_units(&mut self, units: SampledUnits) {
        self.units = self.units.and(units);
    }

    /// Adds amounts to the sum of all, before they are added to ids: a threshold that rises a little early is as true.
    #[inline]
    fn add_to_total(&mut self, added: &[Added<'_>]) {
        let amounts = added.iter().map(|added| added.amount);
        self.bounds.counted = amounts.fold(self.bounds.counted, u64::saturating_add);
    }

    /// Adds an amount to an id that has a place, or takes one.
    #[inline(never)]
    fn add_to_place(&mut self, cells: &mut Cells, added: &Added<'_>) {
        let Added { hash, amount, .. } = *added;
        let (set, cell) = (hash.set(), cells.of(hash));
        if let Some(hint) = cell.hint() {
            let found = if self.hash_at(hint) == hash { Some(hint) } else { self.find(hash) };
            if let Some(place) = found {
                cell.set_hint(place);
                return self.add_at(place, amount);
            }
            if cell.add_below(self.bounds.threshold(set), amount) {
                return self.bounds.set_inexact(set);
            }
        }
        self.take_place(cells, added);
    }

    /// Gives a place to an id that its cell has no more room for.
    fn take_place(&mut self, cells: &mut Cells, added: &Added<'_>) {
        let set = added.hash.set();
        let smallest = self.bounds.smallest[set];
        let error = cells.of(added.hash).max().min(self.bounds.threshold(set));
        let (place, lost) = self.replace(added, error);
        if lost != IdHash::EMPTY {
            cells.of(lost).lose_place(smallest);
        }
        cells.of(added.hash).gain_place(place);
    }

    /// Gives the place with the smallest count of its set to an id, and returns it with the id that had it.
    fn replace(&mut self, added: &Added<'_>, error: u64) -> (usize, IdHash) {
        let index = added.hash.set();
        let set = &mut self.sets[index];
        let smallest = self.bounds.smallest[index];
        let way = set.counts.iter().position(|count| *count == smallest).unwrap_or(0);
        let lost = set.replace(way, added, error);
        self.bounds.smallest[index] = set.smallest();
        if lost != IdHash::EMPTY {
            self.bounds.set_inexact(index);
        }
        let place = index * WAYS + way;
        self.ids[place].set(added.id);
        (place, lost)
    }

    /// Adds an amount to the id at this place.
    #[inline]
    fn add_at(&mut self, place: usize, amount: u64) {
        let (index, way) = (place / WAYS, place % WAYS);
        let set = &mut self.sets[index];
        let before = set.counts[way];
        set.counts[way] = before.saturating_add(amount);
        if before == self.bounds.smallest[index] {
            self.bounds.smallest[index] = set.smallest();
        }
    }

    /// Returns the hash of the id at this place.
    #[inline]
    fn hash_at(&self, place: usize) -> IdHash {
        self.sets[place / WAYS].hashes[place % WAYS]
    }

    /// Returns the place of an id.
    fn find(&self, hash: IdHash) -> Option<usize> {
        self.sets[hash.set()].find(hash).map(|way| hash.set() * WAYS + way)
    }

    /// Returns the id that has this hash, if it has a place.
    pub(crate) fn id(&self, hash: IdHash) -> Option<&ShortId> {
        self.find(hash).map(|place| &self.ids[place])
    }

    pub(crate) fn counts(&self) -> SketchCounts {
        SketchCounts { sets: self.sets.clone(), bounds: self.bounds.clone(), units: self.units }
    }
}

impl SketchCounts {
    /// Returns the sum of everything that was used, which is exact.
    pub(crate) const fn total(&self) -> u64 {
        self.units.total(self.bounds.counted)
    }

    /// Returns the units that were not counted one by one. All bounds of these counts are of what was counted.
    pub(crate) const fn units(&self) -> SampledUnits {
        self.units
    }

    /// Returns the ids that have a place.
    pub(crate) fn placed_ids(&self) -> impl Iterator<Item = PlacedId> {
        self.sets.iter().enumerate().flat_map(|(index, set)| {
            let max_without_place = self.bounds.max_without_place(index);
            let ways = (0..WAYS).filter(|way| set.hashes[*way] != IdHash::EMPTY);
            ways.map(move |way| PlacedId {
                hash: set.hashes[way],
                subject: set.subjects[way],
                bounds: set.bounds(way),
                max_without_place,
            })
        })
    }

    /// Returns the most that can have been counted of an id of each set if it has no place.
    pub(crate) fn max_without_place(&self) -> impl Iterator<Item = u64> {
        (0..SETS).map(|set| self.bounds.max_without_place(set))
    }

    /// Returns the bounds of what was counted of an id, whether it has a place or not.
    #[cfg(test)]
    pub(crate) fn bounds(&self, hash: IdHash) -> Bounded {
        let set = &self.sets[hash.set()];
        let without_place = Bounded { min: 0, max: self.bounds.max_without_place(hash.set()) };
        set.find(hash).map_or(without_place, |way| set.bounds(way))
    }

    /// Returns whether every count is exact: everything was counted, every id has a place, and none has lost it.
    pub(crate) const fn is_exact(&self) -> bool {
        self.bounds.inexact == 0 && self.units.is_empty()
    }
}

#[cfg(test)]
mod tests;
