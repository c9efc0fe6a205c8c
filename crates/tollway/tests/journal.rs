//! Tests of engines whose memory is kept in a journal: a restart changes no decision, and after a crash no id gets more
//! than its limit says.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollway::core::algorithm::{QuotaCommand, QuotaOperation, QuotaOutcome, QuotaTtl, TtlUnit};
use tollway::core::{Bill, Nanos, Policy, Timestamp};
use tollway::engine::Engine;
use tollway::journal::{FileSummary, JournalSettings, JournalSync};
use tollway::{Clock, Config, block_on};
use tollway_testbed::Random;

const POLICY: &str = "
limits:
  Bucket: { burst: 5, count: 5, period: 10s }
  Log: { algorithm: sliding_log, count: 4, period: 10s }
  Rate: { algorithm: smoothed_rate, count: 6, period: 10s }
  Quota: { algorithm: quota, count: 5, period: 7s }
  Fixed: { algorithm: fixed_window, count: 5, period: 10s }
  Sliding: { algorithm: sliding_window, count: 5, period: 10s }
rules:
  upload: \"Or('user:3/s', 'user:5/10s')\"
";
const LIMITS: [&str; 6] = ["Bucket", "Log", "Rate", "Quota", "Fixed", "Sliding"];

fn policy(text: &str) -> Policy {
    Config::parse(text, "policy.yaml").unwrap().policy
}

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_millis(millis)
}

fn open(dir: &Path, text: &str, clock: &Clock) -> Engine {
    let settings = JournalSettings { dir: dir.to_owned(), sync: JournalSync::Never };
    Engine::with_journal(policy(text), 10_000, &settings, clock.clone()).unwrap()
}

fn allowed(engine: &Engine, limit: &str, id: &str) -> bool {
    let policy = engine.policy();
    let charge = policy.charge(limit, id.as_bytes(), 1).unwrap();
    block_on(engine.settle(&[Bill::one(&charge)]))[0].allowed()
}

