//! `tollway text`, beside a peer that says what it is told to.

use std::net::UdpSocket;
use std::thread;

use crate::run::{Ran, file, run};

/// Asks a peer that answers `reply` with the id it was sent, and says what it was asked.
fn asked(arguments: &[&str], reply: &'static str) -> (Ran, String) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = peer.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let mut buffer = [0; 2000];
        let (len, from) = peer.recv_from(&mut buffer).unwrap();
        let (id, question) = str::from_utf8(&buffer[..len]).unwrap().split_once(' ').unwrap();
        assert!(id.bytes().all(|digit| digit.is_ascii_digit()), "{id}");
        peer.send_to(format!("{id} {reply}").as_bytes(), from).unwrap();
        question.to_owned()
    });
    let ran = run(&[&["text", "--addr", &addr, "--timeout", "20s"], arguments].concat());
    (ran, answering.join().unwrap())
}

#[test]
fn what_is_answered_is_printed_and_y_is_exit_1() {
    for (arguments, question, reply, printed, code) in [
        (
            &["over_limit ws global"][..],
            "over_limit ws global",
            "ok N 2034.3 2500.0 10",
            "ok N 2034.3 2500.0 10\n",
            0,
        ),
        (&["over_limit", "ws", "busy"], "over_limit ws busy", "ok Y 28.1 22.0 20", "ok Y 28.1 22.0 20\n", 1),
        (&["007 over_limit k"], "over_limit k", "ok N 0.0 1.0 1", "007 ok N 0.0 1.0 1\n", 0),
        (
            &[r#"check_limit {"ip":"192.0.2.1"}"#],
            r#"check_limit {"ip":"192.0.2.1"}"#,
            r#"ok Y 2.0 1.0 1, ["a","b","c"], []"#,
            "ok Y 2.0 1.0 1, [\"a\",\"b\",\"c\"], []\n",
            1,
        ),
        (
            &["get_stats", "k"],
            "get_stats k",
            "n_req=2 n_over=1 last_max_rate=0 key=k",
            "n_req=2 n_over=1 last_max_rate=0 key=k\n",
            0,
        ),
        (&["get_size"], "get_size", "size=3 keys=3", "size=3 keys=3\n", 0),
        (&["ping"], "ping", "pong", "pong\n", 0),
    ] {
        let (ran, heard) = asked(arguments, reply);
        assert_eq!(
            (&*heard, &*ran.stdout, ran.code),
            (question, printed, code),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn what_is_no_answer_is_exit_2() {
    let (ran, _) = asked(&["ping"], "hello");
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    assert!(ran.stderr.contains("is not a reply of the text protocol"), "{}", ran.stderr);
}

#[test]
fn silence_is_exit_2_and_says_how_long_and_perhaps_why() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let ran = run(&["text", "ping", "--addr", &addr, "--timeout", "10ms"]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    assert!(ran.stderr.contains(&format!("no response from {addr} within 10ms")), "{}", ran.stderr);
    assert!(
        ran.stderr.ends_with("; if the gate asks for signatures, give --key-file with its key\n"),
        "{}",
        ran.stderr
    );
    let key = file("silent.key", format!("web {}\n", "5ec4e7".repeat(8)));
    let ran = run(&["text", "ping", "--addr", &addr, "--timeout", "10ms", "--key-file", &key]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    let expected = format!("; if the gate does not have the key in {key}, it answers nothing\n");
    assert!(ran.stderr.ends_with(&expected), "{}", ran.stderr);
    let ran = run(&["text", "over_limits x", "--addr", &addr, "--timeout", "10ms"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("not part of the text protocol"), "{}", ran.stderr);
}

#[test]
fn nobody_there_is_exit_2() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = run(&["text", "ping", "--addr", &gone, "--timeout", "20s"]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
    assert!(ran.stderr.contains(&format!("no server at {gone}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("refused"), "{}", ran.stderr);
}
