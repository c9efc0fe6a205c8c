//! Tests of the journal on a simulated disk: what was kept is read again, whatever happens in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proptest::prelude::*;
use tollway_core::algorithm::{
    FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState, TokenBucketState,
    TtlUnit,
};
use tollway_core::{Limit, LostBuckets, Nanos, Policy, Timestamp};

use super::disk::Disk;
use super::format::{BlockEncoder, BucketVisitor, HEADER_LEN, Stamp, with_version};
use super::numbers::{encode_numbers, in_force_since};
use super::reader::FileSummary;
use super::recovery::{FileName, JournalError, Recovered, Recovery};
use super::simulated_disk::{Faults, SimulatedDisk};
use super::state::{AnyState, Input, JournalState, with_kind, with_state};
use super::thread::JournalThread;
use super::writer::{BucketSource, Identity, Journal, SnapshotJob};
use crate::block_on;
use crate::clock::Clock;
use crate::reports::{KnownDelays, PublishedDelay};

const SHARDS: usize = 4;
const LOST: LostBuckets = LostBuckets { epoch: 3, at: Timestamp::from_nanos(77) };
const IDENTITY: Identity = Identity { hash_key: [7, 8], shard_bits: 2, boot_id: [9; 16], lost: LOST };
const SYNC_EVERY: Nanos = Nanos::from_secs(1);

/// The name of a bucket: its shard, its kind and its tag.
type Name = (usize, u8, u64);
/// The buckets by name, with their encoded states.
type Buckets = BTreeMap<Name, Vec<u8>>;

#[derive(Default)]
struct Source(Mutex<(Buckets, BTreeSet<Name>)>, KnownDelays);

impl Source {
    fn lock(&self) -> MutexGuard<'_, (Buckets, BTreeSet<Name>)> {
        self.0.lock().unwrap()
    }

    fn set<B: JournalState>(&self, shard: usize, tag: u64, state: &B) {
        let (buckets, changed) = &mut *self.lock();
        buckets.insert((shard, B::KIND, tag), encoded(state));
        changed.insert((shard, B::KIND, tag));
    }

    fn remove<B: JournalState>(&self, shard: usize, tag: u64) {
        let (buckets, changed) = &mut *self.lock();
        buckets.remove(&(shard, B::KIND, tag));
        changed.insert((shard, B::KIND, tag));
    }

    fn buckets(&self) -> Buckets {
        self.lock().0.clone()
    }

    fn publish(&self, identifier: &[u8], until_millis: u64) {
        self.1.set_journaled(true);
        let delay = PublishedDelay { domain: b"web", identifier, until_millis };
        assert!(self.1.keep(&delay, 1, &mut Vec::new()));
    }
}

impl BucketSource for Source {
    fn shards(&self) -> usize {
        SHARDS
    }

    fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder) {
        let (buckets, changed) = &mut *self.lock();
        for name in changed.extract_if(.., |(shard, ..)| shards.contains(shard)) {
            add(name, buckets.get(&name), out);
        }
    }

    fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
        for (name, state) in self.lock().0.iter().filter(|(name, _)| name.0 == shard) {
            add(*name, Some(state), out);
        }
    }

    fn collect_changed_delays(&self, out: &mut BlockEncoder) {
        self.1.take_changes(|delay| out.delay(&delay));
    }

    fn collect_all_delays(&self, part: usize, out: &mut BlockEncoder) -> bool {
        self.1.for_each_in(part, u64::MAX, 0, |delay| out.delay(&delay))
    }

    fn numbers_version(&self) -> u64 {
        1
    }

    fn numbers(&self) -> Vec<u8> {
        Vec::new()
    }

    fn stop_collecting(&self) {}
}

fn add((shard, kind, tag): Name, state: Option<&Vec<u8>>, out: &mut BlockEncoder) {
    with_kind!(kind, |B| match state {
        Some(state) => out.bucket(shard, tag, &B::decode(Timestamp::EPOCH, &mut Input(state)).unwrap()),
        None => out.removed::<B>(shard, tag),
    });
}

fn kind_of<B: JournalState>(_: &B) -> u8 {
    B::KIND
}

fn encoded<B: JournalState>(state: &B) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.encode(Timestamp::EPOCH, &mut bytes);
    bytes
}

