//! Many processes and tasks at the same buckets: nobody gets more than the limit, and who keeps to it is never denied.
//!
//! The test starts this program four times over, to run [`child`] alone; each hammers, and prints what it was given.

use std::collections::HashMap;
use std::env;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tollway::block_on;
use tollway::core::algorithm::TokenBucket;
use tollway::core::{Algorithm, Bill, Charge, Limit};
use tollway::store::redis::Redis;
use tollway_testbed::Random;

use crate::servers;

const PROCESSES: u64 = 4;
const TASKS: u64 = 16;
const IDS: u64 = 10;
/// The time that the processes hammer. It is so long that many times the burst is refilled.
const HAMMERING: Duration = Duration::from_millis(1_500);
/// Says which store, and which of the processes.
const VARIABLE: &str = "TOLLWAY_HAMMER";

/// Two limits that share their ids: one is spent by itself, and both by bills of two charges.
fn limits() -> [Limit; 2] {
    [("Narrow", 7, 100), ("Wide", 20, 300)].map(|(name, burst, count)| {
        let limit = TokenBucket::new(burst, count, Duration::from_secs(1)).unwrap();
        Limit::new(name).unwrap().with_default(Algorithm::TokenBucket(limit))
    })
}

#[test]
fn one_redis_gives_nobody_more_than_the_limit() {
    hammer(&servers::server().url());
}

#[test]
fn a_cluster_gives_nobody_more_than_the_limit() {
    hammer(&servers::cluster().url());
}

fn hammer(url: &str) {
    // Redis's clock is that of the machine, which is this one.
    let started = SystemTime::now();
    let children: Vec<_> = (0..PROCESSES).map(|number| start(&format!("{url} {number}"))).collect();
    let given: Vec<_> = children.into_iter().flat_map(finish).collect();
    let passed = started.elapsed().unwrap().as_secs_f64();
    let mut admitted: HashMap<String, f64> = HashMap::new();
    for (bucket, units) in given {
        *admitted.entry(bucket).or_default() += units;
    }
    assert_eq!(admitted.len() as u64, 2 * IDS, "every bucket was spent from: {admitted:?}");
    for limit in limits() {
        let Some(Algorithm::TokenBucket(numbers)) = limit.default_algorithm() else { unreachable!() };
        let most = numbers.burst() as f64 + numbers.count() as f64 * passed;
        for id in 0..IDS {
            let units = admitted[&format!("{}:{id}", limit.name())];
            assert!(
                units <= most,
                "{units} of {}:{id} in {passed} s, where {most} would be right",
                limit.name()
            );
        }
    }
}

fn start(commands: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "hammer::child", "--ignored", "--nocapture"]).env(VARIABLE, commands);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for a process, and returns the units that it was given of each bucket.
fn finish(child: Child) -> Vec<(String, f64)> {
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let given = |line: &str| {
        let (bucket, units) = line.strip_prefix("given ")?.split_once(' ')?;
        Some((bucket.to_owned(), units.parse().unwrap()))
    };
    printed.lines().filter_map(given).collect()
}

#[test]
#[ignore = "one of the processes that the other tests start"]
fn child() {
    let commands = env::var(VARIABLE).unwrap();
    let (url, number) = commands.split_once(' ').unwrap();
    let (store, number) = (servers::open(url, "hammer"), number.parse::<u64>().unwrap());
    let one_redis = !url.contains("cluster");
    let limits = limits();
    let given = thread::scope(|scope| {
        let task = |task| {
            let (store, limits, seed) = (&store, &limits, number * TASKS + task);
            // One of them keeps to the limits.
            scope.spawn(move || match task {
                0 if one_redis => conform(store, limits, &format!("patient {number}")),
                _ => insist(store, limits, Random::new(seed)),
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect::<Vec<_>>()
    });
    for (bucket, units) in given.into_iter().flatten() {
        println!("given {bucket} {units}");
    }
}

/// Spends as often as it can, by bills of one charge and of two, and says what it was given.
fn insist(store: &Redis, limits: &[Limit; 2], mut random: Random) -> HashMap<String, u64> {
    let mut given = HashMap::new();
    let started = Instant::now();
    while started.elapsed() < HAMMERING {
        let ids = [random.between(0, IDS - 1).to_string(), random.between(0, IDS - 1).to_string()];
        let costs = [random.between(1, 2), random.between(1, 3)];
        let charge = |index: usize| Charge::new(&limits[index], ids[index].as_bytes(), costs[index]).unwrap();
        let charges = match random.between(0, 3) {
            0 => vec![charge(0)],
            1 => vec![charge(1)],
            _ => vec![charge(0), charge(1)],
        };
        let bill = Bill::new(&charges).unwrap();
        if block_on(store.settle(&[bill], None)).remove(0).unwrap().allowed() {
            for charge in &charges {
                let bucket = charge.limit().bucket_key(charge.id()).to_string();
                *given.entry(bucket).or_default() += charge.cost();
            }
        }
    }
    given
}

/// Spends whenever it was told that it may, and is never denied.
fn conform(store: &Redis, limits: &[Limit; 2], id: &str) -> HashMap<String, u64> {
    let charges = limits.each_ref().map(|limit| Charge::new(limit, id.as_bytes(), 2).unwrap());
    let started = Instant::now();
    while started.elapsed() < HAMMERING {
        let decision = block_on(store.settle(&[Bill::new(&charges).unwrap()], None)).remove(0).unwrap();
        assert!(decision.allowed(), "denied: {decision:?}");
        thread::sleep(decision.retry_after().expect("waiting helps"));
    }
    HashMap::new()
}
