//! Tests the connections to nodes against real servers.

mod cluster;
mod direct;
mod faults;
mod load;
mod proxy;
mod router;
mod sentinel;

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;
use tollway_core::ErrorChain;
use tollway_testbed::{RedisCluster, RedisServer, eventually};

use super::*;
use crate::store::NodeState;
use crate::store::redis::call::Script;
use crate::store::redis::{Address, Secret};

static COUNT: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])".to_owned()));

/// A key of each primary of a Cluster, and its slot.
const KEYS: [(&str, u16); 3] = [("b", 3300), ("c", 7365), ("a", 15495)];

#[test]
fn replies_come_in_the_order_of_the_calls() {
    let server = RedisServer::start();
    let net = patient(&server);
    let replies = wait(net.send(vec![plain(&["SET", "a", "1"]), plain(&["GET", "a"]), plain(&["GET", "b"])]));
    assert_eq!(replies, [Ok(Value::Okay), Ok(Value::BulkString(b"1".to_vec())), Ok(Value::Nil)]);
    assert_eq!(wait(net.send(vec![])), []);
}

#[test]
fn one_that_fails_does_not_spoil_the_others() {
    let server = RedisServer::start();
    let net = patient(&server);
    server.cli(&["SET", "text", "a"]);
    let replies = wait(net.send(vec![plain(&["INCR", "text"]), plain(&["INCR", "number"])]));
    assert!(
        matches!(&replies[0], Err(StoreError::Refused { reason, .. }) if reason.contains("not an integer"))
    );
    assert_eq!(replies[1], Ok(Value::Int(1)));
    assert_eq!(net.health().refusals, 1);
}

#[test]
fn a_script_that_the_node_has_not_seen_is_loaded() {
    let server = RedisServer::start();
    let net = patient(&server);
    for expected in [3, 6] {
        let replies = wait(net.send((0..3).map(|_| count("n")).collect()));
        assert_eq!(replies.last(), Some(&Ok(Value::Int(expected))));
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(server.times_called("script|load"), 2);
}

#[test]
fn a_store_starts_without_its_server() {
    let mut server = RedisServer::start();
    server.kill();
    let net = Net::start(&url(&server)).unwrap();
    let reply = wait(net.send(vec![plain(&["PING"])])).remove(0);
    assert!(
        matches!(reply, Err(StoreError::Unreachable { .. } | StoreError::CircuitOpen { .. })),
        "{reply:?}"
    );
    assert!(matches!(net.health().nodes[0].state, NodeState::Unreachable { .. }));
}

#[test]
fn users_databases_and_names_are_as_asked_for() {
    let server = RedisServer::start();
    server.cli(&["ACL", "SETUSER", "gate", "on", ">secret", "~*", "+@all"]);
    server.cli(&["ACL", "SETUSER", "default", "off"]);
    let password = Some(Secret::new("secret".to_owned()));
    let url = RedisUrl { database: 3, username: Some("gate".to_owned()), password, ..url(&server) };
    let net = Net::start(&url).unwrap();
    let replies = wait(net.send(vec![plain(&["CLIENT", "INFO"])]));
    let [Ok(Value::BulkString(info))] = replies.as_slice() else { panic!("{replies:?}") };
    let info = String::from_utf8_lossy(info);
    assert!(["db=3", "name=tollway", "user=gate"].iter().all(|part| info.contains(part)), "{info}");
}

#[test]
fn a_refused_login_is_an_error_at_start_without_the_password() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for password in [Some("wrong"), None] {
        let password = password.map(|password| Secret::new(password.to_owned()));
        let error = Net::start(&RedisUrl { password, ..url(&server) }).unwrap_err();
        let text = ErrorChain(&error).to_string();
        assert!(text.contains("check the username, the password and the password_file"), "{text}");
        assert!(!text.contains("wrong"), "{text}");
    }
    let password = Some(Secret::new("right".to_owned()));
    assert!(Net::start(&RedisUrl { password, ..url(&server) }).is_ok());
}

#[test]
fn a_login_that_is_refused_later_opens_the_circuit() {
    let server = RedisServer::start();
    let net = patient(&server);
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    server.cli(&["--no-auth-warning", "-a", "secret", "CLIENT", "KILL", "TYPE", "NORMAL"]);
    eventually("a refusal", || net.health().rejected_connections > 0);
    let reply = wait(net.send(vec![plain(&["PING"])])).remove(0);
    assert!(matches!(reply, Err(StoreError::CircuitOpen { .. })), "{reply:?}");
}

