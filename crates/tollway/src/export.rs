//! Exports: the live buckets of a store in a file, to be taken into another store.
//!
//! ```text
//! memory of a server ─┐                                ┌─ memory of a server
//! journal directory  ─┼─ batches ─ file ─ batches ──── ┼─ journal directory
//! Redis, Cluster     ─┘                                └─ Redis, Cluster
//! ```
//!
//! An export has whole states. A state that is taken into a store becomes, together with the one that is there, one
//! that is at least as strict as both. So nobody gets more than they had, and an import that was interrupted can be
//! started again.
//!
//! Redis keeps ids, so its exports have [names](crate::store). Memory keeps hashes of ids. An export of memory has
//! these and the key that they were made with, and can only be taken into memory that has the same key.
//!
//! A state is a moment of the clock that it was written by. Every batch says which time that clock showed, and the wall
//! clock of the machine that wrote the export. An import computes how much time has passed since then, and moves all
//! moments to the clock of the target.

mod format;
mod named;
mod names;
mod report;

use std::io;
use std::sync::Arc;

use thiserror::Error;
use tollway_core::algorithm::ClockDifference;
use tollway_core::{LostBuckets, Nanos, Timestamp};

pub use self::format::{ExportReader, ExportWriter};
pub(crate) use self::named::NamedState;
pub use self::names::{NameList, NameListError};
pub use self::report::ImportReport;
use crate::journal::{AnyState, HashIdentity};

/// The difference between the clocks of the source and the target above which an import is refused. Windows stay where
/// the calendar of the source puts them, and a difference beyond this is hardly one that somebody wanted.
pub const CLOCK_DIFFERENCE_MAX: Nanos = Nanos::from_secs(60);

/// The header of an export, which holds for all of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    /// The numbers by which buckets without names are found; `None` if all have names.
    pub(crate) identity: Option<HashIdentity>,
    /// The last start of the source after which buckets may have been missing.
    pub(crate) lost: LostBuckets,
    /// The time at which the export began, by the wall clock.
    pub(crate) created: Timestamp,
}

impl ExportHeader {
    /// Returns true if buckets have the names of their ids, and false if they have only hashes of them.
    pub const fn has_names(&self) -> bool {
        self.identity.is_none()
    }

    /// Returns the time at which the export began, by the wall clock of the machine that wrote it.
    pub const fn created(&self) -> Timestamp {
        self.created
    }

    /// Returns the last start of a target after which buckets may be missing, when it has taken this export. `found` is
    /// that of the target before, or `None` if it is new.
    ///
    /// The number of such starts is a part of the hash of strict limits. If the two differ, their buckets would not be
    /// found, so everything of these limits counts as lost: their ids start empty.
    pub(crate) fn lost_after(&self, found: Option<LostBuckets>, now: Timestamp) -> LostBuckets {
        match found {
            None => self.lost,
            Some(found) if self.has_names() || found.epoch == self.lost.epoch => found,
            Some(found) => LostBuckets { epoch: found.epoch.max(self.lost.epoch) + 1, at: now },
        }
    }

    /// Returns the header of an export whose buckets have names. Redis forgets no bucket that counts.
    #[cfg(feature = "redis")]
    pub(crate) const fn named(created: Timestamp) -> Self {
        Self { identity: None, lost: LostBuckets { epoch: 0, at: Timestamp::EPOCH }, created }
    }
}

/// Buckets that were read from one source at about the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The time of the clock that the source decides by.
    pub(crate) clock: Timestamp,
    /// The time of the wall clock when `clock` was read, or a little later.
    pub(crate) wall: Timestamp,
    pub(crate) buckets: Vec<ExportedBucket>,
}

/// One bucket of an export.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExportedBucket {
    /// A bucket of the memory store.
    Hashed { shard: usize, tag: u64, state: AnyState },
    /// A bucket whose id is known.
    Named { name: Box<[u8]>, state: NamedState },
}

