//! Draining, reloading, and another policy under load.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::support::config_file::WatchedFile;
use crate::support::{POLICY, read_all, start, start_with};

const HALF: &str = "POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n{\"limit\":";
const OTHER_HALF: &str = "\"Login\",\"id\":\"a\"}";

#[test]
fn a_drain_answers_what_has_begun_and_closes_the_rest() {
    let gate = start();
    let address = gate.server.http_addr().unwrap();
    let (mut idle, mut begun) = (gate.connect(), gate.connect());
    for stream in [&mut idle, &mut begun] {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    }
    begun.write_all(HALF.as_bytes()).unwrap();
    gate.server.drain();
    assert_eq!(read_all(&mut idle), "", "an idle connection is closed");
    begun.write_all(OTHER_HALF.as_bytes()).unwrap();
    let answer = read_all(&mut begun);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\nConnection: close\r\n"),
        "{answer}"
    );
    gate.server.join();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_drain_does_not_wait_for_ever() {
    let gate = start_with(POLICY, |settings| settings.bounds.drain = Duration::from_millis(50));
    let mut begun = gate.connect();
    begun.write_all(HALF.as_bytes()).unwrap();
    gate.assert_alive();
    gate.server.stop();
    read_all(&mut begun);
}

#[test]
fn every_request_sent_before_a_drain_is_answered() {
    // Long: a client may be held up between looking whether the drain has begun and sending.
    let gate = start_with("limits: { L: { burst: 1000000, count: 1, period: 1ms } }", |settings| {
        settings.bounds.drain_idle = TEST_TIMEOUT;
    });
    let address = gate.server.http_addr().unwrap();
    let (draining, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let request = "POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"limit\":\"L\",\"id\":\"a\"}";
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                loop {
                    let before = !draining.load(Ordering::SeqCst);
                    let sent = stream.write_all(request.as_bytes());
                    match sent.and_then(|()| stream.read(&mut [0; 1024])) {
                        Ok(read) if read > 0 => answered.fetch_add(1, Ordering::SeqCst),
                        _ if before => panic!("a request sent before the drain got no answer"),
                        _ => return,
                    };
                }
            });
        }
        while answered.load(Ordering::SeqCst) < 500 {
            thread::yield_now();
        }
        draining.store(true, Ordering::SeqCst);
        gate.server.drain();
    });
    gate.server.join();
}

#[test]
fn limits_change_while_requests_go_on() {
    let policy = |burst| format!("limits: {{ L: {{ burst: {burst}, count: 1, period: 2160h }} }}");
    let file = WatchedFile::new(&policy(1));
    let gate = start_with(&policy(1), |settings| settings.config = Some(file.watched()));
    let (done, body) = (AtomicBool::new(false), r#"{"limit":"L","id":"a"}"#);
    assert_eq!([gate.post("/v1/spend", body).status, gate.post("/v1/spend", body).status], [200, 429]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let status = gate.post("/v1/spend", body).status;
                    assert!(status == 200 || status == 429, "{status}");
                }
            });
        }
        for burst in [5, 2, 9] {
            file.replace(&policy(burst));
            gate.server.reload();
            let units = format!("tollway_limit_units{{limit=\"L\",algorithm=\"token_bucket\"}} {burst}\n");
            eventually(&units, || gate.get("/metrics").body.contains(&units));
        }
        file.replace("limits: { L: { burst: none } }");
        gate.server.reload();
        eventually("a failure", || gate.reloads("failed") > 0);
        done.store(true, Ordering::Relaxed);
    });
    let page = gate.get("/metrics").body;
    assert!(
        page.contains("tollway_limit_units{limit=\"L\",algorithm=\"token_bucket\"} 9\n"),
        "the old policy stays"
    );
    // One more for each change that the watch saw before it was asked to reload.
    assert!(gate.reloads("ok") >= 3, "{page}");
    let denied = page.lines().find_map(|line| {
        line.strip_prefix("tollway_decisions_total{limit=\"L\",verb=\"spend\",outcome=\"deny\"} ")
    });
    assert!(denied.unwrap().parse::<u64>().unwrap() > 0, "counters outlive the policy that named the limit");
}

#[test]
fn a_file_that_changes_is_noticed() {
    let old = "limits: { Old: { burst: 1, count: 1, period: 1s } }";
    let file = WatchedFile::new(old);
    let gate = start_with(old, |settings| settings.config = Some(file.watched()));
    file.replace("limits: { New: { burst: 1, count: 1, period: 1s } }");
    eventually("the new limit", || gate.post("/v1/check", r#"{"limit":"New","id":"a"}"#).status == 200);
    assert_eq!(gate.post("/v1/check", r#"{"limit":"Old","id":"a"}"#).status, 404);
}

#[test]
fn readiness_ends_when_the_drain_begins() {
    let gate = start_with(POLICY, |settings| settings.bounds.drain_idle = Duration::from_secs(5));
    let mut stream = gate.connect();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = [0; 512];
    let read = stream.read(&mut answer).unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200 "));
    gate.server.drain();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let answer = read_all(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("draining"), "{answer}");
}

#[test]
fn a_file_that_is_emptied_keeps_its_policy_and_is_noticed_when_it_is_restored() {
    let policy = "limits: { L: { burst: 1, count: 1, period: 1s } }";
    let file = WatchedFile::new(policy);
    let gate = start_with(policy, |settings| settings.config = Some(file.watched()));
    let status = || gate.post("/v1/check", r#"{"limit":"L","id":"a"}"#).status;
    for (number, broken) in (1..).zip(["", "# gone\n", "store: memory\n", "limits:\n"]) {
        file.replace(broken);
        gate.server.reload();
        eventually("a failure", || gate.reloads("failed") >= number);
        assert_eq!(status(), 200, "the old policy stays");
        assert_eq!(gate.post("/v1/check", r#"{"limit":"demo","id":"a"}"#).status, 404, "{broken:?}");
        let before = gate.reloads("ok");
        file.replace(policy);
        eventually("restored", || gate.reloads("ok") > before);
        assert_eq!(status(), 200);
    }
}
