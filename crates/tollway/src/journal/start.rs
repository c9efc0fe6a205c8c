//! Opens a journal: reads what is there, and computes the time and the state in which the process goes on.

use std::io::ErrorKind;
use std::sync::Arc;

use tollway_core::{LostBuckets, Nanos, Timestamp};
use tracing::{info, warn};

use super::disk::{Directory, Disk};
use super::format::{BucketVisitor, SHARD_BITS_END, Stamp};
use super::numbers::NumbersByLimit;
use super::recovery::{JournalError, Recovered, Recovery};
use super::writer::{Identity, Journal};
use super::{JournalSettings, JournalSync};
use crate::clock::{Clock, boot_id, boot_time};

/// The numbers by which buckets are found, which must be those of the process that wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashIdentity {
    pub(crate) key: [u64; 2],
    /// The number of shards is two to this power.
    pub(crate) shard_bits: u8,
}

impl HashIdentity {
    /// Returns whether a store can have two to this power shards.
    pub(crate) const fn has_shards(shard_bits: u8) -> bool {
        shard_bits < SHARD_BITS_END
    }
}

/// A journal that was found, before its buckets are read.
#[derive(Debug)]
pub(crate) struct JournalStart<D: Disk> {
    disk: D,
    lock: Option<D::Lock>,
    recovery: Recovery,
    sync: JournalSync,
}

/// The time, the lost buckets and the numbers of limits that were read from a journal, beside its buckets.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    recovered: Recovered,
    /// The clock that decisions are to be made by.
    pub(crate) clock: Clock,
    /// The last start after which buckets may be missing.
    pub(crate) lost: LostBuckets,
    /// The numbers that limits had.
    pub(crate) numbers: NumbersByLimit,
    /// The time at which the process that loaded it started.
    began: Stamp,
    boot_id: [u8; 16],
}

impl Loaded {
    /// Returns the time at which the process that loaded it started.
    pub(crate) const fn began(&self) -> Timestamp {
        self.began.clock
    }
}

/// The machine that a process runs on, at the start of the process.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "the simulator makes machines"))]
pub struct Machine {
    /// The number that the system gave to the current run of the machine; zero if it is unknown.
    pub boot_id: [u8; 16],
    /// The nanoseconds since the machine was started.
    pub boot: u64,
}

impl Machine {
    /// Returns this machine, now.
    pub(crate) fn current() -> Self {
        Self { boot_id: boot_id(), boot: boot_time() }
    }
}

impl JournalStart<Directory> {
    /// Locks the directory, and looks for files.
    pub(crate) fn open(settings: &JournalSettings) -> Result<Self, JournalError> {
        let disk =
            Directory::create(&settings.dir).map_err(|error| JournalError::Directory(Arc::new(error)))?;
        Self::on(disk, settings.sync)
    }
}

impl<D: Disk> JournalStart<D> {
    pub(crate) fn on(disk: D, sync: JournalSync) -> Result<Self, JournalError> {
        let lock = Journal::lock(&disk).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => JournalError::InUse,
            _ => JournalError::Directory(Arc::new(error)),
        })?;
        let recovery = Recovery::find(&disk)?;
        Ok(Self { disk, lock, recovery, sync })
    }

    /// Returns the identity that its buckets were written with, or `None` if there are none.
    pub(crate) fn identity(&self) -> Option<HashIdentity> {
        self.recovery
            .header()
            .map(|header| HashIdentity { key: header.hash_key, shard_bits: header.shard_bits })
    }

    /// Reads all buckets, and changes nothing on the disk.
    pub(crate) fn load(
        &self,
        buckets: &mut impl BucketVisitor,
        clock: Clock,
        machine: Machine,
    ) -> Result<Loaded, JournalError> {
        let mut recovered = self.recovery.read(&self.disk, buckets)?;
        let numbers = std::mem::take(&mut recovered.numbers);
        let Machine { boot_id, boot } = machine;
        let now = start_time(recovered.last, boot_id, boot, clock.now());
        let clock = clock.resumed_at(now);
        let began = Stamp { clock: clock.now(), boot };
        let lost = lost_buckets(&recovered, began.clock);
        log_recovered(&recovered);
        Ok(Loaded { recovered, clock, lost, numbers, began, boot_id })
    }

    /// Begins to write the journal whose buckets were loaded.
    pub(crate) fn begin(self, identity: HashIdentity, loaded: Loaded) -> Journal<D> {
        let Self { disk, lock, sync, .. } = self;
        let Loaded { recovered, lost, began, boot_id, .. } = loaded;
        let HashIdentity { key: hash_key, shard_bits } = identity;
        let identity = Identity { hash_key, shard_bits, boot_id, lost };
        let sync_every = match sync {
            JournalSync::Every(time) => Some(time),
            // With `Always`, those that wait ask for a sync.
            JournalSync::Never | JournalSync::Always => None,
        };
        Journal::begin(disk, lock, identity, &recovered, sync_every, began)
    }
}

