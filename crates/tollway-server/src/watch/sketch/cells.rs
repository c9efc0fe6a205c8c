//! Counts the ids that have no place in a sketch, several in one cell, and remembers the places of the others.

use tollway::prefetch;

use super::{IdHash, PLACES};

/// The number of cells. It is a power of two, because bits of the hash choose the cell.
const CELLS: usize = 1 << 13;

/// The cells of one sketch.
#[derive(Debug)]
pub(crate) struct Cells(Box<[Cell; CELLS]>);

/// One cell, which all ids share whose hashes choose it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// The most that an id of this cell can have used while it had no place.
    sum: u32,
    /// The number of its ids that have a place.
    placed: u16,
    /// The place that one of them had when it was last used.
    hint: u16,
}
const _: () = assert!(PLACES <= u16::MAX as usize && size_of::<Cell>() == 8);

impl Cells {
    /// The bytes that all cells have.
    pub(crate) const SIZE: usize = CELLS * size_of::<Cell>();

    pub(crate) fn new() -> Self {
        Self(Box::new([Cell::EMPTY; CELLS]))
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(Cell::EMPTY);
    }

    /// Starts to fetch the cell of an id.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IdHash) {
        prefetch(&raw const self.0[index(hash)]);
    }

    /// Returns the cell of an id.
    #[inline]
    pub(super) fn of(&mut self, hash: IdHash) -> &mut Cell {
        &mut self.0[index(hash)]
    }
}

/// Returns the index of the cell of an id, from other bits than those that choose the set.
#[inline]
const fn index(hash: IdHash) -> usize {
    (hash.0 >> 40) as usize & (CELLS - 1)
}

impl Cell {
    const EMPTY: Self = Self { sum: 0, placed: 0, hint: 0 };

    /// Marks a sum that does not fit into 32 bits.
    const UNKNOWN: u32 = u32::MAX;

    /// Returns whether none of its ids has a place.
    #[inline]
    pub(super) const fn has_no_place(&self) -> bool {
        self.placed == 0
    }

    /// Returns where to look first for an id of this cell; `None` if none of its ids has a place.
    #[inline]
    pub(super) const fn hint(&self) -> Option<usize> {
        if self.has_no_place() { None } else { Some(self.hint as usize) }
    }

    /// Notes where an id of this cell was found.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer places")]
    pub(super) const fn set_hint(&mut self, place: usize) {
        self.hint = place as u16;
    }

    /// Adds the amount of an id without a place, if the sum stays below the threshold of its set. Returns whether it
    /// did: if not, or if the sum does not fit, the id must take a place, with at least the threshold as its count.
    #[inline]
    pub(super) fn add_below(&mut self, threshold: u64, amount: u64) -> bool {
        let sum = u64::from(self.sum).saturating_add(amount);
        let is_below = sum < threshold.min(Self::UNKNOWN.into());
        if is_below || sum < threshold {
            self.sum = u32::try_from(sum).unwrap_or(Self::UNKNOWN);
        }
        is_below
    }

    /// Returns the most that an id without a place can have used.
    pub(super) fn max(&self) -> u64 {
        if self.sum == Self::UNKNOWN { u64::MAX } else { self.sum.into() }
    }

    /// Notes that an id of this cell has got a place.
    pub(super) const fn gain_place(&mut self, place: usize) {
        self.placed += 1;
        self.set_hint(place);
    }

    /// Notes that an id of this cell has lost its place, with this count.
    pub(super) fn lose_place(&mut self, count: u64) {
        self.placed -= 1;
        self.sum = self.sum.max(u32::try_from(count).unwrap_or(Self::UNKNOWN));
    }
}