/// Collects what a recovery finds.
#[derive(Default)]
struct Found(Buckets, Vec<(Vec<u8>, u64, Timestamp)>);

impl BucketVisitor for Found {
    fn bucket(&mut self, shard: usize, tag: u64, state: AnyState) {
        with_state!(state, |state| self.0.insert((shard, kind_of(&state), tag), encoded(&state)));
    }

    fn removed(&mut self, shard: usize, tag: u64, kind: u8) {
        self.0.remove(&(shard, kind, tag));
    }

    fn delay(&mut self, delay: &PublishedDelay<'_>, written_at: Timestamp) {
        assert_eq!(delay.domain, b"web");
        self.1.push((delay.identifier.to_vec(), delay.until_millis, written_at));
    }
}

fn stamp(millis: u64) -> Stamp {
    Stamp { clock: Timestamp::EPOCH + Nanos::from_millis(millis), boot: millis }
}

fn bucket(number: u64) -> TokenBucketState {
    TokenBucketState::full_at(Timestamp::from_nanos(number))
}

fn begin(disk: &SimulatedDisk, recovered: &Recovered, at: Stamp) -> Journal<SimulatedDisk> {
    let lock = Journal::lock(disk).unwrap();
    Journal::begin(disk.clone(), lock, IDENTITY, recovered, Some(SYNC_EVERY), at)
}

fn recover(disk: &SimulatedDisk) -> Result<(Buckets, Recovered), JournalError> {
    let mut found = Found::default();
    let recovered = Recovery::find(disk)?.read(disk, &mut found)?;
    Ok((found.0, recovered))
}

/// Runs everything that is due, as the threads of a journal do.
fn run_jobs(journal: &mut Journal<SimulatedDisk>, source: &Source, at: Stamp) {
    if let Some(job) = journal.sync_due(at.clock) {
        journal.on_synced(job.run(), at);
    }
    if let Some(job) = journal.snapshot_due(at) {
        journal.on_snapshot(job.run(source), at);
    }
}

fn failing_since(journal: &Journal<SimulatedDisk>) -> Option<Timestamp> {
    journal.stats().lock().failing_since
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    disk.list().unwrap()
}

/// Returns a disk with one small file that has buckets of every kind.
fn small_file() -> (SimulatedDisk, Buckets, String) {
    let (disk, source, at) = (SimulatedDisk::default(), Source::default(), Timestamp::from_nanos);
    let mut journal = begin(&disk, &Recovered::default(), stamp(1));
    for tag in 1..4 {
        source.set(0, tag, &bucket(tag * 1_000_000_000));
        source.set(1, tag, &SlidingLogState::restored(&[at(tag), at(9)], 3, at(99)));
        source.set(2, tag, &SmoothedRateState::measured(at(5), 1.5, at(tag * 77)));
        source.set(3, tag, &QuotaState::until(at(tag), 1 << tag, TtlUnit(1)));
        source.set(3, tag, &FixedWindowState::until(at(1 << 40), tag));
        source.set(0, tag, &SlidingWindowState::until(at(1 << 41), tag, 7, Nanos::new(1 << tag)));
    }
    journal.round(&source, stamp(2));
    source.set(2, 1, &bucket(1));
    source.remove::<TokenBucketState>(0, 1);
    journal.round(&source, stamp(3));
    (disk, source.buckets(), FileName::log(1).to_string())
}

#[test]
fn all_kinds_of_buckets_are_read_again() {
    let (disk, buckets, name) = small_file();
    let (found, recovered) = recover(&disk).unwrap();
    assert_eq!(found, buckets);
    assert_eq!(recovered.last, Some((IDENTITY.boot_id, stamp(3))));
    assert!(!recovered.is_clean && recovered.torn.is_empty());
    assert_eq!(recovered.lost, Some(LOST));
    let summary = FileSummary::of(&disk.bytes(&name).unwrap()).unwrap();
    assert_eq!((summary.buckets, summary.is_complete), (20, false));
}

/// Returns whether every state was at some time the one of its bucket.
fn is_part_of_history(found: &Buckets, later: &Buckets) -> bool {
    let removed = ((0, TokenBucketState::KIND, 1), encoded(&bucket(1_000_000_000)));
    found
        .iter()
        .all(|(name, state)| later.get(name) == Some(state) || (*name, state) == (removed.0, &removed.1))
}

