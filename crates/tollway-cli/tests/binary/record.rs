//! `tollway record`: the decisions of a real server under traffic, and their replay.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Stdio};

use tollway::core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway_client::http::blocking::Client;
use tollway_client::http::{ChargeRequest, RuleRequest};
use tollway_testbed::{TEST_TIMEOUT, eventually};
use tollway_wire::throttr::{self, QuotaAttribute, ThrottrCommand};

use crate::run::{file, run, tollway};
use crate::serving::Serving;

const POLICY: &str = "
limits:
  Login: { burst: 3, count: 3, period: 1h }
  Address: { rate: 1000/s, burst: 50, id: ip }
  Window: { algorithm: fixed_window, count: 7, period: 1s }
  Log: { algorithm: sliding_log, count: 20, period: 2s }
  Rate: { algorithm: smoothed_rate, count: 100, period: 1s }
overrides: { 'Login:user-7': { burst: 100, count: 100, period: 1s } }
rules: { upload: \"Or('500/s', 'user:5/s')\" }
keys:
  - rewrite: [{ match: 'cust=user-1.$', replace: 'cust=teens' }]
  - { match: '^ws ', limit: 40, period: 1s, strict: true }
  - { match: '^user-', use: Log }
  - { match: '.*', limit: 500, period: 2s }
envoy:
  - domain: shop
    descriptors:
      - { key: account, rate_limit: { unit: second, requests_per_unit: 9 } }
      - { key: route, descriptors: [{ key: ip, rate_limit: { unit: 3s, requests_per_unit: 20, algorithm: quota } }] }
";

fn serve() -> Serving {
    Serving::start(&["--config", &file("policy.yaml", POLICY), "--http", "127.0.0.1:0"], &[])
}

/// `tollway record`, which has begun.
struct Recording {
    child: Option<Child>,
    trace: String,
}

impl Recording {
    fn start(serving: &Serving, name: &str, arguments: &[&str]) -> Self {
        let trace = file(name, "");
        let mut command = tollway(&["record", &trace, "--addr", &serving.admin]);
        let child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        // The decisions are recorded from the moment that the server has answered, and then the file is not empty when
        // the first second is over. An id that is not in the sample would never be seen.
        let client = Client::new(&serving.addr).unwrap();
        eventually("the first recorded decision", || {
            let _ = client.check("Login", "probe", 1).unwrap();
            fs::read_to_string(&trace).unwrap().contains("check Login:")
        });
        Self { child: Some(child), trace }
    }

    /// Ends it as Ctrl-C does, and returns the trace.
    fn stop(mut self) -> (i32, String) {
        let child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(printed.contains(" decisions, 0 missed, "), "{printed}");
        (output.status.code().unwrap(), fs::read_to_string(&self.trace).unwrap())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends requests of all kinds on several connections at once, so that several workers decide about the same ids.
fn send(serving: &Serving) {
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let address = &serving.addr;
            scope.spawn(move || {
                let client = Client::new(address).unwrap();
                let mut own_numbers = OwnNumbers::connect(serving);
                let mut unnamed = Unnamed::connect(serving);
                for round in 0..150_u64 {
                    let id = format!("user-{}", (round * 7 + thread) % 20);
                    let ip = format!("192.0.2.{}", (round + thread) % 8);
                    let _ = client.spend("Login", &id, 1 + round % 2).unwrap();
                    own_numbers.send(&id, round);
                    unnamed.send(&id, &ip, round);
                    let charges = [
                        ChargeRequest::new("Login", &id, 1),
                        ChargeRequest::new("Address", &ip, 1),
                        ChargeRequest::new("Window", &id, 1),
                    ];
                    let _ = client.spend_all(&charges).unwrap();
                    let _ = client.spend("Window", &id, 1).unwrap();
                    let _ = client.spend("Log", &id, 1).unwrap();
                    let _ = client.spend("Rate", &id, 1).unwrap();
                    let _ = client.rule("upload", &[("user", &id)]).unwrap();
                    let rules = [RuleRequest::new("upload").with_selector("user", &id)];
                    let _ = client.spend_bill(&charges[1..2], &rules).unwrap();
                    let _ = client.check("Login", &id, 1).unwrap();
                    if round % 10 == 0 {
                        let _ = client.refund("Login", &id, 1).unwrap();
                    }
                }
            });
        }
    });
}

/// A client of the gates where requests bring their own numbers.
struct OwnNumbers {
    resp: TcpStream,
    throttr: TcpStream,
}