/// Returns the time at which the clock of a process goes on. It never runs back: as long as the machine was not started
/// again, it goes on as if the process had not ended. After that only the wall clock can tell how much time has passed.
fn start_time(last: Option<([u8; 16], Stamp)>, boot_id: [u8; 16], boot: u64, wall: Timestamp) -> Timestamp {
    match last {
        None => wall,
        Some((last_id, last)) if last_id == boot_id && boot_id != [0; 16] && boot >= last.boot => {
            last.clock + Nanos::new(boot - last.boot)
        }
        Some((_, last)) => wall.max(last.clock),
    }
}

/// Returns the last start after which buckets may be missing. A journal that was not closed lacks the last changes, and
/// one that is not there lacks all.
fn lost_buckets(recovered: &Recovered, now: Timestamp) -> LostBuckets {
    match recovered.lost {
        Some(lost) if recovered.is_clean => lost,
        lost => LostBuckets { epoch: lost.map_or(0, |lost| lost.epoch) + 1, at: now },
    }
}

fn log_recovered(recovered: &Recovered) {
    let Recovered { is_clean, torn, log_bytes, snapshot_bytes, .. } = recovered;
    if recovered.last.is_some() {
        info!(is_clean, log_bytes, snapshot_bytes, "read the journal");
    }
    for name in torn {
        warn!(
            "{name} of the journal ends with a damaged block, as after a power loss; what is before it was read"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(clock: u64, boot: u64) -> Stamp {
        Stamp { clock: Timestamp::from_nanos(clock), boot }
    }

    #[test]
    fn time_goes_on_and_never_runs_back() {
        let (same, other, unknown) = ([1; 16], [2; 16], [0; 16]);
        for (last, boot_id, boot, wall, expected) in [
            (None, same, 500, 1_000, 1_000),
            // Whatever the wall clock says meanwhile.
            (Some((same, stamp(1_000, 500))), same, 530, 9_000, 1_030),
            (Some((same, stamp(1_000, 500))), same, 530, 10, 1_030),
            // After a start of the machine.
            (Some((same, stamp(1_000, 500))), other, 10, 9_000, 9_000),
            (Some((same, stamp(1_000, 500))), other, 10, 900, 1_000),
            (Some((unknown, stamp(1_000, 0))), unknown, 0, 900, 1_000),
        ] {
            let started = start_time(last, boot_id, boot, Timestamp::from_nanos(wall));
            assert_eq!(started, Timestamp::from_nanos(expected));
        }
    }

    #[test]
    fn only_a_journal_that_was_closed_lacks_nothing() {
        let (now, before) =
            (Timestamp::from_nanos(9), LostBuckets { epoch: 4, at: Timestamp::from_nanos(5) });
        let recovered = |lost, is_clean| Recovered { lost, is_clean, ..Recovered::default() };
        assert_eq!(lost_buckets(&recovered(Some(before), true), now), before);
        assert_eq!(lost_buckets(&recovered(Some(before), false), now), LostBuckets { epoch: 5, at: now });
        assert_eq!(lost_buckets(&recovered(None, false), now), LostBuckets { epoch: 1, at: now });
    }
}
