//! The text gate over real sockets, and what the network can do to it.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use tollway::config::listen_address;
use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::support::zeromq::total;
use crate::support::{Harness, start_with};

const KEYS: &str = "
keys:
  - { match: '^never', answer: never }
  - { match: '', limit: 1000000, period: 10s }
";

fn start() -> Harness {
    start_with(KEYS, |_| {})
}

fn client(gate: &Harness) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(gate.server.text_addr().unwrap()).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

fn reply(socket: &UdpSocket) -> String {
    let mut buffer = [0; 2_000];
    let len = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

fn ask(socket: &UdpSocket, request: &[u8]) -> String {
    socket.send(request).unwrap();
    reply(socket)
}

fn send_pings(socket: &UdpSocket, count: usize) {
    for number in 0..count {
        socket.send(format!("{number} ping").as_bytes()).unwrap();
    }
}

fn metric(gate: &Harness, name: &str) -> u64 {
    total(&gate.get("/metrics").body, name)
}

fn assert_alive(gate: &Harness) {
    assert_eq!(ask(&client(gate), b"77 ping"), "77 pong");
}

#[test]
fn a_burst_is_answered_whole_and_to_whom_it_belongs() {
    let gate = start();
    let clients: Vec<_> = (0..8).map(|_| client(&gate)).collect();
    for round in 0..20 {
        let mut sent: Vec<HashSet<String>> = vec![HashSet::new(); clients.len()];
        for number in 0..40 {
            let which = number % clients.len();
            // Ids and answers of many lengths, so that those of one size are gathered from among others.
            let id = "9".repeat(1 + number % 7) + &number.to_string();
            let (request, answer) = match number % 3 {
                0 => (format!("{id} ping"), format!("{id} pong")),
                1 => (format!("{id} over_limit never {which}"), format!("{id} ok N 0.0 1.0 1")),
                _ => (
                    format!("{id} get_stats k{round}"),
                    format!("{id} n_req=0 n_over=0 last_max_rate=0 key=k{round}"),
                ),
            };
            clients[which].send(request.as_bytes()).unwrap();
            sent[which].insert(answer);
        }
        for (client, mut awaited) in clients.iter().zip(sent) {
            while !awaited.is_empty() {
                let reply = reply(client);
                assert!(awaited.remove(&reply), "{reply} was not awaited");
            }
        }
    }
}

#[test]
fn every_command_of_every_size_is_answered_or_silently_ignored() {
    let gate = start();
    let socket = client(&gate);
    for command in ["ping", "get_size", "over_limit ", "get_stats ", "check_limit ", "", "nonsense "] {
        for size in 0..=1_100 {
            let mut request = format!("1 {command}").into_bytes();
            request.resize(request.len().max(size), b'k');
            let whole = request.len() == command.len() + 2;
            let answered = match command {
                "ping" | "get_size" => whole,
                "over_limit " | "get_stats " => true,
                _ => false,
            };
            socket.send(&request).unwrap();
            if answered {
                let reply = reply(&socket);
                assert!(reply.starts_with("1 ") && reply.len() <= 1_000, "{command} of {size}: {reply}");
            }
        }
    }
    assert_eq!(ask(&socket, b"2 ping"), "2 pong", "nothing else was answered");
}

#[test]
fn what_is_too_long_is_cut_and_taken_for_what_it_is() {
    let gate = start();
    let socket = client(&gate);
    let long = [b"5 get_stats ".to_vec(), vec![b'a'; 60_000]].concat();
    let expected = format!("5 n_req=0 n_over=0 last_max_rate=0 key={}", "a".repeat(1_000));
    assert_eq!(ask(&socket, &long), expected[..1_000]);
    assert_alive(&gate);
}

#[test]
fn clients_that_are_gone_when_they_are_answered_disturb_nobody() {
    let gate = start();
    let patient = client(&gate);
    for number in 0..200 {
        // Gone before the answer: the system says so to the gate, which does not care.
        client(&gate).send(b"1 over_limit never").unwrap();
        assert_eq!(ask(&patient, format!("{number} ping").as_bytes()), format!("{number} pong"));
    }
}

#[test]
fn a_source_port_of_zero_is_nobody() {
    let gate = start();
    let raw = match Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)) {
        Ok(raw) => raw,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("only root can send from port 0: nothing was tested");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let to = gate.server.text_addr().unwrap();
    for payload in [&b"1 ping"[..], b"1 over_limit k", b""] {
        let len = u16::try_from(8 + payload.len()).unwrap();
        let header = [0, to.port(), len, 0].map(u16::to_be_bytes).concat();
        let packet = [&header, payload].concat();
        raw.send_to(&packet, &SocketAddr::new(to.ip(), 0).into()).unwrap();
    }
    // Both workers get their share of clients, and the one that was asked from port 0 still answers many at once.
    for _ in 0..50 {
        assert_alive(&gate);
    }
    let socket = client(&gate);
    send_pings(&socket, 64);
    (0..64).for_each(|_| assert!(reply(&socket).ends_with(" pong")));
    assert_eq!(metric(&gate, "tollway_text_untrusted_total "), 3);
}

