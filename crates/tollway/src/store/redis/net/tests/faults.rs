//! Tests one server that is frozen, killed, restarted and overloaded.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::load::{Load, assert_never_twice, assert_no_twos};
use super::proxy::Proxy;
use super::*;

#[test]
fn a_frozen_server_is_left_alone_and_found_again() {
    let server = RedisServer::start();
    let net = impatient(&server);
    let load = Load::start(&net, 16, "a", 0);
    load.wait_for(100);
    server.freeze();
    eventually("a breaker", || net.health().breaker_openings > 0);
    load.wait_for_failures(500);
    server.thaw();
    load.wait_for(100);
    let replies = load.stop();
    assert!(replies.iter().any(|reply| matches!(reply, Err(StoreError::CircuitOpen { .. }))));
    assert_never_twice(&replies);
    assert_no_twos(&server);
}

#[test]
fn what_timed_out_is_not_sent_again() {
    let server = RedisServer::start();
    let net = Net::start(&RedisUrl { deadline: Duration::from_millis(500), ..url(&server) }).unwrap();
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    server.freeze();
    let replies = wait(net.send(vec![count("n")]));
    assert!(matches!(replies[0], Err(StoreError::TimedOut { .. })), "{replies:?}");
    server.thaw();
    eventually("an answer", || wait(net.send(vec![plain(&["PING"])]))[0].is_ok());
    // Redis may have read it before the connection was closed, or not; but not twice.
    assert!(["1", "2"].contains(&server.cli(&["GET", "n"]).as_str()));
}

#[test]
fn a_call_whose_reply_is_lost_is_not_sent_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let address = Address { host: "127.0.0.1".to_owned(), port: proxy.port() };
    let net = Net::start(&patiently(Topology::Single(address))).unwrap();
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    for executed in 2..10 {
        proxy.drop_next_reply();
        let lost = net.send(vec![count("n")]);
        eventually("a dropped reply", || proxy.has_dropped());
        let reply = wait(lost).remove(0);
        assert!(matches!(reply, Err(StoreError::Unreachable { .. })), "{reply:?}");
        eventually("a reconnection", || net.health().is_well());
        assert_eq!(server.cli(&["GET", "n"]), executed.to_string());
    }
}

#[test]
fn forgotten_scripts_are_loaded_in_mid_load() {
    let server = RedisServer::start();
    let net = Arc::new(patient(&server));
    let load = Load::start(&net, 16, "a", 0);
    for _ in 0..20 {
        load.wait_for(20);
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    load.wait_for(20);
    let replies = load.stop();
    assert!(replies.iter().all(|reply| *reply == Ok(Value::Int(1))));
    assert!(server.times_called("script|load") >= 10);
    assert_no_twos(&server);
}

#[test]
fn a_restart_costs_what_the_server_forgets() {
    for (arguments, kept) in [(&["--appendonly", "yes", "--appendfsync", "always"][..], true), (&[], false)] {
        let mut server = RedisServer::start_with(arguments);
        let net = Arc::new(patient(&server));
        let load = Load::start(&net, 16, "a", 0);
        load.wait_for(100);
        assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
        server.restart();
        load.wait_for(100);
        assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(if kept { 2 } else { 1 }))]);
        assert_never_twice(&load.stop());
    }
}

#[test]
fn a_server_that_becomes_a_replica_is_left_until_it_is_a_primary_again() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let net = Arc::new(patient(&server));
    let load = Load::start(&net, 16, "a", 0);
    load.wait_for(100);
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    eventually(
        "a replica",
        || matches!(&net.health().nodes[0].state, NodeState::Unreachable { reason, .. } if reason.contains("replica")),
    );
    let written = server.times_called("incrby");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    load.wait_for(100);
    assert!(server.times_called("incrby") > written);
    let replies = load.stop();
    assert!(replies.iter().any(|reply| matches!(reply, Err(StoreError::CircuitOpen { .. }))));
    assert_never_twice(&replies);
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--key-load-delay", "100"]);
    server.cli(&["DEBUG", "POPULATE", "10"]);
    let net = patient(&server);
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    server.restart();
    eventually("an answer", || wait(net.send(vec![count("n")]))[0].is_ok());
}

