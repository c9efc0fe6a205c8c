//! A master and four gatekeepers, each a process of its own, under load: who gets through, in which order, and what
//! happens when the master is gone.

mod load;
mod measured;
mod members;
mod overheard;

use std::env;
use std::time::Instant;

use tollway_testbed::RedisServer;

pub(crate) use self::load::Load;
use self::load::Sent;
pub(crate) use self::measured::{Measured, failures};
pub(crate) use self::members::{BURST, Fleet, GUARDS, MAX_DELAY, RATE};

/// Returns how many requests must have been delayed before a run ends: about four seconds of them, or as many seconds
/// as `cargo xtask soak` wants.
fn enough_delays() -> u64 {
    let seconds: u64 = env::var("TOLLWAY_SOAK_SECS").map_or(4, |seconds| seconds.parse().unwrap());
    seconds * u64::from(RATE)
}

/// A burst passes at once, and then the rate, in order. Nobody else is delayed.
///
/// The bounds hold however the machine schedules the processes: what passes while a gatekeeper has not yet heard of a
/// delay is counted by the gatekeeper, and the rest is bounded by the rate over the time that the service measured.
async fn greed_is_held_to_its_rate(logic: &str) {
    let fleet = Fleet::start(logic, "memory").await;
    let load = Load::start(&fleet).await;
    fleet.reaches("delayed", enough_delays()).await;
    let sent = load.end().await;
    let measured = Measured::new(&fleet).await;
    println!("{logic}\n{measured}");
    let failures = failures(&sent);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(measured.others_delayed, 0);
    assert!(measured.at_once >= u64::from(BURST) && measured.rejected > 0);
    // Five percent; and each gatekeeper may have one at the same place.
    let by_the_rate = 1.05 * f64::from(RATE) * measured.seconds + GUARDS as f64;
    assert!(measured.passed - measured.at_once as f64 <= by_the_rate, "{by_the_rate} may pass");
    // Only a request that did not wait overtakes, and then at most those that waited.
    let slipped = measured.at_once - u64::from(BURST);
    assert!(measured.overtaken as u64 <= slipped * u64::from(RATE) * MAX_DELAY.as_secs());
}

#[tokio::test]
async fn greed_is_held_to_its_rate_by_a_window() {
    greed_is_held_to_its_rate("window").await;
}

#[tokio::test]
async fn greed_is_held_to_its_rate_by_gcra() {
    greed_is_held_to_its_rate("gcra").await;
}

/// Nobody fails or waits because of a master that is gone; and when it is back, what it says holds again.
async fn a_master_may_die(logic: &str, store: &str) {
    let mut fleet = Fleet::start(logic, store).await;
    let load = Load::start(&fleet).await;
    fleet.reaches("delayed", u64::from(RATE)).await;
    fleet.kill_master();
    // What it said holds until its time has passed.
    for guard in &fleet.guards {
        guard.shows("master_connected", |value| value == 0).await;
        guard.shows("known_delays", |known| known == 0).await;
        guard.shows("waiting", |waiting| waiting == 0).await;
    }
    let settled = Instant::now();
    let delayed = fleet.count("delayed").await;
    fleet.reaches("accepted", fleet.count("accepted").await + 100).await;
    assert_eq!(fleet.count("delayed").await, delayed, "nobody waits by nobody's word");
    let gone = settled..Instant::now();
    fleet.restart_master().await;
    let rejected = fleet.count("rejected").await;
    fleet.reaches("delayed", delayed + u64::from(RATE)).await;
    fleet.reaches("rejected", rejected + u64::from(RATE)).await;
    let sent = load.end().await;
    let failures = failures(&sent);
    assert!(failures.is_empty(), "{failures:?}");
    let rejected = |sent: &&Sent| sent.answer == Ok(503) && gone.contains(&sent.at);
    assert_eq!(sent.iter().filter(rejected).count(), 0, "nobody is turned away by nobody's word");
}

#[tokio::test]
async fn a_master_may_die_that_kept_a_window_in_memory() {
    a_master_may_die("window", "memory").await;
}

#[tokio::test]
async fn a_master_may_die_that_reckoned_by_gcra_in_redis() {
    let redis = RedisServer::start();
    // On a busy machine an answer takes longer than it should anywhere, and without one nobody is delayed.
    let store = format!("{}?deadline=2s", redis.url());
    a_master_may_die("gcra", &store).await;
}
