//! The text gate with keys, over real sockets: who is answered, who is not, and what is counted.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tollway::Clock;
use tollway::config::TextHmac;
use tollway::core::{Nanos, Timestamp};
use tollway_client::text::{self, KeyAnswer, SigningKey};
use tollway_server::{Bounds, Settings};
use tollway_testbed::{TEST_TIMEOUT, eventually};
use tollway_wire::text::{DATAGRAM_MAX, Mac};

use crate::support::zeromq::total;
use crate::support::{Harness, start_with};

const KEYS: &str = "keys: [{ match: '', limit: 1000000, period: 10s }]";
const WINDOW: u64 = 30_000;
/// The wall clock of the tests, in milliseconds.
const NOW: u64 = 1_784_000_000_000;

/// A gate that answers what `web` and `billing` sign, and the directory of its key file.
struct SignedGate {
    gate: Harness,
    directory: TempDir,
}

fn secret_of(name: &str) -> [u8; 32] {
    let mut secret = [7; 32];
    secret[..name.len()].copy_from_slice(name.as_bytes());
    secret
}

fn key(name: &str) -> SigningKey {
    SigningKey::new(name, &secret_of(name)).unwrap()
}

fn write_keys(directory: &Path, names: &[&str]) {
    let hex = |name: &str| secret_of(name).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: String = names.iter().map(|name| format!("{name} {}\n", hex(name))).collect();
    replace(directory, &lines);
}

/// Puts a whole file in the place of another: nobody reads half of it.
fn replace(directory: &Path, text: &str) {
    fs::write(directory.join("next"), text).unwrap();
    fs::rename(directory.join("next"), directory.join("keys.txt")).unwrap();
}

fn start(change: impl FnOnce(&mut Settings)) -> SignedGate {
    let directory = tempfile::tempdir().unwrap();
    write_keys(directory.path(), &["web", "billing"]);
    let keys = directory.path().join("keys.txt");
    let gate = start_with(KEYS, |settings| {
        settings.gates.text_hmac = Some(TextHmac { keys, window: Nanos::from_millis(WINDOW) });
        change(settings);
    });
    set_wall(&gate.clock, NOW);
    SignedGate { gate, directory }
}

fn set_wall(clock: &Clock, millis: u64) {
    clock.set_wall(Timestamp::from_nanos(millis * 1_000_000));
}

fn signed(request: &str, name: &str, millis: u64) -> (Vec<u8>, Mac) {
    let mut datagram = request.as_bytes().to_vec();
    let mac = key(name).sign_request(millis, &mut datagram);
    (datagram, mac)
}

impl SignedGate {
    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.gate.server.text_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket
    }

    /// Sends a signed request, and returns the reply without its signature, which must be good.
    fn ask(&self, socket: &UdpSocket, request: &str, name: &str, millis: u64) -> String {
        let (datagram, mac) = signed(request, name, millis);
        socket.send(&datagram).unwrap();
        let mut buffer = [0; 2_000];
        let len = socket.recv(&mut buffer).unwrap();
        assert!(len <= DATAGRAM_MAX);
        let reply = key(name).verify_reply(&mac, &buffer[..len]);
        let reply = reply.unwrap_or_else(|| panic!("{}", buffer[..len].escape_ascii()));
        String::from_utf8(reply.to_vec()).unwrap()
    }

    fn rejected(&self, reason: &str) -> u64 {
        total(&self.gate.get("/metrics").body, &format!("tollway_text_rejected_total{{reason=\"{reason}\"}}"))
    }

    /// Asserts that these datagrams are counted as rejected for this reason, and get no reply.
    fn assert_rejected(&self, reason: &str, datagrams: &[Vec<u8>]) {
        let (socket, before) = (self.socket(), self.rejected(reason));
        for datagram in datagrams {
            socket.send(datagram).unwrap();
        }
        eventually(reason, || self.rejected(reason) == before + datagrams.len() as u64);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock, "{reason}");
    }
}