#[test]
fn every_interface_is_ipv4_too() {
    let gate = start_with(KEYS, |settings| settings.gates.text = listen_address(":0"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", gate.server.text_addr().unwrap().port())).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    assert_eq!(ask(&socket, b"1 over_limit k"), "1 ok N 0.0 1000000.0 10");
}

#[test]
fn senders_outside_the_trusted_networks_get_no_reply_and_are_counted() {
    let gate = start_with(KEYS, |settings| {
        settings.gates.trusted_networks = ["127.0.0.2".parse().unwrap()].into_iter().collect();
    });
    let (trusted, untrusted) = (UdpSocket::bind("127.0.0.2:0").unwrap(), client(&gate));
    trusted.connect(gate.server.text_addr().unwrap()).unwrap();
    trusted.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    for request in [&b"1 ping"[..], b"1 over_limit k", b"1 check_limit {}"] {
        untrusted.send(request).unwrap();
    }
    eventually("three to be counted", || metric(&gate, "tollway_text_untrusted_total ") == 3);
    assert_eq!(ask(&trusted, b"2 over_limit k"), "2 ok N 0.0 1000000.0 10", "nobody used the key before");
    untrusted.set_nonblocking(true).unwrap();
    assert_eq!(untrusted.recv(&mut [0; 100]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_reload_reaches_keys_seen_before() {
    let gate = start();
    let socket = client(&gate);
    assert_eq!(ask(&socket, b"over_limit k"), "ok N 0.0 1000000.0 10");
    let config = tollway::Config::parse("keys: [{ match: k, limit: 7, period: 1m }]", "reloaded").unwrap();
    gate.limiter.reload(config.policy);
    assert_eq!(ask(&socket, b"over_limit k"), "ok N 1.0 7.0 60");
    gate.limiter.reload(tollway::Config::parse("keys: []", "reloaded").unwrap().policy);
    assert_eq!(ask(&socket, b"over_limit k"), "ok N 0.0 1.0 1", "no rule matches any more");
    let page = gate.get("/metrics").body;
    for line in ["tollway_text_datagrams_total 3", "tollway_text_unmatched_total 1"] {
        assert!(page.contains(&format!("{line}\n")), "{page}");
    }
    assert!(page.contains("tollway_text_answers_total{over=\"N\"} 2\n"), "{page}");
}

#[test]
fn what_had_arrived_when_the_drain_began_is_answered() {
    let gate = start_with(KEYS, |settings| settings.workers = 1);
    let socket = client(&gate);
    send_pings(&socket, 100);
    let Harness { server, .. } = gate;
    server.stop();
    (0..100).for_each(|_| assert!(reply(&socket).ends_with(" pong")));
}