#[test]
fn a_thousand_callers_come_back_over_one_connection() {
    let mut server = RedisServer::start();
    let net = Arc::new(patient(&server));
    let load = Load::start(&net, 1000, "a", 0);
    load.wait_for(2000);
    server.kill();
    eventually("an outage", || matches!(net.health().nodes[0].state, NodeState::Unreachable { .. }));
    server.restart();
    load.wait_for(2000);
    // The testbed looks whether the server answers, and each look is a connection, as is this question.
    let ours = server.cli(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("name=tollway")).count();
    assert_eq!(ours, 1);
    assert!(server.info("total_connections_received") < 20);
    assert!(net.health().reconnects < 5, "{:?}", net.health());
    load.stop();
}

#[test]
fn more_than_may_wait_is_refused_at_once() {
    let server = RedisServer::start();
    let net = impatient(&server);
    eventually("an answer", || wait(net.send(vec![plain(&["PING"])]))[0].is_ok());
    server.freeze();
    let waiting = net.send((0..WAITING_MAX).map(|_| plain(&["PING"])).collect());
    let replies = wait(net.send(vec![plain(&["PING"])]));
    assert!(matches!(replies[0], Err(StoreError::Busy { waiting: WAITING_MAX })), "{replies:?}");
    assert!(wait(waiting).iter().all(Result::is_err));
    assert_eq!(net.health.waiting(), 0);
}

#[test]
fn whoever_goes_away_before_a_call_is_sent_takes_it_along() {
    let mut server = RedisServer::start();
    server.kill();
    let net = patient(&server);
    eventually("an outage", || matches!(net.health().nodes[0].state, NodeState::Unreachable { .. }));
    server.restart();
    eventually("a server", || net.health().is_well());
    drop(net.send(vec![count("n")])); // Perhaps sent, perhaps not, and nobody is hurt.
    assert_eq!(wait(net.send(vec![plain(&["PING"])])), [Ok(Value::SimpleString("PONG".to_owned()))]);
}

#[test]
fn an_idle_connection_that_ends_is_replaced_before_anybody_needs_it() {
    let server = RedisServer::start();
    let net = patient(&server);
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    server.cli(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
    eventually("a reconnection", || net.health().reconnects == 1 && net.health().is_well());
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(2))]);
}

#[test]
fn a_server_that_answers_the_handshake_late_is_used() {
    let server = RedisServer::start();
    let deadline = Duration::from_nanos(1);
    let net = Net::start(&RedisUrl { deadline, ..url(&server) }).unwrap();
    eventually("a connection", || net.health().is_well());
}

#[test]
fn a_driver_that_panics_is_started_again() {
    let server = RedisServer::start();
    // No clock reaches the end of such a deadline: adding it to the time panics.
    let net = Net::start(&RedisUrl { deadline: Duration::MAX, ..url(&server) }).unwrap();
    for _ in 0..2 {
        let reply = wait(net.send(vec![plain(&["PING"])])).remove(0);
        assert!(
            matches!(&reply, Err(StoreError::Unreachable { address, .. }) if address == "client"),
            "{reply:?}"
        );
        assert_eq!(net.health.waiting(), 0);
        let replies = wait(net.send_to_all(redis::cmd("PING")));
        assert_eq!(replies, [Ok(Value::SimpleString("PONG".to_owned()))]);
        assert!(net.health().is_well());
    }
}

#[test]
fn a_server_without_room_is_an_outage_and_not_a_wrong_password() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = parse(&listener.local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        let refuse = |mut client: TcpStream| {
            while client.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                let _ = client.write_all("-ERR max number of clients reached\r\n".repeat(3).as_bytes());
            }
        };
        listener.incoming().flatten().for_each(refuse);
    });
    let password = Some(Secret::new("right".to_owned()));
    let net = Net::start(&RedisUrl { password, ..patiently(Topology::Single(address)) }).unwrap();
    eventually(
        "an outage",
        || matches!(&net.health().nodes[0].state, NodeState::Unreachable { reason, .. } if reason.contains("max number")),
    );
    assert_eq!(net.health().rejected_connections, 0);
}

/// Opens the store with the default deadline.
fn impatient(server: &RedisServer) -> Arc<Net> {
    Arc::new(Net::start(&RedisUrl { deadline: RedisUrl::DEADLINE, ..url(server) }).unwrap())
}
