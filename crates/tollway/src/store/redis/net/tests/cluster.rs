//! Tests a Cluster whose slots move.

use super::load::{Load, assert_never_twice};
use super::*;

#[test]
fn slots_are_followed_when_a_replica_takes_over() {
    let cluster = RedisCluster::start();
    let net = Arc::new(net(&cluster));
    let [(tag, slot), ..] = KEYS;
    let load = Load::start(&net, 8, tag, slot);
    load.wait_for(100);
    let replica = &cluster.nodes()[3];
    assert_eq!(replica.cli(&["CLUSTER", "FAILOVER"]), "OK");
    eventually("a new primary", || replica.cli(&["ROLE"]).starts_with("master"));
    load.wait_for(100);
    assert_never_twice(&load.stop());
    eventually("the new slots", || net.health().nodes.iter().any(|node| node.address == replica.address()));
    assert!(net.health().is_well());
}

#[test]
fn a_slot_that_is_on_its_way_is_asked_for_at_both_ends() {
    let cluster = RedisCluster::start();
    let net = net(&cluster);
    let [(tag, slot), ..] = KEYS;
    let keys = ["{b}1", "{b}2"];
    let both = |net: &Net| wait(net.send(vec![Call { slot, ..touch(&keys) }])).remove(0);
    assert_eq!(both(&net), Ok(Value::Int(1)));
    let (from, to) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let (source, target) = (from.cli(&["CLUSTER", "MYID"]), to.cli(&["CLUSTER", "MYID"]));
    let slot_text = slot.to_string();
    to.cli(&["CLUSTER", "SETSLOT", &slot_text, "IMPORTING", &source]);
    from.cli(&["CLUSTER", "SETSLOT", &slot_text, "MIGRATING", &target]);

    // One key is here and one there: neither end can answer, until the other key has moved too.
    from.cli(&["MIGRATE", "127.0.0.1", &to.port().to_string(), keys[0], "0", "5000"]);
    let torn = net.send(vec![Call { slot, ..touch(&keys) }]);
    eventually("TRYAGAIN", || from.cli(&["INFO", "errorstats"]).contains("TRYAGAIN"));
    from.cli(&["MIGRATE", "127.0.0.1", &to.port().to_string(), keys[1], "0", "5000"]);
    assert_eq!(wait(torn), [Ok(Value::Int(2))]);

    // The slot is not theirs yet: every call is sent to the other end by this one.
    let redirects = net.health().redirects;
    assert_eq!((both(&net), both(&net)), (Ok(Value::Int(3)), Ok(Value::Int(4))));
    assert_eq!(net.health().redirects, redirects + 2);
    for node in [to, from] {
        node.cli(&["CLUSTER", "SETSLOT", &slot_text, "NODE", &target]);
    }
    assert_eq!(both(&net), Ok(Value::Int(5)));
    let redirects = net.health().redirects;
    assert_eq!(both(&net), Ok(Value::Int(6)));
    assert_eq!(net.health().redirects, redirects, "{tag} has moved, and that is known");
}

#[test]
fn a_cluster_that_is_away_at_first_is_found_later() {
    let mut server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("slots", || server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    server.kill();
    let net = Net::start(&patiently(Topology::Cluster(vec![parse(&server.address())]))).unwrap();
    let reply = wait(net.send(vec![count("n")])).remove(0);
    assert!(
        matches!(reply, Err(StoreError::Unreachable { .. } | StoreError::CircuitOpen { .. })),
        "{reply:?}"
    );
    server.restart();
    eventually("an answer", || wait(net.send(vec![count("n")]))[0].is_ok());
}

/// Makes a call that counts in the first of several keys, and touches the others.
fn touch(keys: &[&str]) -> Call {
    let mut command = redis::cmd("EVALSHA");
    command.arg(&TOUCH.sha).arg(keys.len()).arg(keys);
    Call { slot: 0, command, script: Some(&TOUCH) }
}

static TOUCH: LazyLock<Script> = LazyLock::new(|| {
    Script::new("redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])".to_owned())
});

fn net(cluster: &RedisCluster) -> Net {
    let seeds = cluster.addresses().iter().map(|address| parse(address)).collect();
    Net::start(&patiently(Topology::Cluster(seeds))).unwrap()
}
