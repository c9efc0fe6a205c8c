//! The Smockron gate over real sockets: gatekeepers that are many, silent, slow, broken, or away for a while.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tollway::config::SmockronGate;
use tollway::core::{Nanos, Timestamp};
use tollway_server::Bounds;
use tollway_testbed::{ReceivedEvent, RedisServer, TEST_TIMEOUT, ZmqSocket, eventually};
use tollway_wire::zmtp::{MESSAGE_MAX, SocketType, encode};

use crate::support::zeromq::total;
use crate::support::{Harness, start_with};

const POLICY: &str = "domains:
  web: { rules: [{ rate: 1/s, burst: 1 }] }
  webs: { rules: [{ rate: 1/s, burst: 1 }] }
  slow: { rules: [{ rate: 1/h, burst: 1 }] }";

fn start() -> Harness {
    start_with(POLICY, |_| {})
}

fn start_bounded(change: impl FnOnce(&mut Bounds)) -> Harness {
    start_with(POLICY, |settings| change(&mut settings.bounds))
}

fn accepted<'a>(domain: &'a [u8], identifier: &'a [u8]) -> [&'a [u8]; 6] {
    [domain, b"ACCEPTED", identifier, b"0", b"", b""]
}

fn delay_until(domain: &str, identifier: &str, millis: &str) -> Vec<Vec<u8>> {
    [&format!("{domain}\0"), "DELAY_UNTIL", identifier, millis].map(|frame| frame.as_bytes().to_vec()).into()
}

fn metric(gate: &Harness, name: &str) -> u64 {
    total(&gate.get("/metrics").body, name)
}

/// Waits until a counter says so.
fn wait_for(gate: &Harness, name: &str, value: u64) {
    eventually(name, || metric(gate, name) == value);
}

#[test]
fn who_subscribed_hears_of_what_is_accounted_for_whoever_sent_it() {
    let gate = start();
    let mut subscribers = [b"".as_slice(), b"web\0", b"web", b"webs\0", b"slow\0"]
        .map(|topic| gate.subscriber(&[b"other\0", topic]));
    let mut publishers = [gate.publisher(), gate.publisher()];
    publishers[0].send(&accepted(b"web\0", b"a"));
    gate.accounted(1);
    publishers[1].send(&accepted(b"webs\0", b"b"));
    gate.accounted(2);
    let (web, webs) = (delay_until("web", "a", "1000"), delay_until("webs", "b", "1000"));
    let both = vec![web.clone(), webs.clone()];
    let heard = subscribers.each_mut().map(ZmqSocket::published);
    assert_eq!(heard, [both.clone(), vec![web], both, vec![webs], vec![]]);
}

#[test]
fn a_subscription_may_be_said_in_two_ways_and_taken_back() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[]));
    let mut sent = 0;
    let mut heard = |subscriber: &mut ZmqSocket| {
        publisher.send(&accepted(b"web\0", format!("{sent}").as_bytes()));
        sent += 1;
        gate.accounted(sent);
        // What held before may be told again.
        subscriber.published().iter().any(|message| message[2] == format!("{}", sent - 1).as_bytes())
    };
    assert!(!heard(&mut subscriber));
    for (change, expected) in [
        (&b"\x04\x0e\x09SUBSCRIBEweb\0"[..], true),
        (b"\x04\x0b\x06CANCELweb\0", false),
        (b"\0\x05\x01web\0", true),
        (b"\0\x04\0web", true),
        (b"\0\x05\0web\0", false),
    ] {
        subscriber.write(change);
        subscriber.published();
        assert_eq!(heard(&mut subscriber), expected, "{}", change.escape_ascii());
    }
}

#[test]
fn messages_arrive_in_any_pieces_and_any_number() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    let mut bytes = Vec::new();
    encode(&accepted(b"web\0", b"x"), &mut bytes);
    let mut sent = 0;
    for cut in 1..bytes.len() {
        publisher.write(&bytes[..cut]);
        publisher.write(&bytes[cut..]);
        sent += 1;
    }
    publisher.write(&bytes.repeat(10_000));
    sent += 10_000;
    gate.accounted(sent);
    assert_eq!(subscriber.published().len() as u64, sent);
    let long = vec![b'x'; MESSAGE_MAX - 100];
    publisher.send(&[&accepted(b"web\0", b"y"), &[&*long][..]].concat());
    gate.accounted(sent + 1);
    assert_eq!(subscriber.published(), [delay_until("web", "y", "1000")]);
}

