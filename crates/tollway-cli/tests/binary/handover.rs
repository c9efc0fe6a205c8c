//! Checks that a server which takes over from another decides as if there had been only one, under load: every answer
//! is compared with a count of what was allowed.

use std::collections::HashMap;
use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::journal::Http;
use crate::run::{file, run};
use crate::serving::Serving;

/// Nothing comes back while a test runs, so the answer to every request is known.
const POLICY: &str = "
limits:
  Tokens: { burst: 30, count: 1, period: 24h }
  Quota: { algorithm: quota, count: 30, period: 24h }
";
const ALLOWED: u64 = 30;
const CLIENTS: usize = 4;
/// The number of ids that a client uses in turn, and the number of times that it asks for each before it goes on to
/// others. The last requests for an id are denied.
const IDS: usize = 25;
const REQUESTS: usize = 40;
/// Every such request is for an id of before, which has nothing left.
const EARLIER: usize = 10;
/// The number of decisions between two servers, so that each has some of the work.
const DECISIONS: u64 = 400;

/// The answers that one client has got.
#[derive(Default)]
struct Answers {
    decided: u64,
    /// Requests that should have been denied, and requests that should have been allowed.
    too_many: u64,
    too_few: u64,
    /// Attempts to connect that failed: one that meets the moment at which the old server closes its port is reset.
    refused: u64,
    reconnected: u64,
    slowest: Duration,
}

/// Ends the clients, also if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests until `stop` is set. A request without an answer was not decided: it is sent again.
fn ask(addr: &str, client: usize, stop: &AtomicBool, decided: &AtomicU64) -> Answers {
    let (mut answers, mut allowed) = (Answers::default(), HashMap::<String, u64>::new());
    let mut http = Http::connect(addr);
    let mut turn = 0;
    loop {
        let group = turn / (IDS * REQUESTS);
        let is_earlier = group > 0 && turn.is_multiple_of(EARLIER);
        let id = format!("{client}-{}-{}", group - usize::from(is_earlier), turn % IDS);
        let limit = if (turn % IDS).is_multiple_of(2) { "Tokens" } else { "Quota" };
        let sent = Instant::now();
        let status = loop {
            if stop.load(Ordering::Relaxed) {
                return answers;
            }
            let Some(connection) = &mut http else {
                answers.refused += 1;
                http = Http::connect(addr);
                continue;
            };
            match connection.spend(limit, &id, 1) {
                Some((status, _)) => break status,
                None => {
                    answers.reconnected += 1;
                    http = Http::connect(addr);
                }
            }
        };
        answers.slowest = answers.slowest.max(sent.elapsed());
        let used = allowed.entry(id).or_default();
        match (status, *used < ALLOWED) {
            (200, true) => *used += 1,
            (429, false) => {}
            (200, false) => answers.too_many += 1,
            (429, true) => answers.too_few += 1,
            (status, _) => panic!("status {status}"),
        }
        answers.decided += 1;
        decided.fetch_add(1, Ordering::Relaxed);
        turn += 1;
    }
}

fn start(config: &str, data: &Path, http: &str) -> Serving {
    let data = data.to_str().unwrap();
    Serving::start(&["--config", config, "--data", data, "--http", http, "--take-over"], &[])
}

#[test]
fn a_server_that_takes_over_decides_as_the_one_before_it() {
    let count: usize = env::var("TOLLWAY_HANDOVERS").map_or(3, |count| count.parse().unwrap());
    let (config, data) = (file("handover.yaml", POLICY), tempfile::tempdir().unwrap());
    // Nobody uses the directory yet, which is no error.
    let mut serving = start(&config, data.path(), "127.0.0.1:0");
    let addr = serving.addr.clone();
    let (stop, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    let answers: Vec<Answers> = thread::scope(|scope| {
        let (addr, stop, decided) = (&addr, &stop, &decided);
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || ask(addr, client, stop, decided))).collect();
        let stop_clients = StopOnDrop(stop);
        for _ in 0..count {
            let before = decided.load(Ordering::Relaxed);
            serving.wait_for(|_| {
                thread::yield_now();
                decided.load(Ordering::Relaxed) >= before + DECISIONS
            });
            let next = start(&config, data.path(), addr);
            let (code, log) = std::mem::replace(&mut serving, next).wait();
            assert_eq!(code, Some(0), "{log}");
        }
        let before = decided.load(Ordering::Relaxed);
        serving.wait_for(|_| {
            thread::yield_now();
            decided.load(Ordering::Relaxed) >= before + DECISIONS
        });
        drop(stop_clients);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let sum = |figure: fn(&Answers) -> u64| answers.iter().map(figure).sum::<u64>();
    let (too_many, too_few) = (sum(|client| client.too_many), sum(|client| client.too_few));
    let (decided, refused) = (sum(|client| client.decided), sum(|client| client.refused));
    let slowest = answers.iter().map(|client| client.slowest).max().unwrap();
    let reconnected = sum(|client| client.reconnected);
    assert_eq!((too_many, too_few), (0, 0), "of {decided}");
    assert!(reconnected >= u64::try_from(count).unwrap(), "no client noticed a hand-over");
    if env::var_os("TOLLWAY_HANDOVERS").is_some() {
        eprintln!(
            "{count} hand-overs, {decided} decisions, {reconnected} connections ended, {refused} attempts to connect \
             failed, slowest answer {slowest:?}"
        );
    }
}

/// A server that could not start must not end the one that runs.
#[test]
fn what_cannot_be_served_takes_nothing_over() {
    let (config, data) = (file("kept.yaml", POLICY), tempfile::tempdir().unwrap());
    let serving = start(&config, data.path(), "127.0.0.1:0");
    let audit = data.path().join("nowhere/audit.log");
    for (name, settings, flags, reason) in [
        (
            "open",
            "gates: { http: 0.0.0.0:0 }".to_owned(),
            &["--require-auth"][..],
            "the http gate at 0.0.0.0:0 is open",
        ),
        ("tokens", "tokens: nowhere.txt".to_owned(), &[], "kept-tokens.yaml:1:9"),
        (
            "tls",
            "gates: { admin: { listen: 127.0.0.1:0, tls: { cert: a, key: b } } }".to_owned(),
            &[],
            "kept-tls.yaml:1:53",
        ),
        (
            "hmac",
            "gates: { text: { listen: 127.0.0.1:0, hmac: { keys: nowhere } } }".to_owned(),
            &[],
            "kept-hmac.yaml:1:53",
        ),
        ("audit", format!("audit: {}", audit.display()), &[], "the audit log"),
    ] {
        let config = file(&format!("kept-{name}.yaml"), format!("{settings}\n{POLICY}"));
        let data = data.path().to_str().unwrap();
        let serve = ["serve", "--config", &config, "--data", data, "--take-over"];
        let ran = run(&[&serve, flags].concat());
        assert_eq!(ran.code, 2, "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{name}: {}", ran.stderr);
        assert!(!ran.stderr.contains("taking over"), "{name}: {}", ran.stderr);
    }
    assert_eq!(serving.ask(&["check", "Tokens:a"]).0, 0);
    serving.signal("TERM");
    assert_eq!(serving.wait().0, Some(0));
}

#[test]
fn taking_over_needs_a_journal() {
    let ran = run(&["serve", "--take-over"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--take-over needs a journal"), "{}", ran.stderr);
}
