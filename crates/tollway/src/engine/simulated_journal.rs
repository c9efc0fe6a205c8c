//! An engine whose journal is on a simulated disk, and is driven by the simulator.

use std::io;
use std::sync::Arc;

use tollway_core::{Nanos, Policy};

use super::journaled::load;
use super::{Engine, Parts};
use crate::clock::Clock;
use crate::journal::{
    JournalDriver, JournalError, JournalStart, JournalStats, JournalSync, Machine, SimulatedDisk, Stamp,
};
use crate::store::memory::{Memory, MemoryBounds};

/// The length that the logs of a simulation may have beyond that of the last snapshot.
const LOGS_BEYOND_SNAPSHOT: u64 = 4_096;

/// A journal that does something only when it is told to. It ends like a process that is killed, unless it is closed.
#[derive(Debug)]
pub struct SimulatedJournal {
    driver: JournalDriver,
    parts: Arc<Parts>,
    clock: Clock,
}

impl Engine {
    /// Creates an engine over memory that is kept in a journal on a simulated disk. `clock` is the wall clock, and is
    /// set to the time at which the process goes on. A disk without a journal gets one with this hash key.
    pub fn with_simulated_journal(
        policy: Policy,
        bounds: impl Into<MemoryBounds>,
        hash_key: [u64; 2],
        disk: &SimulatedDisk,
        sync_every: Nanos,
        clock: Clock,
        machine: Machine,
    ) -> Result<(Self, SimulatedJournal), JournalError> {
        let start = JournalStart::on(disk.clone(), JournalSync::Every(sync_every))?;
        let bounds = bounds.into();
        let memory = match start.identity() {
            None => Memory::with_known_hashes(bounds, hash_key),
            found => Memory::journaled(bounds, found),
        };
        let (journal, parts, clock) = load(policy, memory, start, clock, machine, |loaded| loaded)?;
        let driver = JournalDriver::new(journal, LOGS_BEYOND_SNAPSHOT);
        let journal = SimulatedJournal { driver, parts: Arc::clone(&parts), clock: clock.clone() };
        Ok((Self { parts, redis: None, clock, journal: None, is_awaited: false }, journal))
    }
}

impl SimulatedJournal {
    /// Takes a round, this time after the start of the machine. Returns whether a sync and a snapshot were begun.
    pub fn round(&mut self, boot: u64) -> (bool, bool) {
        let stamp = self.stamp(boot);
        self.driver.round(&*self.parts, stamp)
    }

    /// Ends the sync that is under way.
    pub fn end_sync(&mut self, boot: u64) {
        self.driver.end_sync(self.stamp(boot));
    }

    /// Takes one step of the snapshot that is under way. Returns true if there is another.
    pub fn step_snapshot(&mut self, boot: u64) -> bool {
        let stamp = self.stamp(boot);
        self.driver.step_snapshot(&*self.parts, stamp)
    }

    /// Ends the process in an orderly way.
    pub fn close(self, boot: u64) -> io::Result<()> {
        let stamp = self.stamp(boot);
        self.driver.close(&*self.parts, stamp)
    }

    /// Forgets what has changed since the last round.
    pub fn lose_round(&self) {
        JournalDriver::lose_round(&*self.parts);
    }

    /// Returns figures about the journal.
    pub fn stats(&self) -> JournalStats {
        self.driver.stats()
    }

    fn stamp(&self, boot: u64) -> Stamp {
        Stamp { clock: self.clock.now(), boot }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_core::algorithm::TokenBucket;
    use tollway_core::{Algorithm, Bill, Limit, Timestamp};

    use super::*;
    use crate::block_on;

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn policy(count: u64) -> Policy {
        let numbers = TokenBucket::new(4, count, Duration::from_secs(3_600)).unwrap();
        let limit = Limit::new("A").unwrap().with_default(Algorithm::TokenBucket(numbers));
        Policy::new(vec![limit]).unwrap()
    }

    /// Starts a process so many milliseconds after the first start of the machine.
    fn start(disk: &SimulatedDisk, count: u64, millis: u64) -> (Engine, SimulatedJournal) {
        let clock = Clock::simulated(START + Nanos::from_millis(millis));
        let machine = Machine { boot_id: [1; 16], boot: boot(millis) };
        let sync_every = Nanos::from_secs(1);
        Engine::with_simulated_journal(policy(count), 100, [1, 2], disk, sync_every, clock, machine).unwrap()
    }

    fn boot(millis: u64) -> u64 {
        Nanos::from_millis(millis).get()
    }

    fn left(engine: &Engine, cost: u64) -> u64 {
        let policy = engine.policy();
        let charge = policy.charge("A", b"alice", cost).unwrap();
        block_on(engine.settle(&[Bill::one(&charge)]))[0].remaining
    }

    /// A snapshot had a bucket that was moved to new numbers, the power was lost before they were in the log, and the
    /// log had the old ones: the bucket was not found, although it had been used long before.
    #[test]
    fn numbers_of_a_snapshot_are_not_replaced_by_older_ones_of_a_log() {
        let disk = SimulatedDisk::default();
        let (engine, mut journal) = start(&disk, 1, 0);
        assert_eq!(left(&engine, 4), 0);
        let _ = journal.round(boot(40));
        drop(journal);
        // After a kill there is a snapshot. Meanwhile the numbers of the log are synced.
        let (engine, mut journal) = start(&disk, 1, 2_000);
        engine.clock().set(START + Nanos::from_millis(3_100));
        assert_eq!(journal.round(boot(3_100)), (true, true));
        journal.end_sync(boot(3_110));
        engine.clock().set(START + Nanos::from_millis(3_120));
        engine.reload(policy(2));
        assert_eq!(left(&engine, 0), 0);
        while journal.step_snapshot(boot(3_120)) {}
        assert_eq!(journal.stats().snapshots, 1);
        let disk = disk.after_power_loss(|_| 0);
        let (engine, _journal) = start(&disk, 3, 3_200);
        assert_eq!(left(&engine, 0), 0);
    }
}
