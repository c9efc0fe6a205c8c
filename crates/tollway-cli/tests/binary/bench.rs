//! `tollway bench`, bounded by a number of requests, against real servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::run::{Ran, run, tollway};
use crate::serving::Serving;

/// Not a multiple of any batch.
const REQUESTS: u64 = 1_003;

#[test]
fn a_throttr_gate_answers_every_request() {
    let server = Gates::start(
        "serve --http off --admin off --text off --smockron off --rls off --resp off --throttr 127.0.0.1:0",
        &["throttr"],
    );
    // Every key is inserted first, so nothing is denied but inserting it again.
    for (flags, denied) in [
        ("--pipeline 64", 0),
        ("--pipeline 1 --zipf 0.99", 0),
        ("--pipeline 16 --command query --no-insert", 0),
        ("--pipeline 16 --command insert", REQUESTS),
        ("--pipeline 8 --rate 200000 --no-insert", 0),
        ("--pipeline 8 --command query --no-insert --key-format absent{}", REQUESTS),
    ] {
        let result = bench("throttr", &server.address("throttr"), flags);
        assert_eq!(result["denied"], denied, "{flags}");
    }
}

#[test]
fn a_text_gate_answers_every_request() {
    let server = Gates::start(
        "serve --http off --admin off --throttr off --smockron off --rls off --resp off --text 127.0.0.1:0",
        &["text"],
    );
    for flags in ["--pipeline 64", "--pipeline 64 --no-gso", "--pipeline 1", "--pipeline 16 --rate 100000"] {
        let result = bench("text", &server.address("text"), &format!("{flags} --keys 100000"));
        assert_eq!(result["denied"], 0, "{flags}");
    }
    // All about one key: 22 in 20 s.
    let result = bench("text", &server.address("text"), "--keys 1 --pipeline 8");
    assert!(result["denied"].as_u64().unwrap() > REQUESTS / 2, "{result}");
}

#[test]
fn a_resp_gate_answers_every_request() {
    let server = Gates::start(
        "serve --http off --text off --throttr off --smockron off --rls off --resp 127.0.0.1:0",
        &["resp"],
    );
    for flags in [
        "--pipeline 64",
        "--pipeline 1 --zipf 0.99",
        "--pipeline 16 --command throttle",
        "--pipeline 16 --command ping",
        "--pipeline 8 --rate 100000",
    ] {
        let result = bench("resp", &server.address("resp"), &format!("{flags} --max-burst {}", 5 * REQUESTS));
        assert_eq!((&result["denied"], &result["errors"]), (&0.into(), &0.into()), "{flags}");
    }
    // All about one key: 16 and 15, and the next only after an hour.
    for (flags, allowed) in [("--key-format a{}", 16), ("--key-format b{} --command throttle", 15)] {
        let flags = format!("{flags} --keys 1 --pipeline 8 --max-burst 15 --count 1 --period 3600");
        let result = bench("resp", &server.address("resp"), &flags);
        assert_eq!(result["denied"], REQUESTS - allowed, "{flags}");
    }
}

#[test]
fn an_echo_sends_every_request_back() {
    let server = Gates::start(
        "bench echo --throttr 127.0.0.1:0 --text 127.0.0.1:0 --resp 127.0.0.1:0",
        &["text", "throttr", "resp"],
    );
    for flags in ["--pipeline 64", "--pipeline 1", "--pipeline 16 --rate 100000"] {
        bench("throttr", &server.address("throttr"), &format!("{flags} --echo"));
        bench("text", &server.address("text"), &format!("{flags} --echo"));
        bench("resp", &server.address("resp"), &format!("{flags} --echo"));
    }
    let ran = run(&["bench", "resp", "--requests", "9", "--addr", &server.address("resp")]);
    assert_refused(&ran, "is not a RESP reply to this command");
    let ran =
        run(&["bench", "throttr", "--requests", "9", "--no-insert", "--addr", &server.address("throttr")]);
    assert_refused(&ran, "is not the Throttr protocol");
    server.stop();
}

#[test]
fn an_http_gate_answers_every_request() {
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    for flags in ["--pipeline 1", "--pipeline 16", "--pipeline 4 --rate 20000"] {
        let result = bench("http", &serving.addr, &format!("{flags} --keys 10000"));
        assert_eq!(result["errors"], 0, "{flags}");
    }
    let result = bench("http", &serving.addr, "--keys 1");
    assert!(result["denied"].as_u64().unwrap() > REQUESTS / 2, "{result}");
}

#[test]
fn a_run_in_which_every_reply_is_an_error_is_exit_1() {
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let absent = ["bench", "http", "--limit", "absent", "--requests", "10", "--addr", &serving.addr];
    let ran = run(&[&absent[..], &["--json"]].concat());
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &result["errors"]), (1, &10.into()));
    assert!(result["first_error"].as_str().unwrap().starts_with("404 "), "{result}");
    let ran = run(&absent);
    assert_eq!((ran.code, &*ran.stderr), (1, ""));
    assert!(ran.stdout.contains("  first error: 404 "), "{}", ran.stdout);
}

#[test]
fn redis_is_asked_to_count() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        listener.incoming().for_each(|stream| drop(thread::spawn(|| count(stream.unwrap()))));
    });
    for flags in ["--pipeline 1", "--pipeline 16"] {
        bench("redis", &address, &format!("{flags} --keys 1000000"));
    }
}