#[test]
fn a_file_that_is_cut_anywhere_has_only_right_buckets() {
    let (disk, buckets, name) = small_file();
    let whole = disk.bytes(&name).unwrap();
    let mut most = 0;
    for len in 0..whole.len() {
        disk.put(&name, whole[..len].to_vec());
        let (found, recovered) = recover(&disk).unwrap();
        assert!(is_part_of_history(&found, &buckets), "{len}");
        assert!(len < HEADER_LEN || found.len() >= most, "{len}");
        assert!(!recovered.is_clean);
        most = found.len();
    }
    assert!(most > 15);
}

#[test]
fn a_file_with_any_byte_changed_has_only_right_buckets_or_a_bad_header() {
    let (disk, buckets, name) = small_file();
    let whole = disk.bytes(&name).unwrap();
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xff, whole[at]].into_iter().filter(|change| *change != 0) {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            disk.put(&name, bytes);
            match recover(&disk) {
                Ok((found, recovered)) => {
                    assert!(at >= HEADER_LEN && is_part_of_history(&found, &buckets), "{at}");
                    assert_eq!(recovered.torn, [name.as_str()], "{at}");
                }
                Err(error) => {
                    assert!(at < HEADER_LEN, "{at}: {error}");
                    assert!(error.to_string().contains("move"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_snapshot_that_is_cut_anywhere_or_has_any_byte_changed_has_only_right_buckets() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(1));
    for tag in 1..40 {
        source.set(usize::try_from(tag).unwrap() % SHARDS, tag, &bucket(tag * 1_000_000_000));
    }
    journal.round(&source, stamp(2));
    let job = journal.snapshot_due(stamp(2)).expect("the log is long");
    journal.on_snapshot(job.run(&source), stamp(3));
    let name = FileName::snapshot(2).to_string();
    assert_eq!(names(&disk), [FileName::log(2).to_string(), name.clone()]);
    let (whole, buckets) = (disk.bytes(&name).unwrap(), source.buckets());
    assert!(recover(&disk).unwrap().0 == buckets);
    let cuts = (0..whole.len()).map(|len| (len, whole[..len].to_vec()));
    let changed = (0..whole.len()).flat_map(|at| [0x01, 0x80, 0xff].map(|change| (at, change)));
    let changed = changed.map(|(at, change)| {
        let mut bytes = whole.clone();
        bytes[at] ^= change;
        (at, bytes)
    });
    for (at, bytes) in cuts.chain(changed) {
        disk.put(&name, bytes);
        match recover(&disk) {
            Ok((found, recovered)) => {
                assert!(at >= HEADER_LEN, "{at}");
                assert!(found.iter().all(|(name, state)| buckets.get(name) == Some(state)), "{at}");
                assert!(recovered.torn == [name.as_str()] && !recovered.is_clean, "{at}");
            }
            Err(error) => assert!(at < HEADER_LEN && error.to_string().contains("move"), "{at}: {error}"),
        }
    }
}

/// An identifier, the time at which its delay ends, and that at which it was written, in milliseconds.
type FoundDelay = (Vec<u8>, u64, u64);

/// Returns the delays that a recovery finds.
fn found_delays(disk: &SimulatedDisk) -> Vec<FoundDelay> {
    let mut found = Found::default();
    Recovery::find(disk).unwrap().read(disk, &mut found).unwrap();
    let in_millis =
        |(identifier, until, at): (Vec<u8>, u64, Timestamp)| (identifier, until, at.as_nanos() / 1_000_000);
    found.1.into_iter().map(in_millis).collect()
}

/// Returns a disk with one file that has delays between buckets, and the delays.
fn file_with_delays() -> (SimulatedDisk, Source, Vec<FoundDelay>) {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(1));
    let identifiers: [&[u8]; 3] = [b"10.0.0.1", b"", b"a\0b"];
    for (number, identifier) in (2..).zip(identifiers) {
        source.set(0, number, &bucket(number));
        source.publish(identifier, 10 * number);
        journal.round(&source, stamp(number));
    }
    // A later time of the same client, and the same time again, which is no change.
    source.publish(b"", 70);
    source.publish(b"10.0.0.1", 20);
    journal.round(&source, stamp(5));
    source.set(1, 1, &bucket(9));
    journal.round(&source, stamp(6));
    let delays = [(identifiers[0], 20, 2), (identifiers[1], 30, 3), (identifiers[2], 40, 4), (b"", 70, 5)];
    let delays = delays.map(|(identifier, until, at)| (identifier.to_vec(), until, at));
    (disk, source, delays.to_vec())
}

#[test]
fn delays_are_read_again_beside_the_buckets() {
    let (disk, source, delays) = file_with_delays();
    assert_eq!(found_delays(&disk), delays);
    assert_eq!(recover(&disk).unwrap().0, source.buckets());
    let file = disk.bytes(&FileName::log(1).to_string()).unwrap();
    assert_eq!(FileSummary::of(&file).map(|file| (file.buckets, file.delays)), Ok((4, 4)));
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_has_only_right_delays() {
    let (disk, source, delays) = file_with_delays();
    let (name, buckets) = (FileName::log(1).to_string(), source.buckets());
    let whole = disk.bytes(&name).unwrap();
    let mut most = 0;
    for len in HEADER_LEN..=whole.len() {
        disk.put(&name, whole[..len].to_vec());
        let found = found_delays(&disk);
        assert!(found.len() >= most && delays.starts_with(&found), "{len}: {found:?}");
        most = found.len();
    }
    assert_eq!(most, delays.len());
    for at in HEADER_LEN..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            disk.put(&name, bytes);
            assert!(delays.starts_with(&found_delays(&disk)), "{at}");
            assert!(is_part_of_history(&recover(&disk).unwrap().0, &buckets), "{at}");
        }
    }
}

#[test]
fn a_snapshot_has_the_delays_of_the_logs_that_it_replaces() {
    let (disk, source, _) = file_with_delays();
    let (_, recovered) = recover(&disk).unwrap();
    // Of the process before, whose lock is gone with it.
    let mut journal = begin(&disk, &recovered, stamp(10));
    for tag in 0..100 {
        source.set(0, tag, &bucket(tag));
    }
    journal.round(&source, stamp(11));
    let job = journal.snapshot_due(stamp(11)).expect("the process before was killed");
    journal.on_snapshot(job.run(&source), stamp(12));
    assert!(names(&disk).iter().all(|name| FileName::parse(name).is_none_or(|file| file.generation == 2)));
    let mut found = found_delays(&disk);
    found.sort();
    let expected = [(&b""[..], 70, 11), (b"10.0.0.1", 20, 11), (b"a\0b", 40, 11)];
    assert_eq!(found, expected.map(|(identifier, until, at)| (identifier.to_vec(), until, at)));
    assert_eq!(recover(&disk).unwrap().0, source.buckets());
}

/// The fuzz target begins its inputs with the header of this file: with that of another version it would see nothing.
#[test]
fn the_fuzz_target_has_a_file_of_this_version() {
    let file = include_bytes!("../../../../fuzz/corpus/journal/seed-log");
    let found = FileSummary::of(file).unwrap();
    assert_eq!((found.buckets, found.delays, found.good_bytes), (4, 4, file.len() as u64));
}

/// Files of version 2, which had no delays, are read; newer and older ones are refused.
#[test]
fn files_of_the_version_before_are_read() {
    let (disk, buckets, name) = small_file();
    let whole = disk.bytes(&name).unwrap();
    for (version, is_read) in [(1, false), (2, true), (3, true), (4, false)] {
        disk.put(&name, with_version(&whole, version));
        match recover(&disk) {
            Ok((found, _)) => assert!(is_read && found == buckets, "{version}"),
            Err(error) => {
                let text = error.to_string();
                let expected = format!("version {version} of the format, and this program reads 2 to 3");
                assert!(!is_read && text.contains(&expected) && text.contains("move"), "{text}");
            }
        }
    }
}

#[test]
fn a_block_of_another_place_is_not_accepted() {
    let (disk, _, name) = small_file();
    let whole = disk.bytes(&name).unwrap();
    let twice = [&whole[..], &whole[HEADER_LEN..]].concat();
    disk.put(&name, twice);
    let (_, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.torn, [name]);
}

#[test]
fn a_journal_that_was_closed_is_clean_and_one_that_goes_on_is_not() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let journal = begin(&disk, &Recovered::default(), stamp(1));
    source.set(1, 1, &bucket(5));
    journal.close(&source, stamp(2)).unwrap();
    let disk = disk.after_power_loss(|_| 0);
    let (found, recovered) = recover(&disk).unwrap();
    assert_eq!((found, recovered.is_clean), (source.buckets(), true));
    let next = begin(&disk, &recovered, stamp(3));
    let (found, recovered) = recover(&disk).unwrap();
    assert_eq!((found, recovered.is_clean), (source.buckets(), false));
    drop(next);
}