impl OwnNumbers {
    fn connect(serving: &Serving) -> Self {
        let connect = |scheme: &str| {
            let rest = serving.printed.split(scheme).nth(1).unwrap();
            let stream = TcpStream::connect(rest.lines().next().unwrap().trim()).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            stream
        };
        Self { resp: connect("  resp     redis://"), throttr: connect("  throttr  tcp ") }
    }

    /// Sends a command of each kind about an id, and reads the replies.
    fn send(&mut self, id: &str, round: u64) {
        let commands = [
            format!("CL.THROTTLE {id} 4 10 1 {}", round % 3),
            format!("THROTTLE {id} 5 10 1"),
            format!("CL.THROTTLE {id} 4 10 1 -1"),
            if round.is_multiple_of(10) { format!("DEL {id}") } else { "PING".to_owned() },
        ];
        self.resp.write_all(format!("{}\r\nECHO end\r\n", commands.join("\r\n")).as_bytes()).unwrap();
        let mut replies = Vec::new();
        while !replies.ends_with(b"$3\r\nend\r\n") {
            let mut byte = [0];
            self.resp.read_exact(&mut byte).unwrap();
            replies.extend(byte);
        }
        let lifetime = QuotaTtl { value: 200 + round, unit: TtlUnit(1) };
        let take =
            ThrottrCommand::Update { attribute: QuotaAttribute::Quota, change: Change::Decrease, value: 1 };
        let mut requests = Vec::new();
        for (number, command) in
            [ThrottrCommand::Insert { quota: 7, lifetime }, take, ThrottrCommand::Query].iter().enumerate()
        {
            let number = u32::try_from(number).unwrap();
            throttr::encode_request(number, command, id.as_bytes(), b"api", &mut requests).unwrap();
        }
        self.throttr.write_all(&requests).unwrap();
        // A query of a quota that has expired has a short reply.
        let mut replies = [0; 15];
        self.throttr.read_exact(&mut replies).unwrap();
        if replies[14] == 1 {
            self.throttr.read_exact(&mut [0; 17]).unwrap();
        }
    }
}

/// A client of the gates where requests name no limit.
struct Unnamed {
    text: UdpSocket,
    http: TcpStream,
}

impl Unnamed {
    fn connect(serving: &Serving) -> Self {
        let address = serving.printed.split("  text     udp ").nth(1).unwrap().lines().next().unwrap();
        let text = UdpSocket::bind("127.0.0.1:0").unwrap();
        text.connect(address.trim()).unwrap();
        text.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let http = TcpStream::connect(serving.addr.trim_start_matches("http://")).unwrap();
        http.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Self { text, http }
    }