#[test]
fn a_summary_is_printed_for_people() {
    let server = Gates::start("bench echo --throttr 127.0.0.1:0 --text off", &["throttr"]);
    let address = server.address("throttr");
    let ran = run(&["bench", "throttr", "--echo", "--addr", &address, "--requests", "1000", "-c", "2"]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(
        lines[0],
        format!("throttr (echo) {address}: 2 connections, 1 at once, 100,000 keys, closed loop")
    );
    assert!(lines[1].contains(" requests/s    1,000 answered in "), "{}", ran.stdout);
    assert_eq!(lines[2], "  denied 0    errors 0    unanswered 0");
    assert!(lines[3].starts_with("  latency  p50 ") && lines[3].contains("p99.9"), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_measured_is_exit_2() {
    let hangs_up = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs_up_addr = hangs_up.local_addr().unwrap().to_string();
    thread::spawn(move || hangs_up.incoming().for_each(|stream| answer_once(stream.unwrap())));
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let (nobody_tcp, nobody_udp) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let [tcp, udp] = [nobody_tcp.local_addr(), nobody_udp.local_addr()].map(|addr| addr.unwrap().to_string());
    drop((nobody_tcp, nobody_udp));
    let long_key = format!("{}{{}}", "k".repeat(255));
    for (arguments, reason) in [
        (&["throttr", "--addr", &tcp][..], &*format!("no server at {tcp}")),
        (&["text", "--addr", &udp], &format!("no server at {udp}")),
        (
            &["redis", "--addr", &hangs_up_addr, "-c", "1", "-k", "1000000"],
            "closed a connection after 1 of 2 requests",
        ),
        (
            &["throttr", "--addr", &serving.addr],
            "is not the Throttr protocol: HTTP/1.1 400 Bad Request\\r\\n",
        ),
        (&["redis", "--addr", &serving.addr], "is not the Redis protocol"),
        (&["redis", "--addr", "nowhere"], "\"nowhere\" is not an address and a port"),
        (&["text", "--key-format", "key"], "must have one {}"),
        (&["http", "--zipf", "11"], "must be a number from 0 to 10"),
        (&["http", "--echo"], "does not speak HTTP"),
        (&["throttr", "--key-format", &long_key], "too long"),
        (&["echo", "--text", "off", "--throttr", "off"], "every gate is off"),
    ] {
        assert_refused(&run(&[&["bench"], arguments].concat()), reason);
    }
}

#[test]
fn an_interrupt_prints_what_there_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut command = tollway(&["bench", "redis", "-c", "1", "-k", "1000000", "--duration", "1h", "--json"]);
    command.args(["--addr", &address]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!((0..100).all(|_| answer(&mut stream)));
    signal(&child, "INT");
    // It leaves in the middle of whatever it is doing.
    thread::spawn(move || count(stream));
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(result["requests"].as_u64().unwrap() >= 99 && result["unanswered"] == 0, "{result}");
}

fn assert_refused(ran: &Ran, reason: &str) {
    assert!(ran.code == 2 && ran.stderr.contains(reason), "not `{reason}`: {} {}", ran.code, ran.stderr);
}

/// The result of a run of [`REQUESTS`] requests over three connections, all of which must be answered.
fn bench(protocol: &str, address: &str, flags: &str) -> Value {
    let requests = REQUESTS.to_string();
    let mut arguments = vec!["bench", protocol, "--json", "--connections", "3", "--requests", &requests];
    arguments.extend(["--addr", address]);
    if !flags.contains("--keys") {
        arguments.extend(["--keys", &requests]);
    }
    if protocol == "text" {
        // As long as it takes: on a busy machine a datagram may be later than 100 ms.
        arguments.extend(["--timeout", "20s"]);
    }
    arguments.extend(flags.split_whitespace());
    let ran = run(&arguments);
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{arguments:?}");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&result["requests"], &result["unanswered"]), (&REQUESTS.into(), &0.into()), "{arguments:?}");
    assert!(result["latency_ns"]["p50"].as_u64() > Some(0), "{result}");
    assert!(result["requests_per_second"].as_f64() > Some(0.0), "{result}");
    result
}

/// A server that says where its gates are, killed with the test if that did not stop it.
struct Gates {
    child: Child,
    printed: String,
}

impl Gates {
    /// Starts it, and waits until it has named all of `gates`.
    fn start(arguments: &str, gates: &[&str]) -> Self {
        let mut command = tollway(&arguments.split_whitespace().collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut stdout, mut printed) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        while !gates.iter().all(|gate| printed.contains(&format!("  {gate} "))) {
            assert_ne!(stdout.read_line(&mut printed).unwrap(), 0, "ended after: {printed}");
        }
        thread::spawn(move || drop(stdout.read_to_end(&mut Vec::new())));
        Self { child, printed }
    }

    fn address(&self, gate: &str) -> String {
        let line = self.printed.lines().find_map(|line| line.trim().strip_prefix(gate));
        let address = line.unwrap().split_whitespace().last().unwrap();
        address.trim_start_matches("redis://").to_owned()
    }

    /// Asks it to stop, which it does in peace.
    fn stop(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
}

const INCR: usize = b"*2\r\n$4\r\nINCR\r\n$7\r\nk000000\r\n".len();

/// Answers one request with a counter. Was there a request?
fn answer(stream: &mut TcpStream) -> bool {
    stream.read_exact(&mut [0; INCR]).and_then(|()| stream.write_all(b":17\r\n")).is_ok()
}

/// Answers as Redis would, as far as it matters here.
fn count(mut stream: TcpStream) {
    while answer(&mut stream) {}
}

/// Answers, waits for the next, and leaves.
fn answer_once(mut stream: TcpStream) {
    assert!(answer(&mut stream));
    let _ = stream.read_exact(&mut [0; INCR]);
}