#[test]
fn what_is_no_accounting_is_counted_and_ignored() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    for frames in [
        &[&b"web\0"[..]][..],
        &[b"web\0", b"ACCEPTED", b"x", b"1"],
        &[b"nobody's\0", b"ACCEPTED", b"x", b"1", b""],
        &[b"web\0", b"accepted", b"x", b"1", b""],
        &[b"web\0", b"ACCEPTED", b"x", b"NaN", b""],
        &[b"web\0", b"DELAYED", b"x", b"1", b"-1"],
    ] {
        publisher.send(frames);
    }
    for status in [b"ACCEPTED", b"REJECTED"] {
        publisher.send(&[b"web\0", status, b"y", b"0", b""]);
    }
    publisher.send(&[b"slow\0", b"DELAYED", b"y", b"0", b"250", b""]);
    gate.accounted(9);
    assert_eq!(subscriber.published().len(), 2);
    let page = gate.get("/metrics").body;
    for line in [
        r#"tollway_smockron_malformed_total{reason="frames"} 2"#,
        r#"tollway_smockron_malformed_total{reason="domain"} 1"#,
        r#"tollway_smockron_malformed_total{reason="status"} 1"#,
        r#"tollway_smockron_malformed_total{reason="time"} 2"#,
        r#"tollway_smockron_requests_total{domain="web",status="ACCEPTED"} 1"#,
        r#"tollway_smockron_requests_total{domain="web",status="REJECTED"} 1"#,
        r#"tollway_smockron_requests_total{domain="slow",status="DELAYED"} 1"#,
        r#"tollway_smockron_delay_seconds_bucket{le="0.1"} 0"#,
        r#"tollway_smockron_delay_seconds_bucket{le="0.25"} 1"#,
        r#"tollway_smockron_delay_seconds_sum 0.25"#,
        r#"tollway_smockron_published_total 2"#,
        r#"tollway_smockron_subscribers 1"#,
        r#"tollway_smockron_delays 2"#,
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line}\n{page}");
    }
}

#[test]
fn a_broken_peer_is_hung_up_on_and_nobody_else_notices() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    let doors = [gate.server.smockron_addr().unwrap(), gate.server.smockron_control_addr().unwrap()];
    let greeting = |version: u8, mechanism: &[u8; 5]| {
        let mut greeting = [b"\xff\0\0\0\0\0\0\0\x01\x7f".as_slice(), &[version, 0], mechanism].concat();
        greeting.resize(64, 0);
        greeting
    };
    let broken = [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        greeting(2, b"NULL\0"),
        greeting(3, b"CURVE"),
        [greeting(3, b"NULL\0"), b"\0\x05hello".to_vec()].concat(),
        [greeting(3, b"NULL\0"), b"\x04\x1b\x05READY\x0bSocket-Type\0\0\0\x06DEALER".to_vec()].concat(),
        [greeting(3, b"NULL\0"), b"\x06\x00\x00\x40\0\0\0\0\0".to_vec()].concat(),
    ];
    for address in doors {
        for bytes in &broken {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            stream.write_all(bytes).unwrap();
            let end = stream.read_to_end(&mut Vec::new());
            assert!(end.is_ok() || end.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock));
        }
    }
    for mut peer in [gate.publisher(), gate.subscriber(&[])] {
        // A frame of two to the 46th bytes is announced: none of it is waited for.
        peer.write(b"\x02\0\0\x40\0\0\0\0\0");
        assert_eq!(peer.receive(), ReceivedEvent::End);
    }
    publisher.send(&accepted(b"web\0", b"x"));
    gate.accounted(1);
    assert_eq!(subscriber.published(), [delay_until("web", "x", "1000")]);
    wait_for(&gate, "tollway_smockron_broken_total", 2 * broken.len() as u64 + 2);
}

