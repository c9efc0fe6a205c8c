//! Clients that send without a pause, and what they were allowed.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollway_testbed::TEST_TIMEOUT;

use crate::journal::Http;

/// The limit of each id.
pub(super) const BURST: u32 = 40;
pub(super) const PER_SECOND: u32 = 40;

pub(super) const CLIENTS: usize = 4;
/// The time after which a client gives up.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A request that was allowed, and the times between which that was decided.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    sent: Instant,
    answered: Instant,
}

#[derive(Debug, Default)]
struct Counters {
    stop: AtomicBool,
    decided: AtomicU64,
    counted: AtomicU64,
    unanswered: AtomicU64,
}

/// Clients, sending.
pub(super) struct Load {
    counters: Arc<Counters>,
    clients: Vec<JoinHandle<Vec<Allowed>>>,
}

impl Load {
    pub(super) fn start(addr: &str) -> Self {
        let counters = Arc::<Counters>::default();
        let clients = (0..CLIENTS).map(|client| {
            let (addr, counters) = (addr.to_owned(), Arc::clone(&counters));
            std::thread::spawn(move || send(&addr, client, &counters))
        });
        Self { clients: clients.collect(), counters }
    }

    /// Returns the number of requests that have an answer.
    pub(super) fn decided(&self) -> u64 {
        self.counters.decided.load(Ordering::Relaxed)
    }

    /// Returns the number of units that the quota has counted, as far as clients know.
    pub(super) fn counted(&self) -> u64 {
        self.counters.counted.load(Ordering::Relaxed)
    }

    pub(super) fn unanswered(&self) -> u64 {
        self.counters.unanswered.load(Ordering::Relaxed)
    }

    /// Waits until so many requests have an answer.
    pub(super) fn wait_for(&self, decided: u64) {
        super::wait_until("enough answers", || self.decided() >= decided);
    }

    /// Stops sending.
    pub(super) fn end(mut self) -> Requests {
        self.counters.stop.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut self.clients);
        let allowed = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let (decided, counted, unanswered) = (self.decided(), self.counted(), self.unanswered());
        Requests { allowed, decided, counted, unanswered }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.counters.stop.store(true, Ordering::Relaxed);
    }
}

/// The numbers of requests that were allowed, denied and not answered.
pub(super) struct Requests {
    allowed: Vec<Vec<Allowed>>,
    decided: u64,
    pub(super) counted: u64,
    pub(super) unanswered: u64,
}

impl Requests {
    /// Returns the most that one id got above `burst + rate * d`, over any time.
    pub(super) fn excess(&self) -> f64 {
        self.allowed.iter().map(|allowed| excess(allowed)).fold(f64::MIN, f64::max)
    }
}

fn excess(allowed: &[Allowed]) -> f64 {
    // The n-th request is at least n - 1 behind the first: what counts is how far the two lines are apart.
    let (burst, rate) = (f64::from(BURST), f64::from(PER_SECOND));
    let Some(first) = allowed.first() else { return -burst };
    let seconds = |at: Instant| at.duration_since(first.sent).as_secs_f64();
    let (mut lowest, mut most) = (f64::MAX, f64::MIN);
    for (number, request) in allowed.iter().enumerate() {
        let number = number as f64;
        lowest = lowest.min(number - rate * seconds(request.sent));
        most = most.max(number + 1.0 - rate * seconds(request.answered) - lowest);
    }
    most - burst
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed: usize = self.allowed.iter().map(Vec::len).sum();
        let Self { decided, unanswered, .. } = self;
        write!(f, "{decided} answers, {allowed} allowed under the limit, {unanswered} without an answer")
    }
}

/// Sends by turns to the limit that is judged and to the quota that counts, each for an id of its own.
fn send(addr: &str, client: usize, counters: &Counters) -> Vec<Allowed> {
    let (mut allowed, mut http, id) = (Vec::new(), None, format!("client-{client}"));
    let began = Instant::now();
    for turn in 0_u64.. {
        if counters.stop.load(Ordering::Relaxed) || began.elapsed() > TEST_TIMEOUT {
            break;
        }
        if http.is_none() {
            http = connect(addr);
        }
        let Some(connection) = &mut http else { continue };
        let is_judged = turn.is_multiple_of(2);
        let limit = if is_judged { "Judged" } else { "Counted" };
        let sent = Instant::now();
        match connection.spend(limit, if is_judged { &id } else { "all" }, 1) {
            Some((status, body)) => {
                counters.decided.fetch_add(1, Ordering::Relaxed);
                match (status, is_judged) {
                    (200, true) => allowed.push(Allowed { sent, answered: Instant::now() }),
                    (200, false) => _ = counters.counted.fetch_add(1, Ordering::Relaxed),
                    // 503 is the denial of a limit whose store gave no answer.
                    (429 | 503, _) => {}
                    (status, _) => panic!("status {status}: {body}"),
                }
            }
            None => {
                counters.unanswered.fetch_add(1, Ordering::Relaxed);
                http = None;
            }
        }
    }
    allowed
}

fn connect(addr: &str) -> Option<Http> {
    let address = addr.parse().unwrap();
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    Some(Http::new(stream))
}

/// Returns the number of units that the quota has counted, as the server knows it.
pub(super) fn used(addr: &str) -> u64 {
    let (_, body) = connect(addr).unwrap().spend("Counted", "all", 0).unwrap();
    let digits = body.split("\"remaining\":").nth(1).unwrap();
    let left: u64 = digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    1_000_000_000 - left
}