#[test]
fn a_snapshot_replaces_the_logs_before_it() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(0));
    let mut millis = 0;
    while journal.stats().lock().snapshots < 2 {
        millis += 50;
        for tag in 0..20_000 {
            source.set(usize::try_from(tag).unwrap() % SHARDS, tag, &bucket(millis + tag));
        }
        journal.round(&source, stamp(millis));
        run_jobs(&mut journal, &source, stamp(millis));
        assert!(millis < 10_000, "no snapshot");
    }
    journal.round(&source, stamp(millis + 50));
    assert_eq!(names(&disk), [FileName::log(3).to_string(), FileName::snapshot(3).to_string()]);
    let (found, recovered) = recover(&disk).unwrap();
    assert!(found == source.buckets());
    let stats = journal.stats().lock().clone();
    assert!(stats.bytes_written / stats.buckets_written <= 32, "{stats:?}");
    assert!(recovered.snapshot_bytes == stats.snapshot_bytes && recovered.torn.is_empty());
}

#[test]
fn a_full_disk_fails_and_is_used_again_when_there_is_room() {
    for faults in [
        Faults { room: Some(40), ..Faults::default() },
        Faults { writes: Some(ErrorKind::ReadOnlyFilesystem), ..Faults::default() },
        Faults { syncs: Some(ErrorKind::Other), ..Faults::default() },
    ] {
        let (disk, source) = (SimulatedDisk::default(), Source::default());
        let mut journal = begin(&disk, &Recovered::default(), stamp(0));
        source.set(0, 1, &bucket(1));
        journal.round(&source, stamp(1_000));
        run_jobs(&mut journal, &source, stamp(1_000));
        disk.set_faults(faults);
        for second in 2..5 {
            source.set(0, second, &bucket(second));
            journal.round(&source, stamp(second * 1_000));
            run_jobs(&mut journal, &source, stamp(second * 1_000));
        }
        let since = failing_since(&journal).expect("it fails");
        assert!((stamp(1_000).clock..=stamp(2_000).clock).contains(&since), "{since} {faults:?}");
        disk.set_faults(Faults::default());
        for second in 6..9 {
            journal.round(&source, stamp(second * 1_000));
            run_jobs(&mut journal, &source, stamp(second * 1_000));
        }
        assert_eq!(failing_since(&journal), None, "{faults:?}");
        let (found, recovered) = recover(&disk.after_power_loss(|_| 0)).unwrap();
        assert_eq!((found, recovered.torn), (source.buckets(), vec![]), "{faults:?}");
    }
}