#[test]
fn who_never_says_what_it_is_is_not_waited_for() {
    let gate = start_bounded(|bounds| bounds.frame_time = Duration::from_millis(100));
    let mut listeners = [gate.publisher(), gate.subscriber(&[])];
    listeners[0].ping();
    assert_eq!(listeners[0].receive(), ReceivedEvent::Pong);
    for address in [gate.server.smockron_addr().unwrap(), gate.server.smockron_control_addr().unwrap()] {
        let mut silent = TcpStream::connect(address).unwrap();
        silent.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        assert!(silent.read_to_end(&mut Vec::new()).is_ok());
    }
    let mut half = gate.publisher();
    half.write(b"\x01\x04web");
    assert_eq!(half.receive(), ReceivedEvent::End);
    assert_eq!(metric(&gate, "tollway_connections_cut_total{when=\"frame\"}"), 3);
    // Those who said what they are may be silent for as long as they like.
    for listener in &mut listeners {
        listener.ping();
        assert_eq!(listener.receive(), ReceivedEvent::Pong);
    }
}

#[test]
fn who_does_not_read_loses_messages_and_nobody_else_does() {
    let gate = start_bounded(|bounds| bounds.queue = 256 << 10);
    let (mut deaf, mut subscriber) = (gate.subscriber(&[b"slow\0"]), gate.subscriber(&[b"slow\0"]));
    let mut publisher = gate.publisher();
    let identifier = vec![b'x'; 4_000];
    let mut sent = 0;
    // Whatever the system keeps for one who does not read, at some time it is full.
    while metric(&gate, "tollway_smockron_dropped_total{what=\"control\"}") == 0 {
        for _ in 0..100 {
            publisher.send(&accepted(b"slow\0", &[sent.to_string().as_bytes(), &identifier].concat()));
            sent += 1;
            match subscriber.receive() {
                ReceivedEvent::Message(message) => {
                    assert_eq!(message[2].len(), identifier.len() + sent_len(sent - 1))
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // Back again, it hears of everybody who is to be delayed, in whatever order.
    let mut missing = vec![true; sent];
    while missing.contains(&true) {
        let ReceivedEvent::Message(message) = deaf.receive() else { panic!("no message") };
        let number = message[2].split(|byte| *byte == b'x').next().unwrap();
        missing[std::str::from_utf8(number).unwrap().parse::<usize>().unwrap()] = false;
    }
}

fn sent_len(number: usize) -> usize {
    number.to_string().len()
}

#[test]
fn who_comes_back_hears_of_the_delays_that_hold() {
    let gate = start();
    let mut publisher = gate.publisher();
    for number in 0..3_000 {
        publisher.send(&accepted(b"slow\0", format!("{number}").as_bytes()));
    }
    publisher.send(&accepted(b"web\0", b"short"));
    gate.accounted(3_001);
    gate.clock.set(Timestamp::EPOCH + Nanos::from_secs(1));
    for (topic, expected) in [(&b"slow\0"[..], 3_000), (b"", 3_000), (b"web\0", 0)] {
        let mut subscriber =
            ZmqSocket::connect(gate.server.smockron_control_addr().unwrap(), SocketType::Sub);
        subscriber.subscribe(topic);
        let mut heard = 0;
        while heard < expected {
            let ReceivedEvent::Message(message) = subscriber.receive() else { panic!("no message") };
            assert_eq!((&message[0][..], &message[3][..]), (&b"slow\0"[..], &b"3600000"[..]));
            heard += 1;
        }
        assert_eq!(subscriber.published().len(), 0);
    }
    // What is over is forgotten.
    gate.clock.set(Timestamp::EPOCH + Nanos::from_secs(3_600));
    wait_for(&gate, "tollway_smockron_delays", 0);
}

#[test]
fn times_on_the_wire_follow_the_wall_clock() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    publisher.send(&accepted(b"slow\0", b"before"));
    gate.accounted(1);
    assert_eq!(subscriber.published(), [delay_until("slow", "before", "3600000")]);
    // The wall clock steps by an hour; no time has passed for the limits.
    gate.clock.set_wall(Timestamp::EPOCH + Nanos::from_secs(3_600));
    publisher.send(&[b"web\0", b"ACCEPTED", b"x", b"3600000", b"", b""]);
    gate.accounted(2);
    assert_eq!(subscriber.published(), [delay_until("web", "x", "3601000")]);
    // Who comes back is told by the wall clock, too, and what was delayed before the step still is.
    let mut late = ZmqSocket::connect(gate.server.smockron_control_addr().unwrap(), SocketType::Sub);
    late.subscribe(b"slow\0");
    assert_eq!(late.receive(), ReceivedEvent::Message(delay_until("slow", "before", "7200000")));
}

#[test]
fn topics_are_bounded_in_number_and_length() {
    let gate = start_bounded(|bounds| (bounds.topics, bounds.topic) = (2, 5));
    let mut publisher = gate.publisher();
    let mut subscriber = gate.subscriber(&[b"too long", b"a\0", b"web\0", b"web\0", b"slow\0"]);
    publisher.send(&accepted(b"slow\0", b"x"));
    publisher.send(&accepted(b"web\0", b"x"));
    gate.accounted(2);
    assert_eq!(subscriber.published(), [delay_until("web", "x", "1000")]);
    assert_eq!(metric(&gate, "tollway_smockron_dropped_total{what=\"topic\"}"), 2);
}

#[test]
fn a_master_that_comes_back_knows_whom_its_store_delays() {
    let redis = RedisServer::start();
    let policy = format!("{POLICY}\nstore: {}?deadline=10s", redis.url());
    let first = start_with(&policy, |_| {});
    let mut publisher = first.publisher();
    for identifier in [&b"a"[..], b"b", b"\xff/%"] {
        publisher.send(&accepted(b"slow\0", identifier));
    }
    first.accounted(3);
    let Harness { server, .. } = first;
    server.stop();
    let second = start_with(&policy, |_| {});
    let mut subscriber = ZmqSocket::connect(second.server.smockron_control_addr().unwrap(), SocketType::Sub);
    subscriber.subscribe(b"slow\0");
    let mut heard: Vec<_> = (0..3)
        .map(|_| match subscriber.receive() {
            ReceivedEvent::Message(message) => message[2].clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    heard.sort();
    assert_eq!(heard, [&b"a"[..], b"b", b"\xff/%"]);
}

#[test]
fn accounting_that_there_is_no_time_for_is_dropped_and_counted() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned(), format!("{}?deadline=10s", redis.url())] {
        let gate =
            start_with(&format!("{POLICY}\nstore: {store}"), |settings| settings.bounds.accounting = 1_000);
        let mut publishers = [0; 4].map(|_| gate.publisher());
        publishers[0].send(&accepted(b"web\0", b"fits"));
        gate.accounted(1);
        let mut bytes = Vec::new();
        (0..100).for_each(|_| encode(&accepted(b"web\0", b"too many at once"), &mut bytes));
        publishers.iter_mut().for_each(|publisher| publisher.write(&bytes));
        let dropped = || metric(&gate, "tollway_smockron_dropped_total{what=\"accounting\"}");
        let accounted = || metric(&gate, "tollway_smockron_requests_total{");
        eventually("all accounting", || dropped() + accounted() >= 401);
        assert_ne!(dropped(), 0);
        let before = accounted();
        publishers[0].send(&accepted(b"web\0", b"fits again"));
        gate.accounted(before + 1);
    }
}

#[test]
fn an_unreachable_store_delays_nobody() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gate = start_with(&format!("{POLICY}\nstore: redis://{nobody}"), |_| {});
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    publisher.send(&accepted(b"web\0", b"x"));
    gate.accounted(1);
    assert_eq!(subscriber.published(), Vec::<Vec<Vec<u8>>>::new());
}

#[test]
fn statsd_is_told_of_every_request() {
    let statsd = UdpSocket::bind("127.0.0.1:0").unwrap();
    statsd.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let address = statsd.local_addr().unwrap().to_string();
    let gate = start_with(POLICY, |settings| {
        settings.gates.smockron.as_mut().unwrap().statsd = Some(address);
    });
    let mut publisher = gate.publisher();
    let receive = || {
        let mut datagram = vec![0; 2_000];
        let len = statsd.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..len].into()).unwrap()
    };
    for (frames, expected) in [
        ([&b"web\0"[..], b"ACCEPTED", b"x", b"0", b""], "request.status.ACCEPTED:1|c\nrequest.total:1|c"),
        ([b"web\0", b"REJECTED", b"x", b"0", b""], "request.status.REJECTED:1|c\nrequest.total:1|c"),
        (
            [b"web\0", b"DELAYED", b"x", b"100", b"350"],
            "request.status.DELAYED:1|c\nrequest.total:1|c\nrequest.delayed_by:250|ms",
        ),
    ] {
        publisher.send(&frames);
        assert_eq!(receive(), expected);
    }
    let mut bytes = Vec::new();
    (0..1_000).for_each(|_| encode(&accepted(b"web\0", b"x"), &mut bytes));
    publisher.write(&bytes);
    let (mut datagrams, mut requests) = (0, 0);
    while requests < 1_000 {
        let lines = receive();
        assert!(lines.len() <= 1_432);
        requests += lines.lines().filter(|line| *line == "request.total:1|c").count();
        datagrams += 1;
    }
    assert!(datagrams < 200, "{datagrams} datagrams");
}

