//! Seeds that hold for ever: the same seed gives the same history, bugs that were found stay found.

use tollway_simulator::{Plant, simulate};

/// The simulated seconds of a seed that finds a planted bug.
const SECONDS: u64 = 20_000;

/// The seed that finds each planted bug. Any of the first hundred would do.
const FOUND_BY: [(Plant, u64); Plant::ALL.len()] = [
    (Plant::EvictsWhenFull, 6),
    (Plant::RefundsTwice, 0),
    (Plant::DropsFormer, 46),
    (Plant::DenialsCost, 2),
    (Plant::ExpiresEarly, 0),
    (Plant::NeverClamps, 10),
    (Plant::RepeatsCalls, 0),
    (Plant::LosesMore, 2),
    (Plant::ForgetsDelays, 2),
    (Plant::SkipsSyncs, 0),
    (Plant::LosesRounds, 0),
    (Plant::DropsLastBlock, 0),
    (Plant::ForgetsStrict, 0),
];

#[test]
fn the_same_seed_gives_the_same_history() {
    let [one, again] = [(); 2].map(|()| simulate(11, 5_000, None));
    assert!(one.counts()["decisions"] > 50, "{:?}", one.counts());
    assert_eq!(one.hash(), again.hash());
    assert_ne!(one.hash(), simulate(12, 5_000, None).hash());
    // A store that is full: which expired bucket makes room depends on the hashes of ids.
    let [one, again] = [(); 2].map(|()| simulate(46, SECONDS, Some(Plant::DropsFormer)));
    assert_eq!(one.hash(), again.hash());
}

/// Fails if a promise is broken within so many simulated seconds of a seed.
fn expect_kept_promises(seed: u64, seconds: u64) {
    let history = simulate(seed, seconds, None);
    assert!(history.violations().is_empty(), "seed {seed}: {:#?}", history.violations());
}

#[test]
fn no_seed_breaks_a_promise() {
    for seed in 0..5 {
        expect_kept_promises(seed, 5_000);
    }
}

/// A limit was changed at the very moment of a grant, and the ledger went on with its old numbers.
#[test]
fn a_change_at_the_moment_of_a_grant_is_judged_by_the_new_numbers() {
    expect_kept_promises(53, 46_500);
}

/// A server was stopped and started again, and the power was lost before the name of its new log was on the disk: the
/// files looked as if nothing had happened since the stop, and strict limits gave a second burst.
#[test]
fn a_log_whose_name_is_lost_is_no_orderly_end() {
    for seed in [1, 8] {
        expect_kept_promises(seed, 10_000);
    }
}

/// The numbers of a limit came back, and an expired bucket that was kept for another limit hid the newer one.
#[test]
fn numbers_that_come_back_find_no_bucket_from_before() {
    expect_kept_promises(226, 6_000);
}

/// A limit was changed while a snapshot was written, and the power was lost before the log had the new numbers on the
/// disk: the buckets that the snapshot had under them were not found.
#[test]
fn buckets_of_a_snapshot_are_found_under_its_numbers() {
    for seed in [26, 262] {
        expect_kept_promises(seed, 1_000);
    }
}

/// A snapshot had newer numbers than what was left of the log, and a bucket that was written under them: it gave the
/// same answers as the older one until its limit was changed, and the oracle went on with the older one.
#[test]
fn a_bucket_of_a_snapshot_may_be_newer_than_the_numbers_of_the_log() {
    expect_kept_promises(323, 176_000);
}

/// A bucket was reset that its process had decided by itself while Redis was unreachable, and it was still there at the
/// next failure: a share of a limit fills at a rate of its own, and its bucket is found by that.
#[test]
fn a_reset_gives_back_what_the_share_of_a_process_had() {
    expect_kept_promises(237, 786_500);
}

/// A denied request moved a bucket to slower numbers, and a failover lost that: it went on at the rate before, faster
/// than the ledger had it.
#[test]
fn a_failover_may_lose_that_a_bucket_got_other_numbers() {
    expect_kept_promises(523, 862_300);
}

#[test]
fn every_planted_bug_is_found() {
    for (plant, seed) in FOUND_BY {
        let history = simulate(seed, SECONDS, Some(plant));
        assert!(!history.violations().is_empty(), "{plant:?} is not found by seed {seed}");
        let without = simulate(seed, SECONDS, None);
        assert!(without.violations().is_empty(), "seed {seed}: {:#?}", without.violations());
    }
}
