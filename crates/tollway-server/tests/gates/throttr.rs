//! The Throttr gate over real sockets: slow, broken, silent and numerous clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollway::core::algorithm::{QuotaTtl, TtlUnit};
use tollway_server::Bounds;
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::throttr::{FRAME_MAX, ThrottrCommand, encode_request};

use crate::support::{Harness, start_with};

fn start() -> Harness {
    start_with("limits: {}", |_| {})
}

fn start_bounded(change: impl FnOnce(&mut Bounds)) -> Harness {
    start_with("limits: {}", |settings| change(&mut settings.bounds))
}

fn connect(gate: &Harness) -> TcpStream {
    let stream = TcpStream::connect(gate.server.throttr_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn frame(id: u32, command: ThrottrCommand, consumer: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_request(id, &command, consumer.as_bytes(), b"r", &mut frame).unwrap();
    frame
}

fn insert(id: u32, consumer: &str) -> Vec<u8> {
    frame(
        id,
        ThrottrCommand::Insert { quota: 5, lifetime: QuotaTtl { value: 10, unit: TtlUnit(2) } },
        consumer,
    )
}

fn query(id: u32, consumer: &str) -> Vec<u8> {
    frame(id, ThrottrCommand::Query, consumer)
}

fn status(id: u32, status: u8) -> Vec<u8> {
    [&id.to_le_bytes()[..], &[status]].concat()
}

fn found(id: u32) -> Vec<u8> {
    [&status(id, 1)[..], &5_u64.to_le_bytes(), &[2], &10_u64.to_le_bytes()].concat()
}

fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn assert_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0, "there is a reply"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn requests_arrive_in_any_pieces_and_are_answered_in_order() {
    let gate = start();
    let stream = &mut connect(&gate);
    let requests =
        [insert(1, "c"), query(2, "c"), insert(3, "c"), query(4, "nobody"), query(5, "c")].concat();
    let replies = |first| [status(1, first), found(2), status(3, 0), status(4, 0), found(5)].concat();
    stream.write_all(&requests).unwrap();
    assert_eq!(read(stream, replies(1).len()), replies(1));
    for cut in 1..requests.len() {
        for piece in [&requests[..cut], &requests[cut..]] {
            stream.write_all(piece).unwrap();
        }
        assert_eq!(read(stream, replies(0).len()), replies(0), "cut at {cut}");
    }
    for byte in &requests {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read(stream, replies(0).len()), replies(0));
}

#[test]
fn thousands_at_once_are_answered_while_they_are_still_being_sent() {
    let gate = start();
    let stream = &mut connect(&gate);
    stream.write_all(&insert(0, "c")).unwrap();
    read(stream, 5);
    let (count, requests) = (200_000, query(7, "c").repeat(1_000));
    let mut sender = stream.try_clone().unwrap();
    let sending =
        std::thread::spawn(move || (0..count / 1_000).for_each(|_| sender.write_all(&requests).unwrap()));
    for _ in 0..count {
        assert_eq!(read(stream, 22), found(7));
    }
    sending.join().unwrap();
}

#[test]
fn what_is_no_request_closes_after_the_replies_due() {
    let gate = start();
    for unknown in [0, 5, 0xff] {
        let stream = &mut connect(&gate);
        let mut bytes = [query(1, "a"), query(2, "a")].concat();
        bytes.push(unknown);
        bytes.extend_from_slice(&query(3, "a").repeat(1_000));
        stream.write_all(&bytes).unwrap();
        assert_eq!(read(stream, 10), [status(1, 0), status(2, 0)].concat());
        assert_closed(stream);
    }
    assert!(gate.get("/metrics").body.contains("tollway_throttr_unknown_type_total 3\n"));
}

#[test]
fn every_command_of_every_size_is_answered_or_closed() {
    let gate = start();
    for request_type in 0..=5_u8 {
        for size in (0..64).chain((64..1_100).step_by(13)) {
            let mut bytes = vec![0; size];
            if let Some(first) = bytes.first_mut() {
                *first = request_type;
            }
            let stream = &mut connect(&gate);
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut replies = Vec::new();
            // A reset takes what had not been read with it; what had is whole.
            let _ = stream.read_to_end(&mut replies);
            assert!(replies.len().is_multiple_of(5), "type {request_type}, {size} bytes: {replies:?}");
        }
    }
    gate.assert_alive();
}

#[test]
fn half_a_frame_is_waited_for_until_its_deadline_while_others_are_served() {
    let deadline = Duration::from_millis(300);
    let gate = start_bounded(|bounds| bounds.frame_time = deadline);
    let half = &insert(1, "c")[..20];
    let mut halves: Vec<_> = (0..1_000)
        .map(|_| {
            let mut stream = connect(&gate);
            stream.write_all(half).unwrap();
            stream
        })
        .collect();
    let live = &mut connect(&gate);
    for id in 0..1_000 {
        live.write_all(&query(id, "c")).unwrap();
        assert_eq!(read(live, 5), status(id, 0));
    }
    halves.iter_mut().for_each(assert_closed);
    live.write_all(&query(9, "c")).unwrap();
    assert_eq!(read(live, 5), status(9, 0), "who is alive stays");
    let page = gate.get("/metrics").body;
    assert!(page.contains("tollway_connections_cut_total{when=\"frame\"} 1000\n"), "{page}");
}

#[test]
fn a_trickle_of_bytes_earns_no_more_time() {
    let gate = start_bounded(|bounds| bounds.frame_time = Duration::from_millis(200));
    let (stream, live) = (&mut connect(&gate), &mut connect(&gate));
    // One byte of a long frame after every twenty requests of somebody else: it must end before the frame does.
    let frame = {
        let mut frame = Vec::new();
        encode_request(1, &ThrottrCommand::Query, &[b'c'; 255], &[b'r'; 255], &mut frame).unwrap();
        frame
    };
    let cut_off = frame[..frame.len() - 1].iter().any(|byte| {
        for id in 0..20 {
            live.write_all(&query(id, "c")).unwrap();
            assert_eq!(read(live, 5), status(id, 0));
        }
        stream.write_all(&[*byte]).is_err()
    });
    if !cut_off {
        assert_closed(stream);
    }
    assert!(gate.get("/metrics").body.contains("{when=\"frame\"} 1\n"));
}

#[test]
fn a_silent_connection_is_closed_in_the_end() {
    let gate = start_bounded(|bounds| bounds.idle = Duration::from_millis(50));
    let stream = &mut connect(&gate);
    stream.write_all(&query(1, "c")).unwrap();
    assert_eq!(read(stream, 5), status(1, 0));
    assert_closed(stream);
    assert!(gate.get("/metrics").body.contains("{when=\"idle\"} 1\n"));
}

#[test]
fn a_client_that_never_reads_is_cut_off_and_holds_little() {
    let gate = start_bounded(|bounds| bounds.write_time = Duration::from_millis(100));
    let stream = &mut connect(&gate);
    let requests = query(1, "c").repeat(1_000);
    while stream.write_all(&requests).is_ok() {}
    gate.assert_alive();
    let page = gate.get("/metrics").body;
    assert!(page.contains("{when=\"write\"} 1\n"), "{page}");
}

#[test]
fn one_connection_too_many_is_closed_and_the_others_stay() {
    let gate = start_with("limits: {}", |settings| {
        settings.gates.throttr_connections.total = 2;
        settings.workers = 1;
    });
    let mut inside = [connect(&gate), connect(&gate)];
    let next = query(2, "c");
    for stream in &mut inside {
        stream.write_all(&[&query(1, "c"), &next[..3]].concat()).unwrap();
        read(stream, 5);
    }
    assert_closed(&mut connect(&gate));
    for stream in &mut inside {
        stream.write_all(&next[3..]).unwrap();
        assert_eq!(read(stream, 5), status(2, 0));
    }
    let mut newest = connect(&gate);
    newest.write_all(&next).unwrap();
    assert_eq!(read(&mut newest, 5), status(2, 0), "an idle connection makes room");
    assert_closed(&mut inside[0]);
}

#[test]
fn a_drain_answers_what_was_read_and_closes() {
    let gate = start();
    let (mut idle, mut busy) = (connect(&gate), connect(&gate));
    for stream in [&mut idle, &mut busy] {
        stream.write_all(&query(1, "c")).unwrap();
        read(stream, 5);
    }
    busy.write_all(&[insert(2, "c"), query(3, "c")].concat()).unwrap();
    assert_eq!(read(&mut busy, 27), [status(2, 1), found(3)].concat());
    let Harness { server, .. } = gate;
    server.stop();
    assert_closed(&mut idle);
    assert_closed(&mut busy);
}

#[test]
fn the_longest_frame_there_is_fits() {
    let gate = start();
    let stream = &mut connect(&gate);
    let mut frame = Vec::new();
    let command = ThrottrCommand::Insert {
        quota: u64::MAX,
        lifetime: QuotaTtl { value: u64::MAX, unit: TtlUnit(255) },
    };
    encode_request(u32::MAX, &command, &[0xff; 255], &[0; 255], &mut frame).unwrap();
    assert_eq!(frame.len(), FRAME_MAX);
    stream.write_all(&frame).unwrap();
    assert_eq!(read(stream, 5), status(u32::MAX, 1));
}