#[test]
fn a_file_whose_sync_failed_is_not_used_again() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(0));
    source.set(0, 1, &bucket(1));
    journal.round(&source, stamp(1_000));
    disk.set_faults(Faults { syncs: Some(ErrorKind::Other), ..Faults::default() });
    run_jobs(&mut journal, &source, stamp(1_000));
    let len = disk.bytes(&FileName::log(1).to_string()).unwrap().len();
    disk.set_faults(Faults::default());
    source.set(0, 2, &bucket(2));
    journal.round(&source, stamp(3_000));
    assert_eq!(disk.bytes(&FileName::log(1).to_string()).unwrap().len(), len);
    assert!(names(&disk).contains(&FileName::log(2).to_string()));
    run_jobs(&mut journal, &source, stamp(3_000));
    assert_eq!(recover(&disk.after_power_loss(|_| 0)).unwrap().0, source.buckets());
}

#[test]
fn a_sync_that_fails_after_the_log_was_replaced_is_a_failure_too() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(0));
    for tag in 0..100 {
        source.set(0, tag, &bucket(tag));
    }
    journal.round(&source, stamp(1_000));
    let sync = journal.sync_due(stamp(1_000).clock).unwrap();
    disk.set_faults(Faults { syncs: Some(ErrorKind::Other), ..Faults::default() });
    let failed = sync.run();
    disk.set_faults(Faults::default());
    let snapshot = journal.snapshot_due(stamp(1_000)).expect("the log is long");
    journal.on_synced(failed, stamp(1_001));
    assert!(failing_since(&journal).is_some());
    journal.on_snapshot(snapshot.run(&source), stamp(1_002));
    assert!(failing_since(&journal).is_some(), "the snapshot was begun before the failure");
    journal.round(&source, stamp(3_000));
    run_jobs(&mut journal, &source, stamp(3_000));
    assert_eq!(failing_since(&journal), None);
    assert_eq!(recover(&disk.after_power_loss(|_| 0)).unwrap().0, source.buckets());
}