#[test]
fn every_command_is_answered_with_a_signature() {
    let gate = start(|_| {});
    let socket = gate.socket();
    for (request, reply) in [
        ("7 over_limit ws global", "7 ok N 0.0 1000000.0 10"),
        ("over_limit ws global", "ok N 1.0 1000000.0 10"),
        ("7 get_stats k", "7 n_req=0 n_over=0 last_max_rate=0 key=k"),
        ("007 ping", "007 pong"),
        ("8 get_size", "8 size=1 keys=1"),
    ] {
        assert_eq!(gate.ask(&socket, request, "web", NOW), reply);
    }
    assert_eq!(
        gate.ask(&socket, "7 ping", "billing", NOW),
        "7 pong",
        "another key signs the same for itself"
    );
    let long = format!("1 get_stats {}", "k".repeat(870));
    let reply = gate.ask(&socket, &long, "web", NOW);
    assert!(reply.starts_with("1 n_req=0 n_over=0 last_max_rate=0 key=kkk"), "{reply}");
    for reason in ["unsigned", "unknown_key", "time", "wrong_mac", "replayed", "full"] {
        assert_eq!(gate.rejected(reason), 0, "{reason}");
    }
}

#[test]
fn what_is_not_signed_by_a_key_in_time_gets_no_reply() {
    let gate = start(|_| {});
    let good = signed("1 over_limit k", "web", NOW).0;
    let changed = |index: usize| {
        let mut datagram = good.clone();
        datagram[index] ^= 1;
        datagram
    };
    let too_long = signed(&format!("1 over_limit {}", "k".repeat(DATAGRAM_MAX)), "web", NOW).0;
    gate.assert_rejected(
        "unsigned",
        &[b"1 over_limit k".to_vec(), b"1 ping".to_vec(), b"".to_vec(), too_long],
    );
    let other = SigningKey::new("other", &secret_of("web")).unwrap();
    let mut by_other = b"1 over_limit k".to_vec();
    other.sign_request(NOW, &mut by_other);
    gate.assert_rejected("unknown_key", &[by_other]);
    let mut wrong_secret = b"1 over_limit k".to_vec();
    SigningKey::new("web", &secret_of("billing")).unwrap().sign_request(NOW, &mut wrong_secret);
    gate.assert_rejected("wrong_mac", &[wrong_secret, changed(0), changed(12), changed(13)]);
    let old = signed("1 over_limit k", "web", NOW - WINDOW - 1).0;
    let new = signed("1 over_limit k", "web", NOW + WINDOW + 1).0;
    gate.assert_rejected("time", &[old, new]);
    let reply = gate.ask(&gate.socket(), "2 over_limit k", "web", NOW);
    assert_eq!(reply, "2 ok N 0.0 1000000.0 10", "nobody used the key before");
}

#[test]
fn a_datagram_that_comes_again_from_anywhere_gets_no_reply() {
    let gate = start(|_| {});
    assert_eq!(gate.ask(&gate.socket(), "1 over_limit k", "web", NOW), "1 ok N 0.0 1000000.0 10");
    let copy = signed("1 over_limit k", "web", NOW).0;
    // From many ports: the kernel gives them to both workers.
    (0..20).for_each(|_| gate.assert_rejected("replayed", std::slice::from_ref(&copy)));
    set_wall(&gate.gate.clock, NOW + WINDOW);
    gate.assert_rejected("replayed", std::slice::from_ref(&copy));
    set_wall(&gate.gate.clock, NOW + WINDOW + 1_000);
    gate.assert_rejected("time", &[copy]);
}

#[test]
fn a_full_memory_answers_nobody_until_times_have_passed() {
    let gate = start(|settings| settings.bounds = Bounds { signed_datagrams: 1, ..settings.bounds });
    // Each of 64 shards has room for one, so the second of each is rejected, and one of 65 surely is.
    let socket = gate.socket();
    for number in 0..65 {
        socket.send(&signed(&format!("{number} ping"), "web", NOW).0).unwrap();
    }
    eventually("a full memory", || gate.rejected("full") > 0);
    let later = NOW + 3 * WINDOW;
    set_wall(&gate.gate.clock, later);
    assert_eq!(gate.ask(&gate.socket(), "1 ping", "web", later), "1 pong");
}

