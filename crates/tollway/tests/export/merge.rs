//! Tests buckets that both sides have, clocks that differ, and buckets that cannot be carried.

use std::time::Duration;

use tollway::core::{Bill, Nanos};
use tollway::engine::Engine;
use tollway::export::{ExportReader, ImportError, ImportSettings};
use tollway::{Clock, block_on};

use crate::stores::{Kept, Place, at, policy};

const POLICY: &str = "
limits:
  A: { burst: 10, count: 10, period: 100s }
  Log: { algorithm: sliding_log, count: 10, period: 100s }
  Strict: { burst: 4, count: 4, period: 4s, after_crash: strict }
";

fn remaining(engine: &Engine, limit: &str, id: &str) -> u64 {
    let policy = engine.policy();
    let charge = policy.charge(limit, id.as_bytes(), 0).unwrap();
    block_on(engine.settle(&[Bill::one(&charge)]))[0].remaining
}

fn spend(engine: &Engine, limit: &str, id: &str, cost: u64) -> bool {
    let policy = engine.policy();
    let charge = policy.charge(limit, id.as_bytes(), cost).unwrap();
    block_on(engine.settle(&[Bill::one(&charge)]))[0].allowed()
}

fn places(clock: &Clock) -> [Place; 3] {
    [Place::redis(POLICY, false, clock), Place::redis(POLICY, true, clock), Place::memory(POLICY, clock)]
}

#[test]
fn if_both_sides_have_a_bucket_the_stricter_state_stays() {
    let clock = Clock::manual(at(1_000_000));
    for target in places(&clock) {
        let source = Place::redis(POLICY, false, &clock);
        for limit in ["A", "Log"] {
            assert!(
                spend(&source.engine, limit, "more here", 6) && spend(&source.engine, limit, "more there", 2)
            );
            assert!(
                spend(&target.engine, limit, "more here", 3) && spend(&target.engine, limit, "more there", 5)
            );
            assert!(spend(&target.engine, limit, "only there", 4));
        }
        let report = target.import(&source.export(), None, ImportSettings::default());
        assert_eq!((report.imported, report.total()), (4, 4));
        for limit in ["A", "Log"] {
            let left = ["more here", "more there", "only there", "nobody"];
            assert_eq!(left.map(|id| remaining(&target.engine, limit, id)), [4, 5, 6, 10], "{limit}");
        }
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &clock);
    assert!(spend(&source.engine, "A", "a", 6));
    for target in places(&clock) {
        let dry = ImportSettings::default().with_dry_run(true);
        assert_eq!(target.import(&source.export(), None, dry).imported, 1);
        assert_eq!(remaining(&target.engine, "A", "a"), 10);
    }
}

/// A second of waiting gives a tenth of a unit back, whatever the clocks show.
#[test]
fn moments_are_translated_to_the_clock_of_the_target() {
    for ahead in [-20_000_i64, 20_000] {
        let source_clock = Clock::manual(at(1_000_000));
        let source = Place::redis(POLICY, false, &source_clock);
        assert!(spend(&source.engine, "A", "a", 5) && spend(&source.engine, "Log", "a", 5));
        let file = source.export();
        // Ten seconds later by the wall clock, and the target's clock shows something else.
        let target_clock = Clock::manual(at(1_010_000_u64.saturating_add_signed(ahead)));
        target_clock.set_wall(at(1_010_000));
        let target = Place::memory(POLICY, &target_clock);
        assert_eq!(target.import(&file, None, ImportSettings::default()).imported, 2);
        assert_eq!(remaining(&target.engine, "A", "a"), 6, "one unit came back in ten seconds");
        target_clock.advance(Duration::from_secs(89));
        assert_eq!(remaining(&target.engine, "Log", "a"), 5);
        target_clock.advance(Duration::from_secs(1));
        assert_eq!(remaining(&target.engine, "Log", "a"), 10);
    }
}

/// A wall clock that was set back does not make time run back: nothing comes back before its time.
#[test]
fn a_wall_clock_that_steps_back_counts_as_one_that_stands_still() {
    let source_clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &source_clock);
    assert!(spend(&source.engine, "A", "a", 5));
    let file = source.export();
    let target_clock = Clock::manual(at(1_000_000));
    target_clock.set_wall(at(900_000));
    let target = Place::memory(POLICY, &target_clock);
    target.import(&file, None, ImportSettings::default());
    assert_eq!(remaining(&target.engine, "A", "a"), 5);
}

#[test]
fn clocks_that_differ_by_more_than_a_minute_are_refused_unless_that_is_accepted() {
    let source_clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &source_clock);
    assert!(spend(&source.engine, "A", "a", 5));
    let file = source.export();
    let target_clock = Clock::manual(at(1_090_000));
    target_clock.set_wall(at(1_000_000));
    let target = Place::memory(POLICY, &target_clock);
    let mut reader = ExportReader::open(&*file).unwrap();
    let (header, batch) = (*reader.header(), reader.next_batch().unwrap().unwrap());
    let refused = target.engine.import(&header, &batch, ImportSettings::default()).unwrap_err();
    assert!(
        matches!(refused, ImportError::Clocks { difference } if difference.abs() == Nanos::from_secs(90))
    );
    assert!(refused.to_string().starts_with("the clock of the target is 90s ahead of"), "{refused}");
    target.import(&file, None, ImportSettings::default().with_any_clock(true));
    assert_eq!(remaining(&target.engine, "A", "a"), 5);
}

