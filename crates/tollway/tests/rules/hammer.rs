//! Many processes and tasks at one key: in no second does one too many get through, by the store's own timestamps.
//!
//! The test starts this program four times over, to run [`child`] alone; each hammers, and prints when it was allowed.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, thread};

use tollway::block_on;
use tollway::core::{KeyedRule, RuleBill, RuleDecision, RuleLimit, Timestamp};
use tollway::store::memory::Memory;
use tollway_testbed::{Random, RedisServer};

use crate::servers;

const RULE: &str = "Or('user:100/s', 'apikey:60/s')";
/// They have apikeys in common, so that now one limits, now the other.
const USERS: [&str; 2] = ["vova", "tanya"];
const APIKEYS: [&str; 3] = ["k1", "k2", "k3"];
const SECOND: u64 = 1_000_000_000;
const PROCESSES: u64 = 4;
const TASKS: u64 = 64;
/// The time that the processes hammer.
const HAMMERING: Duration = Duration::from_millis(1_500);
/// Time that is ours passes so much faster, so that more seconds are to be seen.
const HASTE: u64 = 10;
/// Says which store, by whose time, and which of the processes.
const VARIABLE: &str = "TOLLWAY_RULE_HAMMER";

/// The user and the apikey that were allowed, and the time.
type Admission = (String, String, u64);

#[test]
fn memory_lets_nobody_too_many_through() {
    let memory = Memory::new(1_000);
    fill_for_an_hour(1, |bill| memory.resolve(bill, hasty_now));
    let admitted = hammer(0, |bill| {
        let now = hasty_now();
        (memory.resolve(bill, || now), now)
    });
    assert_no_second_has_too_many(&admitted);
}

#[test]
fn one_redis_lets_nobody_too_many_through_by_the_time_of_callers() {
    by_the_time_of_callers(&servers::server().url());
}

/// Entries are taken back all the while, and others make way.
#[test]
fn a_cluster_lets_nobody_too_many_through_by_the_time_of_callers() {
    by_the_time_of_callers(&servers::cluster().url());
}

#[test]
fn one_redis_lets_nobody_too_many_through_by_its_own_time() {
    by_its_own_time(&servers::server().url(), &[servers::server()]);
}

#[test]
fn a_cluster_lets_nobody_too_many_through_by_its_own_time() {
    let primaries: Vec<_> = servers::cluster().nodes().iter().take(3).collect();
    by_its_own_time(&servers::cluster().url(), &primaries);
}

fn by_the_time_of_callers(url: &str) {
    let store = servers::open(url, "hammer-callers");
    fill_for_an_hour(1, |bill| block_on(store.resolve(bill, Some(hasty_now()))).unwrap());
    assert_no_second_has_too_many(&hammer_from_processes(url, "callers"));
}

/// Checks the times in the logs, where another rule wants every entry kept.
fn by_its_own_time(url: &str, nodes: &[&RedisServer]) {
    let store = servers::open(url, "hammer-own");
    fill_for_an_hour(60_000, |bill| block_on(store.resolve(bill, None)).unwrap());
    let admitted = hammer_from_processes(url, "own");
    let users = USERS.iter().map(|user| (format!("user:{user}"), 100));
    for (log, count) in users.chain(APIKEYS.iter().map(|apikey| (format!("apikey:{apikey}"), 60))) {
        let key = format!("hammer-own:rule/:hammer:{log}");
        let printed: String =
            nodes.iter().map(|node| node.cli(&["LRANGE", &key, "0", "-1"]) + "\n").collect();
        let entries: Vec<u64> = printed.lines().filter_map(|line| line.parse().ok()).collect();
        let allowed =
            admitted.iter().filter(|(user, apikey, _)| log.ends_with(user) || log.ends_with(apikey));
        let allowed = allowed.count();
        assert!(entries.len() > allowed, "{log} has {} entries of {allowed} who were allowed", entries.len());
        assert_no_window_has_more(&log, &entries, count);
    }
    assert!(admitted.len() > 100, "only {} were ever allowed", admitted.len());
}

