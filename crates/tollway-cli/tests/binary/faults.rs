//! Faults of the machine and of the network, with real processes under load: the promise holds in each, with what the
//! documentation adds for that fault. `cargo xtask faults` runs them, as root in a network and with mounts of its own.
//!
//! Each prints what it did and what it measured.

mod network;
mod requests;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tollway_testbed::{RedisSentinels, TEST_TIMEOUT};

use self::network::{Loss, Namespaces, PartitionedCluster, command};
use self::requests::{BURST, Load, PER_SECOND, Requests};
use crate::fleet::{self, Fleet, MAX_DELAY, RATE};
use crate::run::file;
use crate::serving::Serving;

/// A limit by which requests are judged, and a quota that counts every decision.
fn policy(on_store_failure: &str) -> String {
    format!(
        "limits:\n  \
           Judged: {{ burst: {BURST}, count: {PER_SECOND}, period: 1s, on_store_failure: {on_store_failure} }}\n  \
           Counted: {{ algorithm: quota, count: 1000000000, period: 24h, on_store_failure: {on_store_failure} }}\n"
    )
}

fn serve(config: &str, arguments: &[&str]) -> Serving {
    Serving::start(&[&["--config", config, "--http", "127.0.0.1:0"], arguments].concat(), &[])
}

fn wait_until(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < TEST_TIMEOUT, "{what} did not happen");
        std::thread::yield_now();
    }
    began.elapsed()
}

fn readiness(serving: &Serving) -> String {
    let url = format!("http://{}/readyz", serving.addr);
    let page = Command::new("curl").args(["-s", "--max-time", "2", &url]).output().unwrap().stdout;
    String::from_utf8(page).unwrap()
}

/// Judges what was allowed, and prints it.
fn judge(name: &str, requests: &Requests, forgotten: f64) {
    let excess = requests.excess();
    println!("{name}: {requests}, excess {excess:.1} of at most {forgotten:.1}");
    assert!(excess <= forgotten, "{name}: {excess} more than burst + rate * d");
}