#[test]
fn a_cluster_is_asked_where_the_slot_is() {
    let cluster = RedisCluster::start();
    let seeds = cluster.addresses().iter().map(|address| parse(address)).collect();
    let net = Net::start(&patiently(Topology::Cluster(seeds))).unwrap();
    assert!(net.is_cluster());
    let calls = KEYS.map(|(key, slot)| Call { slot, ..count(key) });
    assert_eq!(wait(net.send(calls.to_vec())), [Ok(Value::Int(1)), Ok(Value::Int(1)), Ok(Value::Int(1))]);
    assert_eq!(net.health().redirects, 0);
    let size = || redis::cmd("DBSIZE");
    assert_eq!(wait(net.send_to_all(size())), [Ok(Value::Int(1)), Ok(Value::Int(1)), Ok(Value::Int(1))]);
    assert_eq!(wait(net.send_to_nth(2, size())), Some(Ok(Value::Int(1))));
    assert_eq!(wait(net.send_to_nth(3, size())), None);
    // Whoever takes one of its nodes for all there is, is told.
    let replies = wait(patient(&cluster.nodes()[0]).send(vec![count("a")]));
    assert!(
        matches!(&replies[0], Err(StoreError::Refused { reason, .. }) if reason.contains("cluster")),
        "{replies:?}"
    );
}

#[test]
fn tls_trusts_the_authority_that_it_was_told() {
    let server = RedisServer::start_tls();
    let address = Address { host: "localhost".to_owned(), port: server.port() };
    let mut url = RedisUrl { tls: true, ..patiently(Topology::Single(address)) };
    url.tls_ca = Some(server.certificate_authority().to_owned());
    let net = Net::start(&url).unwrap();
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);
    url.tls_ca = None;
    // A machine without any certificates has another error than one that does not trust this certificate.
    let text = ErrorChain(&Net::start(&url).unwrap_err()).to_string();
    assert!(text.contains("tls_ca"), "{text}");
}

#[test]
fn a_redis_that_asks_for_a_certificate_gets_ours() {
    let server = RedisServer::start_mtls();
    let address = Address { host: "localhost".to_owned(), port: server.port() };
    let client = server.certificates().sign_client("tollway");
    let tls_ca = Some(server.certificate_authority().to_owned());
    let anonymous = RedisUrl { tls: true, tls_ca, ..patiently(Topology::Single(address)) };
    let url = RedisUrl {
        tls_cert: Some(client.cert.clone()),
        tls_key: Some(client.key.clone()),
        ..anonymous.clone()
    };
    let net = Net::start(&url).unwrap();
    assert_eq!(wait(net.send(vec![count("n")])), [Ok(Value::Int(1))]);

    let text = ErrorChain(&Net::start(&anonymous).unwrap_err()).to_string();
    assert!(text.contains("tls_cert"), "{text}");
    let expired = server.certificates().sign_expired_client("old");
    let url = RedisUrl { tls_cert: Some(expired.cert), tls_key: Some(expired.key), ..anonymous.clone() };
    let text = ErrorChain(&Net::start(&url).unwrap_err()).to_string();
    assert!(text.contains("tls_cert"), "{text}");
    let missing = client.cert.with_file_name("none.pem");
    let url = RedisUrl { tls_cert: Some(missing), tls_key: Some(client.key), ..anonymous };
    let text = ErrorChain(&Net::start(&url).unwrap_err()).to_string();
    assert!(text.contains("none.pem"), "{text}");
}

/// Returns the URL of a server, with a deadline that a busy machine keeps.
fn url(server: &RedisServer) -> RedisUrl {
    patiently(Topology::Single(parse(&server.address())))
}

fn patiently(topology: Topology) -> RedisUrl {
    RedisUrl { deadline: Duration::from_secs(5), ..RedisUrl::new(topology) }
}

fn parse(address: &str) -> Address {
    let (host, port) = address.rsplit_once(':').unwrap();
    Address { host: host.to_owned(), port: port.parse().unwrap() }
}

fn patient(server: &RedisServer) -> Net {
    Net::start(&url(server)).unwrap()
}

fn plain(words: &[&str]) -> Call {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    Call { slot: 0, command, script: None }
}

fn count(key: &str) -> Call {
    let mut command = redis::cmd("EVALSHA");
    command.arg(&COUNT.sha).arg(1).arg(key).arg(1);
    Call { slot: 0, command, script: Some(&COUNT) }
}

fn wait<F: Future>(future: F) -> F::Output {
    runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
