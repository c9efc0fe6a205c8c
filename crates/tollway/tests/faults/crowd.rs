//! Callers who never stop asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime;
use tollway::AsyncLimiter;
use tollway::core::Decision;
use tollway_testbed::eventually;

/// The pause that each caller makes before it asks again, so that the store is measured and not the busy machine.
const THINK: Duration = Duration::from_millis(3);

/// Callers on a thread of their own, each of whom spends one unit of one id again and again.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    shared: Arc<AtomicUsize>,
    callers: JoinHandle<Vec<Asked>>,
}

/// One spend, and what was decided.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) decision: Decision,
}

impl Crowd {
    /// Starts one caller for each id under `limit`.
    pub(crate) fn gather(limiter: &Arc<AsyncLimiter>, limit: &'static str, ids: &[String]) -> Self {
        let (stop, shared) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let callers: Vec<_> = ids
            .iter()
            .map(|id| {
                let (limiter, stop, shared) = (Arc::clone(limiter), Arc::clone(&stop), Arc::clone(&shared));
                ask(limiter, limit, id.clone(), stop, shared)
            })
            .collect();
        let callers = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let callers: Vec<_> = callers.into_iter().map(tokio::spawn).collect();
                let mut asked = Vec::new();
                for caller in callers {
                    asked.extend(caller.await.unwrap());
                }
                asked
            })
        });
        Self { stop, shared, callers }
    }

    /// Returns the number of spends that the store has decided.
    pub(crate) fn shared(&self) -> usize {
        self.shared.load(Ordering::Relaxed)
    }

    /// Waits until the store has decided so many more, and says how long the first of them took.
    pub(crate) fn wait_for(&self, more: usize) -> Duration {
        let (started, before) = (Instant::now(), self.shared());
        eventually("a decision of the store", || self.shared() > before);
        let first = started.elapsed();
        eventually("decisions of the store", || self.shared() >= before + more);
        first
    }

    /// Sends everybody home.
    pub(crate) fn disperse(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.join().unwrap()
    }
}

async fn ask(
    limiter: Arc<AsyncLimiter>,
    limit: &'static str,
    id: String,
    stop: Arc<AtomicBool>,
    shared: Arc<AtomicUsize>,
) -> Vec<Asked> {
    let mut asked = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let at = Instant::now();
        let decision = limiter.spend(limit, &id, 1).await.unwrap();
        asked.push(Asked { id: id.clone(), at, took: at.elapsed(), decision });
        shared.fetch_add((!decision.degraded).into(), Ordering::Relaxed);
        tokio::time::sleep(THINK).await;
    }
    asked
}

/// Returns the time that 99 in a hundred did not exceed.
pub(crate) fn p99(took: impl Iterator<Item = Duration>) -> Duration {
    let mut took: Vec<_> = took.collect();
    took.sort();
    took[took.len() * 99 / 100]
}

/// Somebody who only sleeps, to see how much longer that takes on this machine, now.
pub(crate) struct Sleeper {
    stop: Arc<AtomicBool>,
    asleep: JoinHandle<Vec<Duration>>,
}

impl Sleeper {
    /// Begins to sleep for this long, again and again.
    pub(crate) fn start(pause: Duration) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let asleep = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let mut overslept = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let started = Instant::now();
                runtime.block_on(async { tokio::time::sleep(pause).await });
                overslept.push(started.elapsed() - pause);
            }
            overslept
        });
        Self { stop, asleep }
    }

    /// Stops, and returns the delay that 99 sleeps in a hundred did not exceed.
    pub(crate) fn wake(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        p99(self.asleep.join().unwrap().into_iter())
    }
}

/// Threads that keep every core busy until this value is dropped.
pub(crate) struct BusyMachine {
    stop: Arc<AtomicBool>,
}

impl BusyMachine {
    /// Starts two threads for each core.
    pub(crate) fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || while !stopped.load(Ordering::Relaxed) {});
        }
        Self { stop }
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
