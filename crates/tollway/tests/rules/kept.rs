//! Checks that rules leave short lists in Redis, no longer than they have an effect, and nothing of a request that is
//! denied.

use tollway::block_on;
use tollway::core::{KeyedRule, Nanos, RuleBill, RuleDecision, RuleLimit, Timestamp};
use tollway::store::redis::Redis;
use tollway_testbed::{Random, RedisCluster, RedisServer, seed};

use crate::servers;

/// One that takes the short way, and one that does not.
const RULES: [&str; 2] = ["3/s", "Or('3/s', And('9/h'))"];

/// A server of its own, whose writes are counted.
struct Bench {
    server: RedisServer,
    store: Redis,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let store = servers::open(&server.url(), "kept");
        Self { server, store }
    }

    fn resolve(&self, rule: &KeyedRule) -> RuleDecision {
        block_on(self.store.resolve(&bill(rule), None)).unwrap()
    }

    fn cli(&self, command: &[&str]) -> String {
        self.server.cli(command).trim().to_owned()
    }

    fn number(&self, command: &[&str]) -> i64 {
        self.cli(command).parse().unwrap()
    }

    fn writes(&self) -> u64 {
        self.server.info("rdb_changes_since_last_save")
    }
}

fn keyed(rule: &str, key: &str) -> KeyedRule {
    KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", key)
}

/// Every selector has the same value.
fn bill(rule: &KeyedRule) -> RuleBill<'_> {
    rule.bill(|_| Ok::<_, ()>(Some("x"))).unwrap()
}

/// Returns the key of the rule's first log.
fn log_of(rule: &KeyedRule) -> String {
    format!("kept:rule/{}", bill(rule).identifiers()[0].as_deref().unwrap())
}

/// The length of a list, wherever it is.
fn len(nodes: &[&RedisServer], key: &str) -> i64 {
    let len = |node: &&RedisServer| node.cli(&["LLEN", key]).trim().parse::<i64>().ok();
    nodes.iter().filter_map(len).sum()
}

#[test]
fn a_log_says_what_it_is_kept_for_which_is_the_most_that_anybody_wanted() {
    let bench = Bench::new();
    for (rule, kept) in [
        ("3/m", "k3 60 0"),
        ("2/h", "k3 3600 0"),
        ("And('5/s', '4/1500ms')", "k5 3600 0"),
        ("3/m", "k5 3600 0"),
        ("And(Or(), '7/90d', '0/s')", "k7 7776000 0"),
    ] {
        let _ = bench.resolve(&keyed(rule, "a"));
        assert_eq!(bench.cli(&["LINDEX", "kept:rule/:a", "0"]), kept, "{rule}");
    }
    assert_eq!(bench.cli(&["TYPE", "kept:rule/:a"]), "list");
}

#[test]
fn a_key_goes_when_its_log_has_nothing_more_to_say_and_never_sooner() {
    let (bench, mut random) = (Bench::new(), Random::new(seed()));
    for _ in 0..200 {
        let rule = keyed(random.pick(&RULES), random.pick(&["a", "b"]));
        let key = log_of(&rule);
        let _ = bench.resolve(&rule);
        let [header, newest] = ["0", "-1"].map(|place| bench.cli(&["LINDEX", &key, place]));
        let expires_at = bench.number(&["PEXPIRETIME", &key]);
        let Ok(newest) = newest.parse::<i64>() else { continue };
        let seconds: i64 = header.split(' ').nth(1).unwrap().parse().unwrap();
        let late = expires_at * 1_000_000 - newest - seconds * 1_000_000_000;
        assert!((0..3_000_000).contains(&late), "{key} goes {late} ns after it has nothing more to say");
    }
}

#[test]
fn who_is_denied_or_only_looks_writes_nothing() {
    let bench = Bench::new();
    for rule in ["3/h", "Or('3/h', 'user:5/h')", "0/s", "And()", "And('user:0/s', 'apikey:0/s')"] {
        let rule = keyed(rule, "key");
        while bench.resolve(&rule).allowed() {}
        let before = bench.writes();
        assert!(!bench.resolve(&rule).allowed());
        let _ = block_on(bench.store.examine(&bill(&rule), None)).unwrap();
        assert_eq!(bench.writes(), before);
    }
    // Whose log has nothing to keep, and who has no log.
    let before = bench.writes();
    assert!(bench.resolve(&keyed("And(Or(), 'user:0/s')", "other")).allowed());
    assert!(bench.resolve(&keyed("Or()", "other")).allowed());
    assert_eq!(bench.writes(), before);
}