#[test]
fn a_drain_publishes_what_was_said_and_closes() {
    let gate = start();
    let (mut publisher, mut subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
    publisher.ping();
    assert_eq!(publisher.receive(), ReceivedEvent::Pong);
    publisher.send(&accepted(b"web\0", b"x"));
    let Harness { server, .. } = gate;
    server.stop();
    assert_eq!(subscriber.receive(), ReceivedEvent::Message(delay_until("web", "x", "1000")));
    assert_eq!((subscriber.receive(), publisher.receive()), (ReceivedEvent::End, ReceivedEvent::End));
}

#[test]
fn control_is_at_the_port_after_accounting() {
    // Somebody else may be there; then there is another.
    for port in (21_000..60_000).step_by(97) {
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        let free = |port| TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err();
        if !free(port) || !free(port + 1) {
            continue;
        }
        let gate =
            start_with(POLICY, |settings| settings.gates.smockron.as_mut().unwrap().accounting = address);
        assert_eq!(gate.server.smockron_addr(), Some(address));
        assert_eq!(gate.server.smockron_control_addr().unwrap().port(), port + 1);
        return;
    }
}

#[test]
fn gatekeepers_outside_of_the_trusted_networks_are_refused_and_counted() {
    let gate = start_with(POLICY, |settings| {
        let smockron = settings.gates.smockron.take().unwrap();
        let trusted_networks = ["127.0.0.2".parse().unwrap()].into_iter().collect();
        settings.gates.smockron = Some(SmockronGate { trusted_networks, ..smockron });
    });
    let addresses = [gate.server.smockron_addr().unwrap(), gate.server.smockron_control_addr().unwrap()];
    for (name, address) in ["smockron (accounting)", "smockron (control)"].into_iter().zip(addresses) {
        let refused = format!("tollway_connections_refused_total{{gate=\"{name}\",reason=\"network\"}}");
        assert_eq!(metric(&gate, &refused), 0);
        assert_eq!(greeting(TcpStream::connect(address).unwrap()), 0, "{name} says nothing to a stranger");
        assert_eq!(metric(&gate, &refused), 1);
        let trusted = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        trusted.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        trusted.connect(&address.into()).unwrap();
        assert!(greeting(trusted.into()) > 0, "{name} greets whom it trusts");
        assert_eq!(metric(&gate, &refused), 1);
    }
}

/// Returns how many bytes the master says first.
fn greeting(mut stream: TcpStream) -> usize {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    match stream.read(&mut [0; 64]) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        read => read.unwrap(),
    }
}