#[test]
fn a_power_loss_costs_one_sync_also_while_a_log_is_replaced() {
    let (disk, source) = (SimulatedDisk::default(), Source::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(0));
    let mut logs = 0;
    for millis in (0..20_000).step_by(40) {
        // Long enough for a snapshot in each second, so that each of them gets another log.
        for tag in 0..3 {
            source.set(0, 1_000 * millis + tag, &bucket(millis));
        }
        journal.round(&source, stamp(millis));
        if let Some(sync) = journal.sync_due(stamp(millis).clock) {
            journal.on_synced(sync.run(), stamp(millis));
        }
        let found = recover(&disk.after_power_loss(|_| 0)).map_or(0, |(found, _)| found.len());
        let lost = source.buckets().len() - found;
        // Rounds are 40 ms apart: 25 of them are between two syncs, and one more after the last.
        assert!(lost <= 3 * 27, "{lost} buckets at {millis} ms");
        if let Some(job) = journal.snapshot_due(stamp(millis)) {
            logs += 1;
            journal.on_snapshot(job.run(&source), stamp(millis));
        }
    }
    assert!(logs > 3, "{logs} logs");
}

#[test]
fn a_thread_of_the_disk_that_panics_is_a_failure() {
    /// A source that panics when a snapshot is written.
    struct Broken(Source);

    impl BucketSource for Broken {
        fn shards(&self) -> usize {
            SHARDS
        }

        fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder) {
            self.0.collect_changed(shards, out);
        }

        fn collect_all(&self, _: usize, _: &mut BlockEncoder) {
            panic!("a bug");
        }

        fn collect_changed_delays(&self, _: &mut BlockEncoder) {}

        fn collect_all_delays(&self, _: usize, _: &mut BlockEncoder) -> bool {
            false
        }

        fn numbers_version(&self) -> u64 {
            1
        }

        fn numbers(&self) -> Vec<u8> {
            Vec::new()
        }

        fn stop_collecting(&self) {}
    }
    let (disk, source) = (SimulatedDisk::default(), Broken(Source::default()));
    for tag in 0..100 {
        source.0.set(0, tag, &bucket(tag));
    }
    let journal = begin(&disk, &Recovered::default(), stamp(0));
    let stats = journal.stats();
    let thread = JournalThread::start(journal, Arc::new(source), Clock::monotonic()).unwrap();
    while stats.lock().failing_since.is_none() {
        std::thread::yield_now();
    }
    assert!(stats.lock().last_error.as_deref().unwrap().contains("panicked"));
    thread.close();
    assert!(!recover(&disk).unwrap().1.is_clean, "changes after the panic are missing");
}

