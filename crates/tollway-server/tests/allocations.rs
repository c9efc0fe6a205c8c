//! Requests about what is known already allocate nothing, from the socket to the socket.
//!
//! One test, because what is counted is the whole process.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollway::config::Gates;
use tollway::core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_server::{Server, Settings};
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::throttr::{QuotaAttribute, ThrottrCommand, encode_request};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 1_000;
const BATCH: u32 = 64;

const CONFIG: &str = "
limits:
  Named: { burst: 1000000, count: 1000000, period: 1s }
keys:
  - rewrite: [{ match: '^ws ip=132[.].*', replace: 'ws cust=bbc' }]
  - { match: '^ws cust=', limit: 200, period: 10s, stats: true }
  - { match: '^named ', use: Named }
  - { match: '^never ', answer: never }
  - { match: '^ws ', limit: 22, period: 20s, strict: true }
";

#[test]
fn requests_about_what_is_known_allocate_nothing() {
    let any = Some("127.0.0.1:0".parse().unwrap());
    let gates = Gates { text: any, throttr: any, ..Gates::OFF };
    let limiter =
        Arc::new(Engine::open(Config::parse(CONFIG, "policy").unwrap(), Clock::monotonic()).unwrap());
    let server = Server::start(Settings { gates, workers: 1, ..Settings::new(limiter) }).unwrap();

    let throttr = &mut TcpStream::connect(server.throttr_addr().unwrap()).unwrap();
    throttr.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let (requests, mut replies) = (throttr_requests(), vec![0; reply_bytes()]);
    let ask = |stream: &mut TcpStream, replies: &mut [u8]| {
        stream.write_all(&requests).unwrap();
        stream.read_exact(replies).unwrap();
    };
    assert_allocates_nothing("Throttr", || ask(throttr, &mut replies));

    let text = UdpSocket::bind("127.0.0.1:0").unwrap();
    text.connect(server.text_addr().unwrap()).unwrap();
    text.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let datagrams = text_datagrams();
    assert_allocates_nothing("text", || {
        datagrams.iter().for_each(|datagram| assert_eq!(text.send(datagram).unwrap(), datagram.len()));
        let mut reply = [0; 1_000];
        datagrams.iter().for_each(|_| assert!(text.recv(&mut reply).unwrap() > 0));
    });
}

fn assert_allocates_nothing(gate: &str, mut round: impl FnMut()) {
    (0..10).for_each(|_| round());
    let allocates = |_: &usize| {
        let region = Region::new(ALLOCATOR);
        round();
        let change = region.change();
        change.allocations + change.reallocations > 0
    };
    let allocating = (0..ROUNDS).filter(allocates).count();
    // Threads that sample the rates and look at files allocate a little, once a second, in whatever round that is. An
    // allocation for each request, key or batch would be in every round.
    assert!(allocating < ROUNDS / 4, "{gate}: {allocating} of {ROUNDS} rounds allocate");
}

/// Pairs are made, read, changed and made again, all of which are there after the first round.
fn throttr_requests() -> Vec<u8> {
    let (quota, lifetime) = (u64::MAX, QuotaTtl { value: 10, unit: TtlUnit(2) });
    let mut requests = Vec::new();
    for id in 0..BATCH {
        let consumer = format!("consumer {}", id % 8);
        for command in [
            ThrottrCommand::Insert { quota, lifetime },
            ThrottrCommand::Query,
            ThrottrCommand::Update { attribute: QuotaAttribute::Quota, change: Change::Decrease, value: 1 },
            ThrottrCommand::Update { attribute: QuotaAttribute::Ttl, change: Change::Patch, value: 10 },
            ThrottrCommand::Purge,
            ThrottrCommand::Insert { quota, lifetime },
        ] {
            encode_request(id, &command, consumer.as_bytes(), b"r", &mut requests).unwrap();
        }
    }
    requests
}

const fn reply_bytes() -> usize {
    BATCH as usize * (5 * 5 + 22)
}

/// Returns every command, about keys of every kind of rule.
fn text_datagrams() -> Vec<Vec<u8>> {
    let requests = [
        "over_limit ws ip=1.2.3.4",
        "over_limit ws ip=132.185.0.1",
        "over_limit named alice",
        "over_limit never mind",
        "over_limit nobody",
        "get_stats ws cust=bbc",
        "get_size",
        "ping",
        r#"check_limit {"origin":"ws","ua":"Mozilla","ip":"132.185.0.1"}"#,
    ];
    requests.iter().enumerate().map(|(id, request)| format!("{id} {request}").into_bytes()).collect()
}
