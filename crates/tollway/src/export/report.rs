//! Counts the buckets of an import by what became of them.

use std::fmt;
use std::ops::AddAssign;

/// The number of buckets that an import has read, and what became of them. Nothing is left out without being counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The buckets that are in the target now, with the state of the export or with a stricter one.
    pub imported: u64,
    /// The buckets that are full again by now, so that there is nothing to move.
    pub expired: u64,
    /// The buckets for which the target has no room.
    pub no_room: u64,
    /// The buckets of limits or domains that the target does not have, or has with another algorithm.
    pub unknown: u64,
    /// The buckets whose long ids are known by a digest only, which memory cannot be asked for.
    pub digests: u64,
    /// The buckets that have only a hash of their id, and no name in the list.
    pub unnamed: u64,
}

impl ImportReport {
    /// Returns the numbers in the order of the fields.
    pub const fn numbers(&self) -> [u64; 6] {
        [self.imported, self.expired, self.no_room, self.unknown, self.digests, self.unnamed]
    }

    /// Returns the report with these numbers, in the order of the fields.
    pub const fn from_numbers(numbers: [u64; 6]) -> Self {
        let [imported, expired, no_room, unknown, digests, unnamed] = numbers;
        Self { imported, expired, no_room, unknown, digests, unnamed }
    }

    /// Returns the number of buckets that were read.
    pub fn total(&self) -> u64 {
        self.numbers().iter().sum()
    }

    /// Returns the number of buckets that still count, and that the target does not have.
    pub fn left_behind(&self) -> u64 {
        self.no_room + self.unknown + self.digests + self.unnamed
    }
}

impl AddAssign for ImportReport {
    fn add_assign(&mut self, other: Self) {
        let (own, others) = (self.numbers(), other.numbers());
        *self = Self::from_numbers(std::array::from_fn(|index| own[index] + others[index]));
    }
}

/// Says what was imported, and on a line each what was not and why.
impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buckets imported, {} had expired", self.imported, self.expired)?;
        for (count, reason) in [
            (self.no_room, "the store is full: raise max_buckets, and import again"),
            (self.unknown, "the target has no such limit or domain, or another algorithm for it"),
            (
                self.digests,
                "an id of more than 512 bytes is known by its digest only, and memory needs the id",
            ),
            (self.unnamed, "only a hash of the id is known, and the list of ids does not have it"),
        ] {
            if count > 0 {
                write!(f, "\n{count} buckets left behind: {reason}")?;
            }
        }
        Ok(())
    }
}