    /// Sends datagrams at once, and a request to Envoy's service, and reads the replies.
    fn send(&mut self, id: &str, ip: &str, round: u64) {
        let datagrams = [
            format!("{round} over_limit {id}"),
            format!("{round} over_limit ws cust={id}"),
            format!("check_limit {{\"origin\":\"ws\",\"ua\":\"{id}\",\"ip\":\"{ip}\"}}"),
            "get_size".to_owned(),
        ];
        datagrams.iter().for_each(|datagram| _ = self.text.send(datagram.as_bytes()).unwrap());
        datagrams.iter().for_each(|_| _ = self.text.recv(&mut [0; 1000]).unwrap());
        let numbers =
            if round.is_multiple_of(5) { r#","limit":{"requests_per_unit":30,"unit":"WEEK"}"# } else { "" };
        let gives_back = if round.is_multiple_of(7) { r#","is_negative_hits":true"# } else { "" };
        let body = format!(
            r#"{{"domain":"shop","descriptors":[{{"entries":[["account","{id}"]]{numbers}{gives_back}}},{{"entries":[["route","login"],["ip","{ip}"]]}}]}}"#
        );
        let head = "POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
        write!(self.http, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"]}") {
            let mut byte = [0];
            self.http.read_exact(&mut byte).unwrap();
            reply.extend(byte);
        }
    }
}

#[test]
fn a_recording_is_replayed_without_a_difference() {
    let serving = serve();
    let recording = Recording::start(&serving, "all.trace", &[]);
    send(&serving);
    let resets = serving.ask(&["reset", "Login:user-3"]);
    assert_eq!(resets.0, 0, "{}", resets.1);
    // A reload is a part of the trace, at its own time.
    file("policy.yaml", POLICY.replace("burst: 3, count: 3, period: 1h", "burst: 9, count: 9, period: 1m"));
    serving.signal("HUP");
    eventually("the new numbers", || {
        serving.ask(&["inspect", "Login:nobody"]).1.contains("burst 9, 9 per 1m")
    });
    send(&serving);
    let (code, trace) = recording.stop();
    assert_eq!(code, 0);
    assert!(
        trace.contains("# the server had no buckets, so every reply is the same in a replay"),
        "{trace:.500}"
    );
    assert!(trace.contains("limit  reset Login:user-3"));
    for start in [
        "  resp  CL.THROTTLE user-1 4 10 1 2  => *5 ",
        "  resp  DEL user-",
        "  throttr  01",
        "  text  4 over_limit user-",
        "  text  check_limit {\"origin\":\"ws\"",
        "  rls  {\"domain\":\"shop\"",
    ] {
        assert!(trace.contains(start), "{start}");
    }
    assert!(trace.lines().last().unwrap().contains(" 0 missed, 0 that"), "{:?}", trace.lines().last());
    let requests = trace.lines().filter(|line| !line.starts_with('#')).count();
    assert!(requests > 2 * 4 * 150 * 18, "{requests}");
    assert_eq!(trace.lines().filter(|line| line.contains("  reload  ")).count(), 2);
    let ran = run(&["replay", "--quiet", &file("again.trace", &trace)]);
    assert_eq!(ran.code, 0, "{:.2000}", ran.stdout);
    // A reset under an inline limit has no reply in the trace.
    let resets = trace.lines().filter(|line| line.contains("  resp  DEL ")).count();
    let expected = requests - resets;
    let summary = format!("# {requests} events: {expected} as expected, 0 differed, {resets} without");
    assert!(ran.stdout.contains(&summary), "{summary}: {}", ran.stdout);
}

/// Records everything, and one of four ids at the same time, under traffic of all kinds. Both are replayed without a
/// difference.
fn all_and_some(arguments: &[&str]) -> (String, String) {
    let serving = serve();
    let recording = Recording::start(&serving, "all.trace", arguments);
    let trace_file = file("sampled.trace", "");
    let mut sampled = tollway(&["record", &trace_file, "--addr", &serving.admin, "--sample", "1/4"]);
    let mut sampled = sampled.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the policy", || fs::read_to_string(&trace_file).unwrap().contains("1/4 of the ids"));
    send(&serving);
    let (_, all) = recording.stop();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &sampled.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert!(sampled.wait().unwrap().success());
    let some = fs::read_to_string(&trace_file).unwrap();
    for text in [&all, &some] {
        let ran = run(&["replay", "--quiet", &file("again.trace", text)]);
        assert_eq!(ran.code, 0, "{:.2000}", ran.stdout);
    }
    (all, some)
}

fn assert_fewer(part: &str, some: &str, all: &str) {
    let lines = |text: &str| text.lines().filter(|line| line.contains(part)).count();
    assert!(lines(some) < lines(all), "{part} {} {}", lines(some), lines(all));
}

#[test]
fn a_sample_is_replayed_without_a_difference() {
    let (all, some) = all_and_some(&[]);
    for part in ["  limit  spend ", "  text  ", "  rls  "] {
        assert_fewer(part, &some, &all);
    }
}

#[test]
fn a_sample_with_hashed_ids_is_replayed_without_a_difference() {
    let (all, some) = all_and_some(&["--hash-ids"]);
    for text in [&all, &some] {
        assert!(!text.contains("user-") && !text.contains("192.0.2."), "{text:.2000}");
        assert!(!text.contains("757365722d"), "hexadecimal of user-: {text:.2000}");
        assert!(!text.contains("  text  ") && !text.contains("  rls  "), "{text:.2000}");
    }
    assert_fewer("  limit  spend ", &some, &all);
    assert!(all.contains("  resp  CL.THROTTLE #") && all.contains("  throttr  "), "{all:.2000}");
}

#[test]
fn a_time_and_a_number_that_cannot_be_are_refused() {
    let ran = run(&["record", "x.trace", "--sample", "1/3"]);
    assert!(ran.code == 2 && ran.stderr.contains("N is a power of two from 1 to 65536"), "{}", ran.stderr);
    let serving = serve();
    let trace = file("short.trace", "");
    let ran = run(&["record", &trace, "--for", "1s", "--addr", &serving.admin]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let trace = fs::read_to_string(trace).unwrap();
    assert!(
        trace.contains("reload  {limits: {") && trace.contains("# 0 decisions, 0 missed, 0 that"),
        "{trace}"
    );
}