/// Waits until a journal has written all changes so far.
fn wait_until_written(engine: &Engine, clock: &Clock) {
    let waited = std::time::Instant::now();
    clock.advance(Duration::from_nanos(1));
    while engine.journal_stats().unwrap().kept_until < clock.now() {
        assert!(waited.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::yield_now();
    }
}

/// Returns a copy of a directory, as a process that was killed leaves it.
fn copy_of(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// Makes a random request of each kind, and returns all answers as text.
fn random_answers(engine: &Engine, random: &mut Random) -> String {
    let policy = engine.policy();
    let (limit, id) = (random.pick(&LIMITS), format!("id-{}", random.below(8)));
    let cost = 1 + random.below(2);
    let charge = policy.charge(limit, id.as_bytes(), cost).unwrap();
    let mut answers = match random.below(12) {
        0 => format!("{:?}", block_on(engine.refund_charges(std::slice::from_ref(&charge)))),
        1 => format!("{:?}", block_on(engine.reset_charges(std::slice::from_ref(&charge)))),
        _ => format!("{:?}", block_on(engine.settle(&[Bill::one(&charge)]))),
    };
    let rule = policy.rules()[0].keyed();
    let bill = rule.bill(|_| Ok::<_, Infallible>(Some(&id))).unwrap();
    answers += &format!("{:?}", block_on(engine.settle(&[Bill::rule(&bill)])));
    let operation = match random.below(4) {
        0 => QuotaOperation::Insert {
            left: random.below(9),
            lifetime: QuotaTtl { value: 3, unit: TtlUnit(2) },
            over_live: true,
        },
        1 => QuotaOperation::Purge,
        _ => QuotaOperation::Query,
    };
    let command = QuotaCommand { pair: id.as_bytes(), operation, ttl_max: Nanos::from_secs(60) };
    let mut outcomes: Vec<QuotaOutcome> = Vec::new();
    block_on(engine.run_quota_commands(&[command], &mut outcomes));
    answers + &format!("{outcomes:?}")
}

/// An engine with a journal, and one that keeps everything in memory and never ends.
struct Twins {
    dir: TempDir,
    clock: Clock,
    journaled: Option<Engine>,
    oracle: Engine,
}

impl Twins {
    /// Ends the process with the journal, and starts another one with this policy.
    fn restart(&mut self, text: &str) {
        drop(self.journaled.take());
        self.journaled = Some(open(self.dir.path(), text, &self.clock));
    }
}

/// Checks that both give the same answers to random requests, between which `disturb` does something to them.
fn assert_same_answers(disturb: impl Fn(&mut Twins, &mut Random)) {
    for seed in 0..8 {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::manual(at(1_000_000)));
        let oracle = Engine::with(policy(POLICY), tollway::store::memory::Memory::new(10_000), clock.clone());
        let journaled = Some(open(dir.path(), POLICY, &clock));
        let mut twins = Twins { dir, clock, journaled, oracle };
        let (mut one, mut other, mut changes) = (Random::new(seed), Random::new(seed), Random::new(!seed));
        for step in 0..600 {
            twins.clock.advance(Duration::from_millis(changes.below(400)));
            disturb(&mut twins, &mut changes);
            assert_eq!(
                random_answers(twins.journaled.as_ref().unwrap(), &mut one),
                random_answers(&twins.oracle, &mut other),
                "{seed} {step}"
            );
        }
    }
}

#[test]
fn a_restart_changes_no_answer() {
    assert_same_answers(|twins, random| {
        if random.below(40) == 0 {
            twins.restart(POLICY);
        }
    });
}

#[test]
fn numbers_that_are_changed_while_the_server_is_stopped_are_as_good_as_a_reload() {
    let before = "burst: 5, count: 5, period: 10s";
    let others = [before, "burst: 8, count: 1, period: 4s", "burst: 3, count: 9, period: 20s"];
    assert_same_answers(|twins, random| {
        let (text, turn) = (POLICY.replace(before, random.pick(&others)), random.below(40));
        if turn > 1 {
            return;
        }
        // A start does not read expired buckets. So nobody has any: one that is left from numbers which a limit gets
        // back would hide what its id has used under others since then.
        for engine in [&twins.oracle, twins.journaled.as_ref().unwrap()] {
            engine.sweep(usize::MAX);
        }
        match turn {
            0 => twins.restart(&text),
            // Also numbers that were changed before the process ended.
            _ => twins.journaled.as_ref().unwrap().reload(policy(&text)),
        }
        twins.oracle.reload(policy(&text));
    });
}

#[test]
fn what_a_killed_process_has_written_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    let engine = open(dir.path(), POLICY, &clock);
    for id in 0..100 {
        for _ in 0..3 {
            assert!(allowed(&engine, "Bucket", &id.to_string()));
        }
    }
    wait_until_written(&engine, &clock);
    let copy = copy_of(dir.path());
    let killed = open(copy.path(), POLICY, &clock);
    for id in 0..100 {
        let answers: Vec<_> = (0..4).map(|_| allowed(&killed, "Bucket", &id.to_string())).collect();
        assert_eq!(answers, [true, true, false, false], "{id}");
    }
}

#[test]
fn no_answer_comes_before_what_it_decided_is_written_if_every_answer_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    let settings = JournalSettings { dir: dir.path().to_owned(), sync: JournalSync::Always };
    let engine = Engine::with_journal(policy(POLICY), 10_000, &settings, clock.clone()).unwrap();
    assert!(engine.is_awaited() && engine.spend_now("Bucket", b"a", 1).is_none());
    for limit in LIMITS.into_iter().filter(|limit| *limit != "Rate") {
        let mut left = 0;
        while allowed(&engine, limit, "alice") {
            left += 1;
            let copy = copy_of(dir.path());
            let killed = open(copy.path(), POLICY, &clock);
            let rest = (0..10).take_while(|_| allowed(&killed, limit, "alice")).count();
            assert_eq!(left + rest, if limit == "Log" { 4 } else { 5 }, "{limit}");
        }
    }
    let syncs = engine.journal_stats().unwrap().syncs;
    assert!(syncs >= 24, "{syncs} syncs");
}