/// Limits were changed while a round collected what had changed: their buckets were written under numbers that came
/// with the next round, and a process that was killed before that had buckets that nobody found.
#[test]
fn numbers_that_change_during_a_round_are_in_that_round() {
    #[derive(Default)]
    struct Reloaded(Source, AtomicU64);
    impl Reloaded {
        fn policy(&self) -> Policy {
            let since = Timestamp::from_nanos(self.numbers_version());
            Policy::new(vec![Limit::new("A").unwrap()]).unwrap().replacing(&Policy::default(), since)
        }
    }
    impl BucketSource for Reloaded {
        fn shards(&self) -> usize {
            SHARDS
        }

        fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder) {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.collect_changed(shards, out);
        }

        fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
            self.0.collect_all(shard, out);
        }

        fn collect_changed_delays(&self, _: &mut BlockEncoder) {}

        fn collect_all_delays(&self, _: usize, _: &mut BlockEncoder) -> bool {
            false
        }

        fn numbers_version(&self) -> u64 {
            1 + self.1.load(Ordering::Relaxed)
        }

        fn numbers(&self) -> Vec<u8> {
            encode_numbers(&self.policy(), self.policy().since())
        }

        fn stop_collecting(&self) {}
    }
    let (disk, source) = (SimulatedDisk::default(), Reloaded::default());
    let mut journal = begin(&disk, &Recovered::default(), stamp(0));
    source.0.set(0, 1, &bucket(1));
    journal.round(&source, stamp(1));
    let (_, recovered) = recover(&disk).unwrap();
    assert_eq!(in_force_since(&recovered.numbers), Timestamp::from_nanos(2));
}

#[test]
fn what_was_committed_survives_a_power_loss() {
    let (disk, source) = (SimulatedDisk::default(), Arc::new(Source::default()));
    let journal = begin(&disk, &Recovered::default(), stamp(0));
    let stats = journal.stats();
    let thread = JournalThread::start(journal, Arc::clone(&source), Clock::monotonic()).unwrap();
    // Logs are short in tests: they are replaced again and again meanwhile.
    for tag in 0..300 {
        source.set(0, tag % 100, &bucket(tag));
        block_on(thread.committed());
        let (found, _) = recover(&disk.after_power_loss(|_| 0)).unwrap();
        assert_eq!(found, source.buckets(), "{tag}");
    }
    assert!(stats.lock().snapshots > 0);
    // A disk that fails keeps nobody waiting.
    disk.set_faults(Faults { syncs: Some(ErrorKind::Other), ..Faults::default() });
    source.set(0, 1, &bucket(1));
    block_on(thread.committed());
    assert!(stats.lock().failing_since.is_some());
    thread.close();
    block_on(thread.committed());
}