#[test]
fn what_somebody_else_left_counts_as_nothing() {
    let bench = Bench::new();
    let foreign: [&[&str]; 6] = [
        &["SET", "k3 60 0"],
        &["HSET", "a", "b"],
        &["RPUSH", "1"],
        &[
            "RPUSH",
            "9223372036854775807",
            "9223372036854775807",
            "9223372036854775807",
            "9223372036854775807",
        ],
        &["RPUSH", "k3 x 0", "9223372036854775807", "9223372036854775807", "9223372036854775807"],
        &["RPUSH", "k9 3600 0", "nonsense"],
    ];
    for (rule, command) in RULES.into_iter().flat_map(|rule| foreign.map(|command| (rule, command))) {
        bench.cli(&["FLUSHALL"]);
        bench.cli(&[&command[..1], &["kept:rule/:a"], &command[1..]].concat());
        let rule = keyed(rule, "a");
        let allowed = (0..5).filter(|_| bench.resolve(&rule).allowed()).count();
        assert_eq!((allowed, bench.number(&["LLEN", "kept:rule/:a"])), (3, 4), "{command:?}");
        assert!(bench.number(&["PTTL", "kept:rule/:a"]) > 0, "{command:?} stays for ever");
    }
}

/// Ten a second for ten seconds, where as many as ever come get through.
#[test]
fn a_log_is_not_much_longer_than_what_is_kept() {
    let cluster = servers::open(&servers::cluster().url(), "kept");
    let primaries: Vec<_> = servers::cluster().nodes().iter().take(3).collect();
    let one = servers::open(&servers::server().url(), "kept");
    // Where entries may be taken back, those of the last second do not make others go.
    for (store, nodes, spare) in [(&one, vec![servers::server()], 8), (&cluster, primaries, 18)] {
        for (rule, keep) in [("5/200ms", 5), ("And(Or(), '5/m')", 5), ("And(Or(), '5/m', '17/s')", 17)] {
            let rule = keyed(rule, rule);
            for step in 0..100 {
                let now = Timestamp::from_nanos(1_700_000_000_000_000_000) + Nanos::from_millis(100 * step);
                assert!(block_on(store.resolve(&bill(&rule), Some(now))).unwrap().allowed());
            }
            let key = log_of(&rule);
            let len = len(&nodes, &key);
            assert!((keep + 1..=keep + 1 + spare).contains(&len), "{key} has {len} elements");
        }
    }
}

#[test]
fn over_several_slots_who_is_denied_leaves_nothing() {
    let cluster = RedisCluster::start();
    let store = servers::open(&cluster.url(), "kept");
    let keys = || -> i64 {
        let size = |node: &RedisServer| node.cli(&["DBSIZE"]).trim().parse::<i64>().unwrap();
        cluster.nodes().iter().take(3).map(size).sum()
    };
    let rule = keyed("Or('1/h', 'a:5/h', 'b:5/h', 'c:5/h', 'd:5/h')", "key");
    let resolve = |value: &str| {
        let bill = rule.bill(|_| Ok::<_, ()>(Some(value))).unwrap();
        block_on(store.resolve(&bill, None)).unwrap().allowed()
    };
    assert!(resolve("x"));
    assert_eq!(keys(), 5);
    for value in ["x", "y", "z"] {
        assert!(!resolve(value));
        assert_eq!(keys(), 5, "{value}");
    }
    let primaries: Vec<_> = cluster.nodes().iter().take(3).collect();
    for selector in ["a", "b", "c", "d"] {
        assert_eq!(len(&primaries, &format!("kept:rule/:key:{selector}:x")), 2, "{selector}");
    }
}

/// Checks that the entries on the other nodes are taken back.
#[test]
fn who_gets_no_answer_of_one_node_leaves_nothing_on_the_others() {
    let mut cluster = RedisCluster::start();
    let store = servers::open(&cluster.url(), "kept");
    let rule = keyed("Or('a:5/h', 'b:5/h', 'c:5/h', 'd:5/h', 'e:5/h', 'f:5/h')", "key");
    let _ = block_on(store.resolve(&bill(&rule), None)).unwrap();
    cluster.kill_primary_of(0);
    let fresh = rule.bill(|_| Ok::<_, ()>(Some("y"))).unwrap();
    assert!(block_on(store.resolve(&fresh, None)).is_err());
    let left: String = cluster.nodes()[1..3].iter().map(|node| node.cli(&["KEYS", "*:y"])).collect();
    assert_eq!(left.trim(), "");
}
