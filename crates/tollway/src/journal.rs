//! The journal of the memory store: keeps buckets on a disk, so that a restart does not give everybody a full one.
//!
//! A thread of its own collects what has changed, in rounds, and appends it to a log; no decision waits for it. When
//! the logs get longer than the last snapshot, another one is written beside them. `docs/journal.md` says what is kept
//! when.

mod commits;
mod disk;
mod format;
mod numbers;
mod owner;
mod reader;
mod recovery;
#[cfg(any(test, feature = "simulation"))]
mod simulated_disk;
#[cfg(feature = "simulation")]
mod simulation;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

use std::path::PathBuf;

use tollway_core::Nanos;

pub(crate) use self::disk::{Directory, Disk};
#[cfg(feature = "simulation")]
pub(crate) use self::format::Stamp;
pub(crate) use self::format::{BlockEncoder, BucketVisitor, Seal};
pub use self::format::{FileKind, HeaderError};
pub(crate) use self::numbers::encode_numbers;
pub use self::owner::{JournalOwner, TakeOverError};
pub use self::reader::FileSummary;
pub use self::recovery::JournalError;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::simulated_disk::{Faults, SimulatedDisk};
#[cfg(feature = "simulation")]
pub(crate) use self::simulation::JournalDriver;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::start::Machine;
#[cfg(not(feature = "simulation"))]
pub(crate) use self::start::Machine;
pub(crate) use self::start::{HashIdentity, JournalStart, Loaded};
pub(crate) use self::state::{AnyState, Input, JournalState, put_varint, with_kind, with_state};
pub(crate) use self::thread::JournalThread;
pub use self::writer::JournalStats;
pub(crate) use self::writer::{BucketSource, Journal};

/// The settings of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The directory, which is created if it does not exist. One process at a time can use it.
    pub dir: PathBuf,
    /// The times at which what was written is synced to the disk.
    pub sync: JournalSync,
}

/// The times at which a journal syncs what was written to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalSync {
    /// The system syncs when it likes: a power loss can cost what was decided in the last half minute.
    Never,
    /// Again and again, with this time between two syncs.
    Every(Nanos),
    /// Before every answer. Answers that wait at the same time share a sync.
    Always,
}

impl JournalSettings {
    /// The syncs, unless others are set: one in a second.
    pub const SYNC: JournalSync = JournalSync::Every(Nanos::from_secs(1));

    /// Returns the settings of a journal in this directory, which is synced every second.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), sync: Self::SYNC }
    }
}