#[test]
fn a_second_process_gets_an_error_until_the_first_has_ended() {
    let disk = SimulatedDisk::default();
    let journal = begin(&disk, &Recovered::default(), stamp(0));
    assert_eq!(Journal::lock(&disk).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(journal);
    assert!(Journal::lock(&disk).unwrap().is_some());
}

#[test]
fn files_of_two_journals_are_not_mixed() {
    let (disk, _, name) = small_file();
    let other = Identity { hash_key: [1, 2], ..IDENTITY };
    let elsewhere = SimulatedDisk::default();
    let recovered = Recovered { generation: 1, ..Recovered::default() };
    let lock = Journal::lock(&elsewhere).unwrap();
    drop(Journal::begin(elsewhere.clone(), lock, other, &recovered, None, stamp(9)));
    let second = FileName::log(2).to_string();
    disk.put(&second, elsewhere.bytes(&second).unwrap());
    let error = recover(&disk).unwrap_err();
    assert!(matches!(&error, JournalError::Mixed { name } if *name == second), "{error}");
    assert!(names(&disk).contains(&name));
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change { shard: usize, tag: u64 },
    Remove { shard: usize, tag: u64 },
    Round,
    Sync,
    BeginSnapshot,
    GoOnWithSnapshot,
    Break(Faults),
    Repair,
    Kill,
    PowerLoss { kept: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shard_and_tag = || (0..SHARDS, 0..6_u64);
    let faults = prop_oneof![
        (0..2_000_usize).prop_map(|room| Faults { room: Some(room), ..Faults::default() }),
        Just(Faults { writes: Some(ErrorKind::Other), ..Faults::default() }),
        Just(Faults { syncs: Some(ErrorKind::Other), ..Faults::default() }),
    ];
    let step = prop_oneof![
        12 => shard_and_tag().prop_map(|(shard, tag)| Step::Change { shard, tag }),
        2 => shard_and_tag().prop_map(|(shard, tag)| Step::Remove { shard, tag }),
        8 => Just(Step::Round),
        4 => Just(Step::Sync),
        3 => Just(Step::BeginSnapshot),
        8 => Just(Step::GoOnWithSnapshot),
        1 => faults.prop_map(Step::Break),
        3 => Just(Step::Repair),
        1 => Just(Step::Kill),
        1 => (0..4_000_usize).prop_map(|kept| Step::PowerLoss { kept }),
    ];
    prop::collection::vec(step, 0..120)
}

/// The journal of a process, and what its files must have.
struct Process {
    disk: SimulatedDisk,
    source: Source,
    journal: Journal<SimulatedDisk>,
    snapshot: Option<SnapshotJob<SimulatedDisk>>,
    /// All states of all buckets, in their order, as they were after each change.
    history: Vec<Buckets>,
    /// The last of `history` that a process that is killed must find, and one that finds its disk after a power loss.
    written: usize,
    synced: usize,
    millis: u64,
}

impl Process {
    fn new() -> Self {
        Self::start(SimulatedDisk::default(), Source::default(), Recovered::default(), 0)
    }

    fn start(disk: SimulatedDisk, source: Source, recovered: Recovered, millis: u64) -> Self {
        let journal = begin(&disk, &recovered, stamp(millis));
        let history = vec![source.buckets()];
        Self { disk, source, journal, snapshot: None, history, written: 0, synced: 0, millis }
    }

    fn take(&mut self, step: Step) {
        self.millis += 1_001;
        let at = stamp(self.millis);
        match step {
            Step::Change { shard, tag } => self.source.set(shard, tag, &bucket(self.millis)),
            Step::Remove { shard, tag } => self.source.remove::<TokenBucketState>(shard, tag),
            Step::Round => self.journal.round(&self.source, at),
            Step::Sync => {
                let upto = self.written;
                if let Some(job) = self.journal.sync_due(at.clock) {
                    self.journal.on_synced(job.run(), at);
                    if failing_since(&self.journal).is_none() {
                        self.synced = upto;
                    }
                }
            }
            Step::BeginSnapshot if self.snapshot.is_none() => self.snapshot = self.journal.snapshot_due(at),
            Step::GoOnWithSnapshot => self.step_snapshot(at),
            Step::Break(faults) => self.disk.set_faults(faults),
            Step::Repair => self.disk.set_faults(Faults::default()),
            Step::Kill => self.restart(self.disk.clone(), self.written),
            Step::PowerLoss { kept } => {
                let disk = self.disk.after_power_loss(|unsynced| kept.min(unsynced));
                self.restart(disk, self.synced);
            }
            Step::BeginSnapshot => {}
        }
        self.history.push(self.source.buckets());
        if matches!(step, Step::Round) && failing_since(&self.journal).is_none() {
            self.written = self.history.len() - 1;
        }
    }

    fn step_snapshot(&mut self, at: Stamp) {
        if let Some(done) = self.snapshot.as_mut().and_then(|job| job.step(&self.source)) {
            self.snapshot = None;
            self.journal.on_snapshot(done, at);
        }
    }

    /// Ends the process without a warning, reads its files, and goes on with what was found.
    fn restart(&mut self, disk: SimulatedDisk, at_least: usize) {
        let released = SimulatedDisk::default();
        disk.set_faults(Faults::default());
        for name in names(&disk) {
            released.put(&name, disk.bytes(&name).unwrap());
        }
        let (found, recovered) = recover(&released).unwrap();
        for shard in 0..SHARDS {
            for tag in 0..6 {
                let name = (shard, TokenBucketState::KIND, tag);
                let state = found.get(&name);
                let since = &self.history[at_least..];
                assert!(since.iter().any(|buckets| buckets.get(&name) == state), "{name:?} is {state:?}");
            }
        }
        let source = Source::default();
        source.lock().0 = found;
        *self = Self::start(released, source, recovered, self.millis);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_to_the_disk_no_kept_bucket_is_lost(steps in steps()) {
        let mut process = Process::new();
        for step in steps {
            process.take(step);
        }
        process.take(Step::Repair);
        process.take(Step::Kill);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), with_header: bool) {
        let (disk, _, name) = small_file();
        let bytes = match with_header {
            true => [&disk.bytes(&name).unwrap()[..HEADER_LEN], &bytes].concat(),
            false => bytes,
        };
        disk.put(&name, bytes);
        let _ = recover(&disk);
    }
}
