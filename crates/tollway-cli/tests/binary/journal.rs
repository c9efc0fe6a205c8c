//! Checks that a server which is killed under load starts again with what it had decided, and that one which is stopped
//! loses nothing. `cargo xtask kill` runs the same with many kills, and measures how much was lost.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollway_testbed::{ReceivedEvent, ZmqSocket};
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::SocketType;

use crate::run::{file, run, tollway};
use crate::serving::Serving;

const COUNT: u64 = 1_000_000_000;
const STRICT_BURST: f64 = 40.0;
const STRICT_PER_SECOND: f64 = 40.0;
const POLICY: &str = "
limits:
  Count: { algorithm: quota, count: 1000000000, period: 24h }
  Strict: { burst: 40, count: 40, period: 1s, after_crash: strict }
";
/// A policy with `sync: always`: no answer comes before what it decided is on the disk. The flag names the directory.
const ALWAYS: &str = "store: { memory: { dir: unused, sync: always } }";
const CLIENTS: usize = 4;
/// The ids of each client whose uses are counted.
const IDS: usize = 50;

/// A request that was allowed: an id, and the times between which that was decided.
#[derive(Clone, Debug)]
struct Allowed {
    id: String,
    sent: Instant,
    answered: Instant,
}

/// A connection to the HTTP gate.
pub(crate) struct Http(BufReader<TcpStream>);