#[test]
fn hashes_of_another_key_are_refused_and_those_without_a_name_are_counted() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::memory(POLICY, &clock);
    assert!(spend(&source.engine, "A", "known", 5) && spend(&source.engine, "A", "unknown", 5));
    let file = source.export();
    let mut reader = ExportReader::open(&*file).unwrap();
    let (header, batch) = (*reader.header(), reader.next_batch().unwrap().unwrap());
    assert!(!header.has_names());
    let other = Place::memory(POLICY, &clock);
    let refused = other.engine.import(&header, &batch, ImportSettings::default()).unwrap_err();
    assert!(matches!(refused, ImportError::OtherKey));
    let redis = Place::redis(POLICY, false, &clock);
    assert!(matches!(redis.engine.export_page(0), Err(ImportError::Shared)));
    let report = redis.import(&file, Some(&["A:known".to_owned()]), ImportSettings::default());
    assert_eq!((report.imported, report.unnamed, report.left_behind()), (1, 1, 1));
    assert_eq!(remaining(&redis.engine, "A", "known"), 5);
    assert!(report.to_string().contains("1 buckets left behind: only a hash of the id is known"), "{report}");
}

#[test]
fn what_a_target_does_not_know_is_counted() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &clock);
    let long = "x".repeat(600);
    for id in ["a", &long] {
        assert!(spend(&source.engine, "A", id, 5));
    }
    assert!(spend(&source.engine, "Log", "a", 5));
    clock.advance(Duration::from_secs(10));
    let file = source.export();
    let text = "limits: { Log: { burst: 10, count: 10, period: 100s } }";
    let report = Place::memory(text, &clock).import(&file, None, ImportSettings::default());
    assert_eq!((report.unknown, report.digests, report.total()), (2, 1, 3), "{report}");
    // To another Redis goes everything.
    let report = Place::redis(text, true, &clock).import(&file, None, ImportSettings::default());
    assert_eq!((report.imported, report.total()), (3, 3));
    // Longer than Redis keeps a log whose time is not its own.
    clock.advance(Duration::from_secs(5_000));
    let report = Place::redis(text, true, &clock).import(&file, None, ImportSettings::default());
    assert_eq!((report.expired, report.total()), (3, 3));
}

#[test]
fn a_full_store_counts_what_it_has_no_room_for() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &clock);
    for id in 0..20 {
        assert!(spend(&source.engine, "A", &id.to_string(), 1));
    }
    let small = Engine::with(policy(POLICY), tollway::store::memory::Memory::new(12), clock.clone());
    let dir = tempfile::tempdir().unwrap();
    let target = Place { engine: small, kept: Kept::Memory(dir) };
    let report = target.import(&source.export(), None, ImportSettings::default());
    assert_eq!((report.imported, report.no_room), (12, 8));
}

/// A number that was changed at the source before the move: as many units stay used.
#[test]
fn a_target_with_other_numbers_converts_what_was_used() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::redis(POLICY, false, &clock);
    assert!(spend(&source.engine, "A", "a", 6));
    let slower = "limits: { A: { burst: 10, count: 10, period: 1000s } }";
    let target = Place::memory(slower, &clock);
    target.import(&source.export(), None, ImportSettings::default());
    assert_eq!(remaining(&target.engine, "A", "a"), 4);
}

/// An orderly move loses nothing, so strict limits go on. A server that lost buckets stays strict about them.
#[test]
fn strict_limits_are_moved_and_stay_strict() {
    let clock = Clock::manual(at(1_000_000));
    let source = Place::memory(POLICY, &clock);
    assert!(!spend(&source.engine, "Strict", "a", 1), "nothing is known at the first start");
    clock.advance(Duration::from_secs(8));
    assert!(spend(&source.engine, "Strict", "a", 3));
    let file = source.export();
    let header = *ExportReader::open(&*file).unwrap().header();
    let target = Place::memory_for(POLICY, &clock, &header);
    target.import(&file, None, ImportSettings::default());
    assert_eq!(["a", "b"].map(|id| remaining(&target.engine, "Strict", id)), [1, 4]);
    // From Redis into a server that started just now without its buckets.
    let redis = Place::redis(POLICY, false, &clock);
    assert!(spend(&redis.engine, "Strict", "a", 1));
    let started = Place::memory(POLICY, &clock);
    started.import(&redis.export(), None, ImportSettings::default());
    assert_eq!(["a", "b"].map(|id| remaining(&started.engine, "Strict", id)), [0, 0]);
}
