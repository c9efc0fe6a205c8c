//! `tollway throttr`, beside a peer that says what it is told to.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::run::{Ran, run};

/// Asks a peer that gives the next of `replies`, without its id, to each request, and says what it was asked, without
/// the ids.
fn asked(arguments: &[&str], replies: &[&str]) -> (Ran, Vec<String>) {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = peer.local_addr().unwrap().to_string();
    let replies: Vec<_> = replies.iter().map(|reply| bytes(reply)).collect();
    let answering = thread::spawn(move || {
        let (mut stream, _) = peer.accept().unwrap();
        let mut requests = Vec::new();
        for reply in replies {
            let mut request = [0; 600];
            let len = stream.read(&mut request).unwrap();
            requests.push(format!("{} {}", hex(&request[..1]), hex(&request[5..len])));
            stream.write_all(&[&request[1..5], &reply].concat()).unwrap();
        }
        requests
    });
    let ran = run(&[&["throttr"], arguments, &["--addr", &addr, "--timeout", "20s"]].concat());
    (ran, answering.join().unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.bytes().filter(|digit| *digit != b' ').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Five left, for 9 s or 9000 ms.
const FIVE_FOR_SECONDS: &str = "01 0500000000000000 02 0900000000000000";
const FIVE_FOR_MILLIS: &str = "01 0500000000000000 01 2823000000000000";

#[test]
fn requests_are_the_protocol_s_and_their_replies_words_and_exit_codes() {
    let insert = |number: &str, time: &str| format!("01 {number}00000000000000{time}01016372");
    let update = |what: &str, value: &str| format!("03 {what}{value}00000000000001016372");
    let query = || "02 01016372".to_owned();
    for (arguments, replies, requests, printed, code) in [
        (
            &["insert", "c", "r", "--quota", "5", "--ttl", "10s"][..],
            &["01"][..],
            vec![insert("05", "020a00000000000000")],
            "ok\n",
            0,
        ),
        (
            &["insert", "c", "r", "--quota", "5", "--ttl", "1500ms"],
            &["01"],
            vec![insert("05", "01dc05000000000000")],
            "ok\n",
            0,
        ),
        (
            &["insert", "c", "r", "--quota", "5", "--ttl", "1us"],
            &["00"],
            vec![insert("05", "00e803000000000000")],
            "the quota exists\n",
            1,
        ),
        (&["query", "c", "r"], &[FIVE_FOR_SECONDS], vec![query()], "quota=5 ttl=9s\n", 0),
        (&["query", "c", "r"], &["00"], vec![query()], "the quota does not exist\n", 1),
        (
            &["query", "c", "r", "--json"],
            &[FIVE_FOR_MILLIS],
            vec![query()],
            "{\"quota\":5,\"ttl\":9000,\"ttl_type\":\"ms\"}\n",
            0,
        ),
        (&["query", "c", "r", "--json"], &["00"], vec![query()], "null\n", 1),
        (&["update", "c", "r", "--quota=5"], &["01"], vec![update("0000", "0500")], "ok\n", 0),
        (&["update", "c", "r", "--quota", "+5"], &["01"], vec![update("0001", "0500")], "ok\n", 0),
        (
            &["update", "c", "r", "--quota", "-5"],
            &["00"],
            vec![update("0002", "0500")],
            "the quota does not exist\n",
            1,
        ),
        (&["update", "c", "r", "--ttl", "-60"], &["01"], vec![update("0102", "3c00")], "ok\n", 0),
        (
            &["update", "c", "r", "--ttl=1m"],
            &[FIVE_FOR_SECONDS, "01"],
            vec![query(), update("0100", "3c00")],
            "ok\n",
            0,
        ),
        (
            &["update", "c", "r", "--ttl=+1m"],
            &[FIVE_FOR_MILLIS, "01"],
            vec![query(), update("0101", "60ea")],
            "ok\n",
            0,
        ),
        (&["update", "c", "r", "--ttl=1m"], &["00"], vec![query()], "the quota does not exist\n", 1),
        (&["purge", "c", "r"], &["01"], vec!["04 01016372".to_owned()], "ok\n", 0),
        (&["purge", "c", ""], &["00"], vec!["04 010063".to_owned()], "the quota does not exist\n", 1),
    ] {
        let (ran, heard) = asked(arguments, replies);
        assert_eq!(
            (heard, &*ran.stdout, ran.code),
            (requests, printed, code),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_time_that_the_quota_cannot_count_is_exit_2() {
    let (ran, _) = asked(&["update", "c", "r", "--ttl=1500ms"], &[FIVE_FOR_SECONDS]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    assert!(
        ran.stderr.contains("the unit of this quota is s, and 1.5s is not a whole number of it"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_peer_that_hangs_up_or_says_nonsense_is_exit_2() {
    for (replies, reason) in
        [(&[][..], "closed the connection before it responded"), (&["07"], "invalid response from")]
    {
        let (ran, _) = asked(&["purge", "c", "r"], replies);
        assert_eq!((ran.code, &*ran.stdout), (2, ""));
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
}

#[test]
fn silence_and_nobody_are_exit_2() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let ran = run(&["throttr", "query", "c", "r", "--addr", &addr, "--timeout", "10ms"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains(&format!("no response from {addr} within 10ms")), "{}", ran.stderr);
    drop(silent);
    let ran = run(&["throttr", "query", "c", "r", "--addr", &addr]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains(&format!("no server at {addr}")), "{}", ran.stderr);
}

#[test]
fn what_makes_no_request_is_exit_2() {
    let long = "x".repeat(256);
    for (arguments, reason) in [
        (&["insert", "c", "r", "--quota", "5"][..], "--ttl"),
        (&["insert", "c", "r", "--quota", "-5", "--ttl", "1s"], "--quota"),
        (&["insert", "c", "r", "--quota", "5", "--ttl", "soon"], "--ttl"),
        (&["update", "c", "r"], "--quota"),
        (&["update", "c", "r", "--quota=1", "--ttl=1"], "cannot be used with"),
        (&["update", "c", "r", "--quota=++5"], "must be a whole number"),
        (&["update", "c", "r", "--ttl=-"], "--ttl"),
        (&["query", "c", &long], "an id of 256 bytes is too long"),
        (&["frobnicate", "c", "r"], "frobnicate"),
    ] {
        let ran = run(&[&["throttr"], arguments].concat());
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{arguments:?}");
        assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
}
