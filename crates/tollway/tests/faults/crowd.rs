//! Callers who never stop asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime;
use tollway::AsyncLimiter;
use tollway::core::Decision;
use tollway_testbed::eventually;

/// The pause that each caller makes before it asks again.
const THINK: Duration = Duration::from_millis(3);

/// Callers on a thread of their own, each of whom spends one unit of one id again and again.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    callers: JoinHandle<Vec<Asked>>,
}

/// The number of spends that were answered, and of those that the store decided.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicUsize,
    shared: AtomicUsize,
}

/// One spend, and what was decided.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) at: Instant,
    pub(crate) answered_at: Instant,
    pub(crate) decision: Decision,
}

impl Crowd {
    /// Starts one caller for each id under `limit`.
    pub(crate) fn gather(limiter: &Arc<AsyncLimiter>, limit: &'static str, ids: &[String]) -> Self {
        let (stop, counts) = (Arc::<AtomicBool>::default(), Arc::<Counts>::default());
        let callers: Vec<_> = ids
            .iter()
            .map(|id| {
                let (limiter, stop, counts) = (Arc::clone(limiter), Arc::clone(&stop), Arc::clone(&counts));
                ask(limiter, limit, id.clone(), stop, counts)
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
        Self { stop, counts, callers }
    }

    /// Returns the number of spends that the store has decided.
    pub(crate) fn shared(&self) -> usize {
        self.counts.shared.load(Ordering::Relaxed)
    }

    /// Waits until the store has decided so many more.
    pub(crate) fn wait_for(&self, more: usize) {
        let before = self.shared();
        eventually("decisions of the store", || self.shared() >= before + more);
    }

    /// Waits until so many more were answered, by the store or without it.
    pub(crate) fn wait_for_answers(&self, more: usize) {
        let answered = || self.counts.answered.load(Ordering::Relaxed);
        let before = answered();
        eventually("answers", || answered() >= before + more);
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
    counts: Arc<Counts>,
) -> Vec<Asked> {
    let mut asked = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let at = Instant::now();
        let decision = limiter.spend(limit, &id, 1).await.unwrap();
        asked.push(Asked { id: id.clone(), at, answered_at: Instant::now(), decision });
        counts.answered.fetch_add(1, Ordering::Relaxed);
        counts.shared.fetch_add((!decision.degraded).into(), Ordering::Relaxed);
        tokio::time::sleep(THINK).await;
    }
    asked
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