/// A full disk: decisions go on, `/readyz` tells, and when there is space again everything is kept.
#[test]
#[ignore = "needs root; cargo xtask faults disk"]
fn disk() {
    let dir = tempfile::tempdir().unwrap();
    command(&format!("mount -t tmpfs -o size=3m tmpfs {}", dir.path().display()));
    let unmount = Unmount(dir.path());
    let (config, data) = (file("faults.yaml", policy("deny")), dir.path().join("data"));
    let serving = serve(&config, &["--data", data.to_str().unwrap()]);
    let load = Load::start(&serving.addr);
    load.wait_for(500);
    let filler = dir.path().join("filler");
    // It fails when nothing is left, which is what it is for.
    let filled =
        Command::new("dd").args(["if=/dev/zero", "bs=4k"]).arg(format!("of={}", filler.display())).output();
    assert!(!filled.unwrap().status.success());
    let noticed =
        wait_until("a journal that keeps nothing", || readiness(&serving).contains("keeps nothing"));
    let before = load.decided();
    load.wait_for(before + 2_000);
    fs::remove_file(&filler).unwrap();
    let recovered = wait_until("a journal that is up again", || readiness(&serving).contains("journal up"));
    let after = load.decided();
    load.wait_for(after + 500);
    let requests = load.end();
    let went_on = after - before;
    println!(
        "disk: full after {noticed:.1?}, {went_on} decisions meanwhile, kept again {recovered:.1?} after there was space"
    );
    assert_eq!(requests.unanswered, 0);
    judge("disk", &requests, 0.0);
    // An orderly end keeps all of it, also what was decided while the disk was full.
    let counted = requests.counted;
    serving.signal("TERM");
    assert_eq!(serving.wait().0, Some(0));
    let again = serve(&config, &["--data", data.to_str().unwrap()]);
    assert_eq!(requests::used(&again.addr), counted);
    drop((again, unmount));
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// A server that is stopped for three seconds and goes on: clients time out, nothing is decided twice, and time has not
/// jumped.
#[test]
#[ignore = "takes seconds; cargo xtask faults stop"]
fn stop() {
    let config = file("faults.yaml", policy("deny"));
    let serving = serve(&config, &[]);
    let load = Load::start(&serving.addr);
    load.wait_for(1_000);
    serving.signal("STOP");
    let stopped = Instant::now();
    let timed_out = wait_until("clients that time out", || load.unanswered() >= requests::CLIENTS as u64);
    wait_until("three seconds", || stopped.elapsed() >= Duration::from_secs(3));
    serving.signal("CONT");
    let before = load.decided();
    let answered = wait_until("answers", || load.decided() > before);
    load.wait_for(before + 1_000);
    let requests = load.end();
    let used = requests::used(&serving.addr);
    println!(
        "stop: first timeouts after {timed_out:.1?}, answers {answered:.1?} after SIGCONT; {} units counted, {} answered \
         and {} requests without an answer",
        used, requests.counted, requests.unanswered
    );
    // A request whose client has given up may have been decided, once.
    assert!(used >= requests.counted && used <= requests.counted + requests.unanswered, "{used}");
    judge("stop", &requests, 0.0);
}

/// The primary of a Redis with Sentinels dies under load. What it had not told its replica is forgotten: at most a
/// burst an id.
#[test]
#[ignore = "takes half a minute; cargo xtask faults sentinel"]
fn sentinel() {
    let mut sentinels = RedisSentinels::start();
    let config = file("faults.yaml", policy("deny"));
    let serving = serve(&config, &["--store", &format!("{}?deadline=500ms", sentinels.url())]);
    let load = Load::start(&serving.addr);
    load.wait_for(500);
    let before = sentinels.primary().port();
    sentinels.primary().kill();
    let down = Instant::now();
    let failed_over = wait_until("another primary", || sentinels.primary().port() != before);
    let allowed = load.counted();
    wait_until("requests that are allowed again", || load.counted() > allowed + 100);
    println!(
        "sentinel: another primary after {failed_over:.1?}, requests pass {:.1?} after the kill",
        down.elapsed()
    );
    judge("sentinel", &load.end(), f64::from(BURST));
}

/// The primary of a part of a Cluster is cut off from everybody but the server and its clients. It decides until it
/// notices, and when the network is whole again, the others do not know what it has decided.
#[test]
#[ignore = "needs root; cargo xtask faults partition"]
fn partition() {
    let namespaces = Namespaces::create();
    let cluster = PartitionedCluster::start(&namespaces);
    let config = file("faults.yaml", policy("deny"));
    let serving = serve(&config, &["--store", &format!("{}?deadline=500ms", cluster.url())]);
    let load = Load::start(&serving.addr);
    load.wait_for(500);
    namespaces.cut();
    let cut = Instant::now();
    let alone = load.counted();
    wait_until("a replica that takes over", || cluster.has_failed_over());
    let failed_over = cut.elapsed();
    let decided_alone = load.counted() - alone;
    namespaces.heal();
    let before = load.counted();
    wait_until("requests that are allowed again", || load.counted() > before + 100);
    println!(
        "partition: {decided_alone} allowed by the side that was cut off, a replica took over after {failed_over:.1?}, \
         requests pass {:.1?} after the cut",
        cut.elapsed()
    );
    judge("partition", &load.end(), f64::from(BURST));
}

/// Three of ten packets between a master and its gatekeepers are lost. TCP sends them again, so what the master says
/// comes late, and more passes meanwhile. How much is printed, and not judged: gatekeepers fail open, and no bound is
/// promised for a network that loses packets. No request may fail, and delays must go on when the network is well.
#[tokio::test]
#[ignore = "needs root; cargo xtask faults loss"]
async fn loss() {
    let fleet = Fleet::start("gcra", "memory").await;
    let load = fleet::Load::start(&fleet).await;
    let loss = Loss::between(&fleet.ports(), 30);
    fleet.reaches("delayed", 8 * u64::from(RATE)).await;
    let (dropped, meanwhile) = (loss.dropped(), fleet::Measured::new(&fleet).await);
    drop(loss);
    // In the steady state, about so many a second are delayed: by then nothing is owed but the longest delay.
    fleet.reaches("delayed", fleet.count("delayed").await + 8 * u64::from(RATE)).await;
    let sent = load.end().await;
    let measured = fleet::Measured::new(&fleet).await;
    println!("loss: {dropped} packets dropped; with loss, and then all in all\n{meanwhile}\n{measured}");
    assert!(dropped > 0, "no packet was dropped");
    let failures = fleet::failures(&sent);
    assert!(failures.is_empty(), "{failures:?}");
    let by_the_rate =
        f64::from(fleet::BURST) + f64::from(RATE) * (measured.seconds + MAX_DELAY.as_secs_f64());
    println!("loss: {} passed; without loss it would be {by_the_rate:.0} at most", measured.passed);
}