#[test]
fn a_snapshot_has_all_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    let text = "limits: { Once: { burst: 1, count: 1, period: 1h } }";
    let settings = JournalSettings::at(dir.path());
    let open = |dir: &Path| {
        let settings = JournalSettings { dir: dir.to_owned(), ..settings.clone() };
        Engine::with_journal(policy(text), 1_000_000, &settings, clock.clone()).unwrap()
    };
    // Every start begins another log, and after some of them a snapshot replaces them.
    let mut ids = 0..;
    let spend = |engine: &Engine, ids: &mut std::ops::RangeFrom<usize>| {
        for id in ids.by_ref().take(5_000) {
            assert!(allowed(engine, "Once", &id.to_string()));
        }
    };
    for _ in 0..20 {
        spend(&open(dir.path()), &mut ids);
    }
    let engine = open(dir.path());
    let waited = std::time::Instant::now();
    while engine.journal_stats().unwrap().snapshots == 0 {
        assert!(waited.elapsed() < Duration::from_secs(120), "no snapshot");
        std::thread::yield_now();
    }
    spend(&engine, &mut ids);
    wait_until_written(&engine, &clock);
    let copy = copy_of(dir.path());
    let is_snapshot = |file: &Path| file.extension().is_some_and(|extension| extension == "snapshot");
    assert!(fs::read_dir(copy.path()).unwrap().any(|file| is_snapshot(&file.unwrap().path())));
    let killed = open(copy.path());
    let count = ids.next().unwrap();
    assert_eq!(killed.stats().buckets, count);
    assert!((0..count).all(|id| !allowed(&killed, "Once", &id.to_string())));
}

#[test]
fn a_limit_that_becomes_strict_or_lenient_keeps_what_was_used() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    let lenient = STRICT.replace(", after_crash: strict", "").replace("period: 4s", "period: 1h");
    let strict = STRICT.replace("period: 4s", "period: 1h");
    let limits = ["Strict", "StrictLog", "StrictQuota", "StrictFixed", "StrictSliding"];
    let engine = open(dir.path(), &lenient, &clock);
    for limit in limits {
        assert!((0..3).all(|_| allowed(&engine, limit, "alice")));
    }
    drop(engine);
    clock.advance(Duration::from_millis(1));
    let engine = open(dir.path(), &strict, &clock);
    for limit in limits {
        assert!(allowed(&engine, limit, "alice"), "{limit}");
        assert!(!allowed(&engine, limit, "alice"), "{limit} was refilled");
    }
    clock.advance(Duration::from_millis(1));
    engine.reload(policy(&lenient));
    for limit in limits {
        assert!(!allowed(&engine, limit, "alice"), "{limit} was refilled by a reload");
    }
    drop(engine);
    let engine = open(dir.path(), &strict, &clock);
    wait_until_written(&engine, &clock);
    let copy = copy_of(dir.path());
    // After a crash everybody starts empty, also if the limit was lenient until then.
    drop(engine);
    let lenient_before = copy_of(dir.path());
    drop(open(lenient_before.path(), &lenient, &clock));
    let engine = open(lenient_before.path(), &lenient, &clock);
    wait_until_written(&engine, &clock);
    for killed in [copy, copy_of(lenient_before.path())] {
        let killed = open(killed.path(), &strict, &clock);
        for id in ["alice", "bob"] {
            assert!(limits.iter().all(|limit| !allowed(&killed, limit, id)), "{id} after a crash");
        }
    }
}

#[test]
fn what_was_written_before_a_crash_does_not_count_however_long_a_start_takes() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::monotonic());
    let text = "limits: { Strict: { burst: 4, count: 4, period: 1h, after_crash: strict } }";
    let lenient = text.replace("strict }", "lenient }");
    let engine = open(dir.path(), &lenient, &clock);
    assert!(allowed(&engine, "Strict", "alice"));
    let written = engine.clock().now();
    while engine.journal_stats().unwrap().kept_until < written {
        std::thread::yield_now();
    }
    let killed = open(copy_of(dir.path()).path(), text, &clock);
    assert!(!allowed(&killed, "Strict", "alice"));
}