/// Makes a rule that never limits fill every log, so that `count` entries are kept in each for an hour. Otherwise a
/// caller that read its clock long ago and comes late would find that the entries of that time are forgotten.
fn fill_for_an_hour(count: u64, resolve: impl Fn(&RuleBill<'_>) -> RuleDecision) {
    let rule = keyed(&format!("And(Or(), 'user:{count}/h', 'apikey:{count}/h')"));
    for (user, apikey) in USERS.into_iter().flat_map(|user| APIKEYS.map(|apikey| (user, apikey))) {
        assert!(resolve(&bill(&rule, user, apikey)).allowed());
    }
}

fn assert_no_second_has_too_many(admitted: &[Admission]) {
    let mut logs: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    for (user, apikey, at) in admitted {
        logs.entry((user, 100)).or_default().push(*at);
        logs.entry((apikey, 60)).or_default().push(*at);
    }
    assert!(admitted.len() > 400, "only {} were ever allowed", admitted.len());
    for ((name, count), mut moments) in logs {
        moments.sort_unstable();
        assert_no_window_has_more(name, &moments, count);
    }
}

fn assert_no_window_has_more(log: &str, moments: &[u64], count: usize) {
    for window in moments.windows(count + 1) {
        let (first, last) = (window[0], window[count]);
        assert!(last - first >= SECOND, "{log}: {} from {first} to {last}", count + 1);
    }
}

fn hammer_from_processes(url: &str, time: &str) -> Vec<Admission> {
    let children: Vec<_> = (0..PROCESSES).map(|number| start(&format!("{url} {time} {number}"))).collect();
    children.into_iter().flat_map(finish).collect()
}

fn start(commands: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "hammer::child", "--ignored", "--nocapture"]).env(VARIABLE, commands);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> Vec<Admission> {
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let admission = |line: &str| {
        let mut words = line.strip_prefix("allowed ")?.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?.parse().ok()?))
    };
    printed.lines().filter_map(admission).collect()
}

#[test]
#[ignore = "one of the processes that the other tests start"]
fn child() {
    let commands = env::var(VARIABLE).unwrap();
    let [url, time, number] = commands.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let store = servers::open(url, &format!("hammer-{time}"));
    let admitted = hammer(number.parse().unwrap(), |bill| {
        let now = hasty_now();
        let told = (time == "callers").then_some(now);
        (block_on(store.resolve(bill, told)).unwrap(), now)
    });
    for (user, apikey, at) in admitted {
        println!("allowed {user} {apikey} {at}");
    }
}

/// All tasks of one process, as often as they can.
fn hammer(
    process: u64,
    resolve: impl Fn(&RuleBill<'_>) -> (RuleDecision, Timestamp) + Sync,
) -> Vec<Admission> {
    let (rule, started) = (keyed(RULE), Instant::now());
    let task = |task: u64| {
        let (mut random, mut admitted) = (Random::new(process * TASKS + task), Vec::new());
        while started.elapsed() < HAMMERING {
            let (user, apikey) = (random.pick(&USERS), random.pick(&APIKEYS));
            let (ruling, now) = resolve(&bill(&rule, user, apikey));
            if ruling.allowed() {
                admitted.push((user.to_owned(), apikey.to_owned(), now.as_nanos()));
            }
        }
        admitted
    };
    thread::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS).map(|number| scope.spawn(move || task(number))).collect();
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
    })
}

fn keyed(rule: &str) -> KeyedRule {
    KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "hammer")
}

fn bill<'a>(rule: &'a KeyedRule, user: &str, apikey: &str) -> RuleBill<'a> {
    let value = |selector: &str| Ok::<_, ()>(Some(if selector == "user" { user } else { apikey }));
    rule.bill(value).unwrap()
}

/// The same in all processes, but for when each of them looks.
fn hasty_now() -> Timestamp {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() % (1 << 56);
    Timestamp::from_nanos(u64::try_from(nanos).unwrap() * HASTE)
}