#[test]
fn a_changed_key_file_takes_effect_and_a_wrong_one_does_not() {
    let gate = start(|_| {});
    let socket = gate.socket();
    assert_eq!(gate.ask(&socket, "1 ping", "web", NOW), "1 pong");
    write_keys(gate.directory.path(), &["billing", "fresh"]);
    gate.gate.server.reload();
    eventually("the new file", || gate.gate.reloads("ok") > 0);
    assert_eq!(gate.ask(&socket, "2 ping", "fresh", NOW), "2 pong");
    gate.assert_rejected("unknown_key", &[signed("3 ping", "web", NOW).0]);
    for wrong in ["", "fresh 00ff", "fresh"] {
        let failed = gate.gate.reloads("failed");
        replace(gate.directory.path(), wrong);
        gate.gate.server.reload();
        eventually("the wrong file", || gate.gate.reloads("failed") > failed);
        let request = format!("{} ping", 10 + failed);
        assert!(gate.ask(&socket, &request, "fresh", NOW).ends_with("pong"), "{wrong:?}");
    }
}

#[test]
fn a_server_without_its_keys_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    for (content, expected) in [
        (None, "cannot be read"),
        (Some("web 5ec4e7"), "is wrong"),
        (Some("# nothing"), "is wrong"),
        (Some("web \u{fffd}"), "is wrong"),
    ] {
        let keys = directory.path().join("keys.txt");
        let _ = fs::remove_file(&keys);
        content.iter().for_each(|content| fs::write(&keys, content).unwrap());
        let config = tollway::Config::parse(KEYS, "policy.yaml").unwrap();
        let engine = tollway::engine::Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap();
        let mut settings =
            Settings { gates: crate::support::any_ports(), ..Settings::new(std::sync::Arc::new(engine)) };
        settings.gates.text_hmac = Some(TextHmac { keys, window: Nanos::from_secs(30) });
        let error = tollway_server::Server::start(settings).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!format!("{error:?}").contains("5ec4e7"));
    }
}

/// Moves the wall clock of the gate to that of this machine, by which clients sign.
fn follow_the_machine(gate: &SignedGate) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    set_wall(&gate.gate.clock, u64::try_from(now.as_millis()).unwrap());
}

fn hmac_of_ten_minutes(settings: &mut Settings) {
    let hmac = settings.gates.text_hmac.take().unwrap();
    settings.gates.text_hmac = Some(TextHmac { window: Nanos::from_secs(600), ..hmac });
}

#[tokio::test]
async fn clients_with_a_key_are_answered_and_others_are_not() {
    let gate = start(hmac_of_ten_minutes);
    follow_the_machine(&gate);
    let address = gate.gate.server.text_addr().unwrap().to_string();
    let client = text::Client::with_timeout(&address, TEST_TIMEOUT).unwrap().with_key(key("web"));
    for used in 0..50 {
        assert_eq!(client.over_limit("k").await.unwrap().answered().unwrap().rate, f64::from(used));
    }
    client.ping().await.unwrap();
    let without = text::Client::with_timeout(&address, Duration::from_millis(30)).unwrap();
    for client in [without.clone(), without.with_key(key("unknown"))] {
        assert_eq!(client.over_limit("k").await.unwrap(), KeyAnswer::Unanswered);
    }
}

#[test]
fn blocking_clients_with_a_key_are_answered() {
    let gate = start(hmac_of_ten_minutes);
    follow_the_machine(&gate);
    let address = gate.gate.server.text_addr().unwrap().to_string();
    let client =
        text::blocking::Client::with_timeout(&address, TEST_TIMEOUT).unwrap().with_key(key("billing"));
    assert!(!client.over_limit("k").unwrap().over());
    assert_eq!(client.get_size().unwrap(), 1);
    assert_eq!(client.ask(b"ping").unwrap(), b"pong");
}