#[test]
fn a_strict_window_that_ended_after_a_crash_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    // Windows are those of the clock: the one of the start ends two seconds later.
    let clock = Clock::manual(at(8_000));
    let text = "limits: { Fixed: { algorithm: fixed_window, count: 2, period: 10s, after_crash: strict }, Any: { burst: 9, count: 9, period: 1s } }";
    let engine = open(dir.path(), text, &clock);
    let policy = engine.policy();
    let charges = [policy.charge("Fixed", b"alice", 1).unwrap(), policy.charge("Any", b"alice", 1).unwrap()];
    let settle = || block_on(engine.settle(&[Bill::new(&charges).unwrap()]))[0].allowed();
    assert!(!settle());
    clock.advance(Duration::from_secs(3));
    assert!(settle() && settle() && !settle());
}

#[test]
fn a_strict_id_that_waited_for_a_place_starts_empty() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000));
    let text = "
limits:
  Short: { burst: 1, count: 1, period: 1s }
  Strict: { burst: 4, count: 4, period: 1h, after_crash: strict }
  StrictLog: { algorithm: sliding_log, count: 4, period: 1h, after_crash: strict }
";
    let settings = JournalSettings::at(dir.path());
    for (limit, is_bill) in [("Strict", false), ("StrictLog", false), ("Strict", true)] {
        let engine = Engine::with_journal(policy(text), 2, &settings, clock.clone()).unwrap();
        assert!(allowed(&engine, "Short", "a") && allowed(&engine, "Short", "b"));
        assert!(!allowed(&engine, limit, "alice"), "the store is full");
        // By now the others have expired, but nobody has swept them.
        clock.advance(Duration::from_secs(2));
        let policy = engine.policy();
        let charges = [policy.charge(limit, b"alice", 1).unwrap(), policy.charge("Short", b"c", 1).unwrap()];
        let bill = if is_bill { Bill::new(&charges).unwrap() } else { Bill::one(&charges[0]) };
        assert!(!block_on(engine.settle(&[bill]))[0].allowed(), "{limit} started full");
        drop(engine);
        fs::remove_dir_all(dir.path()).unwrap();
    }
}

const STRICT: &str = "
limits:
  Strict: { burst: 4, count: 4, period: 4s, after_crash: strict }
  StrictLog: { algorithm: sliding_log, count: 4, period: 4s, after_crash: strict }
  StrictQuota: { algorithm: quota, count: 4, period: 4s, after_crash: strict }
  StrictFixed: { algorithm: fixed_window, count: 4, period: 4s, after_crash: strict }
  StrictSliding: { algorithm: sliding_window, count: 4, period: 4s, after_crash: strict }
  Lenient: { burst: 4, count: 4, period: 4s }
";

#[test]
fn strict_limits_start_empty_after_a_crash_and_not_after_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    // Nothing is known at first.
    let engine = open(dir.path(), STRICT, &clock);
    assert!(!allowed(&engine, "Strict", "a") && allowed(&engine, "Lenient", "a"));
    clock.advance(Duration::from_secs(8));
    for limit in ["Strict", "StrictLog", "StrictQuota", "StrictFixed", "StrictSliding"] {
        assert!(allowed(&engine, limit, "a"), "{limit}");
    }
    // An orderly end loses nothing.
    drop(engine);
    let engine = open(dir.path(), STRICT, &clock);
    for limit in ["Strict", "StrictLog", "StrictQuota", "StrictFixed", "StrictSliding"] {
        assert!(allowed(&engine, limit, "a"), "{limit}");
        assert!(allowed(&engine, limit, "b"), "{limit}");
    }
    // A crash: neither known nor unknown ids have anything left.
    let copy = copy_of(dir.path());
    let crashed = open(copy.path(), STRICT, &clock);
    for limit in ["Strict", "StrictLog", "StrictQuota", "StrictFixed", "StrictSliding"] {
        for id in ["a", "b", "c"] {
            assert!(!allowed(&crashed, limit, id), "{limit}:{id}");
        }
    }
    assert!(allowed(&crashed, "Lenient", "c"));
    // One unit comes back in a second, also after another restart.
    clock.advance(Duration::from_secs(1));
    assert!(allowed(&crashed, "Strict", "a") && !allowed(&crashed, "Strict", "a"));
    drop(crashed);
    let again = open(copy.path(), STRICT, &clock);
    assert!(!allowed(&again, "Strict", "a"));
    assert!(allowed(&again, "Strict", "d") && !allowed(&again, "Strict", "d"));
    // When a bucket could have filled, unknown ids have a full one.
    clock.advance(Duration::from_secs(3));
    let passed = (0..9).filter(|_| allowed(&again, "Strict", "e")).count();
    assert_eq!(passed, 4);
}