impl Batch {
    /// Returns the number of buckets.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Returns true if there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the time that the clock of the source showed when the batch was read.
    pub const fn clock(&self) -> Timestamp {
        self.clock
    }

    /// Says that the batch has just come from its source, at this time of the wall clock.
    pub const fn receive(&mut self, wall: Timestamp) {
        self.wall = wall;
    }

    /// Says which time the clock of the source shows at `wall`, when the batch is about to be imported: as much later
    /// as the wall clock is. A wall clock that has stepped back counts as one that stood still, which is stricter.
    pub fn restate(&mut self, wall: Timestamp) {
        self.clock = self.clock + wall.since(self.wall);
        self.wall = self.wall.max(wall);
    }

    /// Splits off the buckets behind the first `count`.
    pub fn split_off(&mut self, count: usize) -> Self {
        let buckets = self.buckets.split_off(count.min(self.buckets.len()));
        Self { buckets, ..*self }
    }

    /// Returns how far ahead a clock is that shows `now`, if that is a difference that an import accepts.
    pub(crate) fn difference(
        &self,
        now: Timestamp,
        accept_any: bool,
    ) -> Result<ClockDifference, ImportError> {
        let difference = ClockDifference::between(self.clock, now);
        if difference.abs() > CLOCK_DIFFERENCE_MAX && !accept_any {
            return Err(ImportError::Clocks { difference });
        }
        Ok(difference)
    }
}

/// The settings of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportSettings {
    /// True if everything is read and checked, and nothing is changed.
    pub dry_run: bool,
    /// True if any difference between the clocks of the source and the target is accepted.
    pub any_clock: bool,
}

impl ImportSettings {
    /// Sets whether everything is read and checked, and nothing is changed.
    pub const fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets whether any difference between the clocks is accepted.
    pub const fn with_any_clock(mut self, any_clock: bool) -> Self {
        self.any_clock = any_clock;
        self
    }
}

/// The error of a file that is not a complete export.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file cannot be read or written.
    #[error("it cannot be read or written")]
    Io(#[source] Arc<io::Error>),
    /// The file is something else.
    #[error("it is not an export of buckets")]
    Foreign,
    /// The file has another version of the format.
    #[error("it has version {found} of the format, and this program reads version {}", format::VERSION)]
    Version {
        /// The version that was found.
        found: u32,
    },
    /// A part of the file was changed after it was written.
    #[error("it is damaged at byte {offset}; copy it again, or export again")]
    Damaged {
        /// The place of the part that is damaged.
        offset: u64,
    },
    /// The end of the file is missing.
    #[error("it was cut at byte {offset}: its end is missing; copy it again, or export again")]
    Cut {
        /// The place where the file ends.
        offset: u64,
    },
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// The error of an import that cannot begin or go on. What was imported before stays.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The clocks of the source and the target differ too much.
    #[error(
        "the clock of the target is {} {} that of the source; windows of the calendar would not be where they were",
        difference.abs(),
        if difference.is_behind() { "behind" } else { "ahead of" }
    )]
    Clocks {
        /// The time of the target minus that of the source.
        difference: ClockDifference,
    },
    /// The buckets have hashes of ids that were made with another key.
    #[error(
        "the export has hashes of ids and not the ids, and the target hashes with another key; import it into an empty \
         journal directory, and start a server with that"
    )]
    OtherKey,
    /// Buckets of strict limits would not be found.
    #[error(
        "the target has lost buckets in other crashes than the source, so buckets of strict limits would not be found; \
         stop the server, and import into its journal directory"
    )]
    OtherCrashes,
    /// The buckets have no names, and the target finds buckets by their names.
    #[error(
        "the export has hashes of ids and not the ids, and Redis finds a bucket by its id; name the ids that you know \
         with a list of them"
    )]
    NoNames,
    /// The store of the engine is shared.
    #[error("the buckets of this server are in Redis; export from there, or import into it")]
    Shared,
    /// The store gave no answer.
    #[cfg(feature = "redis")]
    #[error("redis gave no answer")]
    Store(#[source] crate::store::StoreError),
}