impl Http {
    pub(crate) fn connect(addr: &str) -> Option<Self> {
        TcpStream::connect(addr).ok().map(Self::new)
    }

    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Returns the status and the body of the answer, or `None` if the server is gone.
    pub(crate) fn spend(&mut self, limit: &str, id: &str, cost: u64) -> Option<(u16, String)> {
        let body = format!(r#"{{"limit":"{limit}","id":"{id}","cost":{cost}}}"#);
        let (kind, len) = ("application/json", body.len());
        let head = format!("Host: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len}");
        // In one piece: the system would hold back the second of several until the first is acknowledged, for 40 ms.
        let request = format!("POST /v1/spend HTTP/1.1\r\n{head}\r\n\r\n{body}");
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let mut status = String::new();
        self.0.read_line(&mut status).ok()?;
        let status = status.split(' ').nth(1)?.parse().ok()?;
        let mut len = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line.trim().is_empty() {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).ok()?;
        Some((status, String::from_utf8(body).ok()?))
    }
}

fn start(config: &str, data: &Path) -> Serving {
    Serving::start(&["--config", config, "--data", data.to_str().unwrap(), "--http", "127.0.0.1:0"], &[])
}

/// Starts a load generator that keeps all cores of the server busy, at the RESP gate, until the server is gone.
fn crowd(serving: &Serving) -> Child {
    let address = serving.printed.split("  resp     ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let mut bench = tollway(&["bench", "resp", "--addr", address.trim_start_matches("redis://")]);
    bench.args(["--pipeline", "64", "--keys", "1000000", "--duration", "1m"]);
    bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns an id of a client whose uses are counted.
fn counted_id(client: usize, number: usize) -> String {
    format!("{client}-{number}")
}

/// Spends until the server is gone or `stop` is set, and returns what was allowed.
fn load(addr: &str, client: usize, stop: &AtomicBool) -> Vec<Allowed> {
    let mut allowed = Vec::new();
    let Some(mut http) = Http::connect(addr) else { return allowed };
    for turn in 0_usize.. {
        let (limit, id) = match turn % 2 {
            0 => ("Count", counted_id(client, turn / 2 % IDS)),
            _ => ("Strict", format!("strict-{client}")),
        };
        let sent = Instant::now();
        let answer = (!stop.load(Ordering::Relaxed)).then(|| http.spend(limit, &id, 1)).flatten();
        match answer {
            Some((200, _)) => allowed.push(Allowed { id, sent, answered: Instant::now() }),
            Some(_) => {}
            None => break,
        }
    }
    allowed
}

/// Returns the number of units that an id has used under the limit `Count`.
fn used(http: &mut Http, id: &str) -> u64 {
    let (_, body) = http.spend("Count", id, 0).unwrap();
    let remaining = body.split("\"remaining\":").nth(1).unwrap();
    let digits: String = remaining.chars().take_while(char::is_ascii_digit).collect();
    COUNT - digits.parse::<u64>().unwrap()
}

/// Returns the time up to which the journal has kept everything, as `/metrics` has it.
fn kept_until(serving: &Serving) -> String {
    let url = format!("http://{}/metrics", serving.admin);
    let page = Command::new("curl").args(["-s", &url]).output().unwrap().stdout;
    let page = String::from_utf8(page).unwrap();
    let line = page.lines().find(|line| line.starts_with("tollway_journal_kept_until_seconds "));
    line.unwrap().to_owned()
}

/// Waits until the journal has kept everything that was decided before. A round that was under way may have missed it,
/// so it waits for the end of that one and of the next.
fn wait_until_kept(serving: &mut Serving) {
    for _ in 0..2 {
        let before = kept_until(serving);
        serving.wait_for(|serving| kept_until(serving) != before);
    }
}

/// Runs clients against a server until it is killed, and returns what was allowed, and the time of the kill. If what
/// was decided last may be lost, the clients stop before.
fn killed_under_load(serving: &mut Serving, is_under_load: bool) -> (Vec<Allowed>, Instant) {
    let (addr, stop) = (serving.addr.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (addr, stop) = (&addr, &stop);
        let clients = (0..CLIENTS).map(|client| scope.spawn(move || load(addr, client, stop)));
        let clients: Vec<_> = clients.collect();
        wait_until_kept(serving);
        if !is_under_load {
            // Then nothing may be lost at all, however slow this machine is.
            stop.store(true, Ordering::Relaxed);
            let allowed = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            wait_until_kept(serving);
            serving.signal("KILL");
            return (allowed, Instant::now());
        }
        let killed = Instant::now();
        serving.signal("KILL");
        (clients.into_iter().flat_map(|client| client.join().unwrap()).collect(), killed)
    })
}

/// Checks that no id has got more than its limit over any time. A decision was made between its request and its answer,
/// so a slow machine can only hide too much, and never report it wrongly.
fn assert_within_limit(history: &BTreeMap<String, Vec<Allowed>>) {
    for (id, allowed) in history.iter().filter(|(id, _)| id.starts_with("strict")) {
        // The same as for each pair: the number so far minus what has come back can only grow by the burst.
        let mut least = f64::MAX;
        let start = allowed[0].sent;
        for (count, one) in allowed.iter().enumerate() {
            let back = |at: Instant| at.duration_since(start).as_secs_f64() * STRICT_PER_SECOND;
            least = least.min(count as f64 - back(one.sent));
            let passed = count as f64 + 1.0 - back(one.answered);
            assert!(
                passed - least <= STRICT_BURST + 1e-6,
                "{id}: {} too many",
                passed - least - STRICT_BURST
            );
        }
    }
}

#[test]
fn a_server_that_is_killed_goes_on_with_what_it_had_decided() {
    let is_measured = env::var_os("TOLLWAY_KILLS").is_some();
    let lost = kill_again_and_again("journal.yaml", POLICY, is_measured, is_measured);
    // The bound is for a release build: a debug build may need longer for a round.
    let bound = if is_measured { Duration::from_millis(100) } else { Duration::ZERO };
    assert!(lost <= bound, "{lost:?}");
}

#[test]
fn a_server_that_is_killed_has_all_that_it_answered_if_every_answer_is_synced() {
    let is_measured = env::var_os("TOLLWAY_KILLS").is_some();
    let lost = kill_again_and_again("journal-always.yaml", &format!("{POLICY}{ALWAYS}"), true, is_measured);
    assert_eq!(lost, Duration::ZERO);
}

/// Kills a server again and again, perhaps in the middle of its load, and with a crowd of others. Returns how long
/// before a kill the oldest decision was answered that is lost.
fn kill_again_and_again(name: &str, policy: &str, is_under_load: bool, has_crowd: bool) -> Duration {
    let kills: usize = env::var("TOLLWAY_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let (config, data) = (file(name, policy), tempfile::tempdir().unwrap());
    // All ids, also those that no client has had an answer about: they may have been used once more at every kill.
    let ids = (0..CLIENTS).flat_map(|client| (0..IDS).map(move |number| counted_id(client, number)));
    let mut kept: BTreeMap<String, u64> = ids.map(|id| (id, 0)).collect();
    let mut history: BTreeMap<String, Vec<Allowed>> = BTreeMap::new();
    let (mut lost, mut decided, mut longest) = (0, 0, Duration::ZERO);
    for kill in 0..kills {
        let mut serving = start(&config, data.path());
        let mut http = Http::connect(&serving.addr).unwrap();
        for (id, count) in &kept {
            assert_eq!(used(&mut http, id), *count, "{id} at kill {kill}");
        }
        let crowd = has_crowd.then(|| crowd(&serving));
        let (mut allowed, killed) = killed_under_load(&mut serving, is_under_load);
        drop(serving.wait());
        if let Some(mut crowd) = crowd {
            let _ = crowd.kill();
            crowd.wait().unwrap();
        }
        allowed.sort_by_key(|one| one.answered);
        decided += allowed.len();
        let serving = start(&config, data.path());
        let mut http = Http::connect(&serving.addr).unwrap();
        for (id, before) in &mut kept {
            let found = used(&mut http, id);
            let acknowledged: Vec<_> = allowed.iter().filter(|one| one.id == *id).collect();
            let there = usize::try_from(found - *before).unwrap();
            // One more than acknowledged may be there: the answer to the last request was lost.
            assert!(there <= acknowledged.len() + 1, "{id} has {there} of {}", acknowledged.len());
            if let Some(first) = acknowledged.get(there) {
                lost += acknowledged.len() - there;
                longest = longest.max(killed.saturating_duration_since(first.answered));
            }
            *before = found;
        }
        for one in allowed {
            history.entry(one.id.clone()).or_default().push(one);
        }
        serving.signal("KILL");
        drop(serving.wait());
    }
    assert_within_limit(&history);
    eprintln!(
        "{name}: {kills} kills, {decided} allowed, {lost} of them lost, the oldest {longest:?} before the kill"
    );
    longest
}

#[test]
fn a_server_that_is_stopped_loses_nothing() {
    let (config, data) = (file("journal-stop.yaml", POLICY), tempfile::tempdir().unwrap());
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..2 {
        let serving = start(&config, data.path());
        assert!(
            serving.printed.contains(&format!("kept in {}", data.path().display())),
            "{}",
            serving.printed
        );
        let mut http = Http::connect(&serving.addr).unwrap();
        for id in 0..200 {
            let id = id.to_string();
            assert_eq!(used(&mut http, &id), expected.get(&id).copied().unwrap_or(0), "{id}");
            assert_eq!(http.spend("Count", &id, 3).unwrap().0, 200);
            *expected.entry(id).or_default() += 3;
        }
        drop(http);
        serving.signal("TERM");
        let (code, log) = serving.wait();
        assert_eq!(code, Some(0), "{log}");
    }
}

/// The master of a server: the addresses at which it hears reports, and tells of delays.
fn master(serving: &Serving) -> [SocketAddr; 2] {
    let announced = serving.printed.split_once("zmq ").unwrap().1.lines().next().unwrap();
    let (accounting, control) = announced.split_once(", control ").unwrap();
    [accounting, control].map(|address| address.trim_start_matches("tcp://").parse().unwrap())
}

/// Subscribes to all delays, and returns the next one: its identifier and its time.
fn next_delay(subscriber: &mut ZmqSocket) -> (Vec<u8>, u64) {
    let ReceivedEvent::Message(frames) = subscriber.receive() else { panic!("no message") };
    let control = ControlMessage::decode(frames.iter().map(Vec::as_slice)).unwrap();
    assert_eq!(control.domain, b"web");
    (control.identifier.to_vec(), control.delay_until)
}

#[test]
fn a_gatekeeper_that_connects_after_a_restart_hears_of_the_delays_in_force() {
    let policy =
        "domains: { web: { rate: 1/h, burst: 1 } }\nlimits: { A: { burst: 1, count: 1, period: 1s } }";
    let (config, data) = (file("journal-delays.yaml", policy), tempfile::tempdir().unwrap());
    let mut told: Vec<(Vec<u8>, u64)> = Vec::new();
    for (signal, client) in [("TERM", &b"first"[..]), ("KILL", b"second"), ("TERM", b"third")] {
        let mut serving = start(&config, data.path());
        let [accounting, control] = master(&serving);
        let mut subscriber = ZmqSocket::connect(control, SocketType::Sub);
        subscriber.subscribe(b"web\0");
        let mut known: Vec<_> = told.iter().map(|_| next_delay(&mut subscriber)).collect();
        known.sort();
        // As exact as the offset of the clock to the wall clock is kept.
        let pairs = known.iter().zip(&told);
        let same = pairs.filter(|(one, other)| one.0 == other.0 && one.1.abs_diff(other.1) <= 1_000).count();
        assert!(known.len() == told.len() && same == told.len(), "{known:?} {told:?}");
        let mut gatekeeper = ZmqSocket::connect(accounting, SocketType::Pub);
        assert_eq!(gatekeeper.receive(), ReceivedEvent::Subscription(Vec::new()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string();
        gatekeeper.send(&[b"web\0", b"ACCEPTED", client, now.as_bytes(), b"", b""]);
        let delay = next_delay(&mut subscriber);
        assert_eq!(delay.0, client);
        told.push(delay);
        told.sort();
        if signal == "KILL" {
            wait_until_kept(&mut serving);
        }
        serving.signal(signal);
        drop(serving.wait());
    }
}

#[test]
fn a_second_server_in_the_same_directory_says_what_to_do() {
    let (config, data) = (file("journal-second.yaml", POLICY), tempfile::tempdir().unwrap());
    let serving = start(&config, data.path());
    let url = format!("http://{}/readyz", serving.admin);
    let ready = Command::new("curl").args(["-s", &url]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(ready).unwrap(), "ok\njournal up\n");
    let data = data.path().to_str().unwrap();
    let second = run(&["serve", "--config", &config, "--data", data, "--http", "127.0.0.1:0"]);
    assert_eq!(second.code, 2, "{}", second.stderr);
    assert!(second.stderr.contains("in use by another process; stop that process"), "{}", second.stderr);
    let shared = run(&["serve", "--data", data, "--store", "redis://127.0.0.1:1"]);
    assert!(shared.stderr.contains("--data is for buckets in memory"), "{}", shared.stderr);
}