#[test]
fn strict_limits_work_without_a_disk() {
    let engine = Engine::new(policy(STRICT));
    assert!(!allowed(&engine, "Strict", "a") && allowed(&engine, "Lenient", "a"));
    engine.reload(policy(STRICT));
    assert!(!allowed(&engine, "Strict", "b"));
}

#[test]
fn a_directory_has_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(0));
    let engine = open(dir.path(), POLICY, &clock);
    let settings = JournalSettings::at(dir.path());
    let second = Engine::with_journal(policy(POLICY), 10, &settings, clock.clone()).unwrap_err();
    let text = tollway::core::ErrorChain(&second).to_string();
    assert!(text.contains("in use by another process; stop that process"), "{text}");
    engine.close_journal();
    Engine::with_journal(policy(POLICY), 10, &settings, clock).unwrap();
}

#[test]
fn only_the_owner_can_read_the_files_and_a_bad_header_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(0));
    let engine = open(dir.path(), POLICY, &clock);
    assert!(allowed(&engine, "Bucket", "a"));
    drop(engine);
    let log = dir.path().join("0000000000000001.log");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let mut bytes = fs::read(&log).unwrap();
    let summary = FileSummary::of(&bytes).unwrap();
    assert!(summary.is_complete && summary.buckets == 1);
    bytes[20] ^= 1;
    fs::write(&log, bytes).unwrap();
    let settings = JournalSettings::at(dir.path());
    let error = Engine::with_journal(policy(POLICY), 10, &settings, clock).unwrap_err();
    let text = tollway::core::ErrorChain(&error).to_string();
    assert!(
        text.contains("0000000000000001.log cannot be used: its header is damaged; move it away"),
        "{text}"
    );
}

#[test]
fn fewer_buckets_than_before_are_kept_within_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000));
    let engine = open(dir.path(), POLICY, &clock);
    for id in 0..100 {
        assert!(allowed(&engine, "Bucket", &id.to_string()));
    }
    drop(engine);
    let settings = JournalSettings::at(dir.path());
    let engine = Engine::with_journal(policy(POLICY), 40, &settings, clock).unwrap();
    assert_eq!(engine.stats().buckets, 40);
}

#[test]
fn an_expired_bucket_does_not_take_the_place_of_a_live_one() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000));
    let text =
        "limits: { Short: { burst: 2, count: 2, period: 1s }, Long: { burst: 2, count: 2, period: 1h } }";
    let engine = open(dir.path(), text, &clock);
    for id in 0..100 {
        assert!(allowed(&engine, "Short", &id.to_string()));
    }
    for id in 0..50 {
        assert!(allowed(&engine, "Long", &id.to_string()) && allowed(&engine, "Long", &id.to_string()));
    }
    drop(engine);
    // By now the short ones have expired. There is a place for each of the others, but not for all of both.
    clock.advance(Duration::from_secs(60));
    let settings = JournalSettings::at(dir.path());
    let engine = Engine::with_journal(policy(text), 50, &settings, clock).unwrap();
    assert_eq!(engine.stats().buckets, 50);
    for id in 0..50 {
        assert!(!allowed(&engine, "Long", &id.to_string()), "{id} started full");
    }
}

#[test]
fn changes_of_many_threads_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(at(1_000_000));
    let text = "limits: { Big: { burst: 1000000, count: 1, period: 1h } }";
    let engine = Arc::new(open(dir.path(), text, &clock));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let engine = Arc::clone(&engine);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..20_000 {
                    assert!(allowed(&engine, "Big", &random.below(5_000).to_string()));
                }
            });
        }
    });
    let left = |engine: &Engine| -> Vec<u64> {
        let policy = engine.policy();
        let left = |id: u64| {
            let id = id.to_string();
            let charge = policy.charge("Big", id.as_bytes(), 0).unwrap();
            block_on(engine.settle(&[Bill::one(&charge)]))[0].remaining
        };
        (0..5_000).map(left).collect()
    };
    let before = left(&engine);
    drop(engine);
    assert_eq!(left(&open(dir.path(), text, &clock)), before);
}
