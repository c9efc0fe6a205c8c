//! Tests a primary that Sentinels watch and replace.

use tollway_testbed::RedisSentinels;

use super::load::{Load, assert_never_twice};
use super::*;

#[test]
fn the_primary_is_where_the_sentinels_say() {
    let mut sentinels = RedisSentinels::start();
    let net = net(&sentinels);
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    assert_eq!(net.health().nodes[0].address, sentinels.primary().address());
}

#[test]
fn a_primary_that_is_killed_is_replaced() {
    let mut sentinels = RedisSentinels::start();
    let net = Arc::new(net(&sentinels));
    let load = Load::start(&net, 8, "a", 0);
    load.wait_for(100);
    sentinels.primary().kill();
    eventually("an outage", || matches!(net.health().nodes[0].state, NodeState::Unreachable { .. }));
    load.wait_for(100);
    // The Sentinel that replaced it was asked, and another one may hear of it later.
    eventually("a Sentinel that knows", || net.health().nodes[0].address == sentinels.primary().address());
    assert_never_twice(&load.stop());
}

#[test]
fn a_primary_that_does_not_know_it_was_replaced_is_left() {
    // Nobody can tell it: it understands neither word.
    let mut sentinels =
        RedisSentinels::start_with(&["--rename-command", "REPLICAOF", "", "--rename-command", "SLAVEOF", ""]);
    let net = net(&sentinels);
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    sentinels.fail_over();
    let new = sentinels.primary().address();
    eventually("the new primary", || net.health().nodes[0].address == new);
    assert!(wait(net.send(vec![count("m")]))[0].is_ok());
    assert_eq!(sentinels.primary().cli(&["GET", "m"]), "1");
}

fn net(sentinels: &RedisSentinels) -> Net {
    let addresses = sentinels.addresses().iter().map(|address| parse(address)).collect();
    let primary = RedisSentinels::NAME.to_owned();
    Net::start(&patiently(Topology::Sentinel { sentinels: addresses, primary })).unwrap()
}
