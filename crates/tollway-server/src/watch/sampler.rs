//! Computes rates once a second, from the counters of `/metrics`, and hands them to those who watch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use tollway::block_on;
use tollway::engine::Engine;
use tollway::store::NodeState;
use tollway_core::Nanos;
use tollway_wire::http::{
    GateState, LimitState, LiveCounts, LiveEvent, LiveLatency, LiveSnapshot, ServerState, StoreNode,
    StoreState, TopBy,
};

use super::history::{ByName, LIMITS, push_bounded};
use super::numbers::numbers;
use crate::metrics::{DecisionCounts, GateRequests, LATENCY_BUCKETS, Latencies};
use crate::worker::Shared;

/// The time between two ticks of the clock that decisions are recorded with.
const TICK: Duration = Duration::from_millis(100);
/// The number of ticks from one sample to the next.
const TICKS: u64 = 10;
/// The number of samples that latencies are about.
const LATENCY_SAMPLES: usize = 10;
/// The delay of a tick above which those that were missed are skipped: the process was stopped, or the machine slept.
const LATE_MAX: Duration = Duration::from_secs(1);
/// The difference from which on the wall clock has jumped, in seconds. A smaller difference is measurement noise and is
/// ignored: otherwise the time of one denial would differ in each snapshot.
const CLOCK_STEP_MIN: f64 = 0.1;
/// The number of ids in each list of a snapshot.
const TOP: usize = 10;

/// Samples a server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Samples a server.
    pub(crate) fn start(server: Arc<Shared>) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let builder = thread::Builder::new().name("tollway-watch".to_owned());
        // Before the thread, which may begin after the first requests: they would not be counted.
        let mut samples = Samples::new(server);
        let thread = builder.spawn(move || run(&mut samples, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(samples: &mut Samples, stopped: &Receiver<()>) {
    let mut next = Instant::now();
    for tick in 1_u64.. {
        let now = Instant::now();
        next = next_tick(next, now);
        match stopped.recv_timeout(next.saturating_duration_since(now)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        samples.server.watch.tick(now);
        samples.server.tap.tick();
        if tick % TICKS == 0 {
            samples.take(seconds_since_1970(), now);
        }
    }
}

/// Returns the time of the tick after the one at `last`. It does not depend on how long a sample took, unless that was
/// very long: the second of a rate is then a second.
fn next_tick(last: Instant, now: Instant) -> Instant {
    let next = last + TICK;
    if now.saturating_duration_since(next) > LATE_MAX { now } else { next }
}

/// The counters of the last sample, and what the next is compared with.
struct Samples {
    server: Arc<Shared>,
    host: String,
    started: Instant,
    /// The time when watching started, by the wall clock of now.
    started_at: f64,
    decisions: DecisionCounts,
    gates: GateRequests,
    latency: [u64; LATENCY_BUCKETS],
    /// The answers of each of the last seconds.
    latencies: VecDeque<[u64; LATENCY_BUCKETS]>,
}

impl Samples {
    fn new(server: Arc<Shared>) -> Self {
        Self {
            host: host_name(),
            started: Instant::now(),
            started_at: seconds_since_1970() - server.watch.uptime(Instant::now()).as_secs_f64(),
            decisions: server.metrics.decisions(),
            gates: server.metrics.gate_requests(),
            latency: server.metrics.latency(),
            latencies: VecDeque::new(),
            server,
        }
    }

    /// Compares the counters with those of the last sample.
    fn take(&mut self, at: f64, now: Instant) {
        self.started_at = started_at(self.started_at, at, self.server.watch.uptime(now));
        let Shared { metrics, feed, .. } = &*self.server;
        let decisions = metrics.decisions();
        let last_second = decisions_since(&decisions, &self.decisions);
        self.decisions = decisions;
        let latency = metrics.latency();
        let answers = std::array::from_fn(|bucket| latency[bucket] - self.latency[bucket]);
        self.latency = latency;
        push_bounded(&mut self.latencies, answers, LATENCY_SAMPLES);
        let gates = metrics.gate_requests();
        let requests = gates.since(&self.gates);
        self.gates = gates;
        feed.record(at, &last_second);
        if feed.is_watched() {
            let snapshot = self.snapshot(at, &last_second.by_name, &requests);
            feed.publish(&LiveEvent::Snapshot(Box::new(snapshot)));
        }
    }

    fn snapshot(&self, at: f64, limits: &ByName<LiveCounts>, requests: &GateRequests) -> LiveSnapshot {
        let Shared { limiter, watch, feed, .. } = &*self.server;
        let totals = feed.history().last();
        let top = |by| block_on(watch.top(by, None, TOP, limiter)).top;
        LiveSnapshot {
            at,
            server: self.server_state(),
            totals,
            latency: self.latency(),
            limits: self.limit_states(limits),
            store: store_state(limiter, at),
            gates: self.gate_states(requests),
            top_denied: top(TopBy::Denied),
            top_spent: top(TopBy::Spent),
            last_denials: watch.last_denials(self.started_at, &limiter.policy()),
        }
    }

    fn server_state(&self) -> ServerState {
        let Shared { health, watch, .. } = &*self.server;
        ServerState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            uptime: self.started.elapsed().as_secs_f64(),
            healthy: health.is_good(),
            draining: health.is_draining(),
            show_ids: watch.settings().show_ids.name().to_owned(),
            watch: watch.settings().is_on,
        }
    }

    fn latency(&self) -> Option<LiveLatency> {
        let counts: [u64; LATENCY_BUCKETS] =
            std::array::from_fn(|bucket| self.latencies.iter().map(|second| second[bucket]).sum());
        Some(LiveLatency { p50: quantile(&counts, 0.5)?, p99: quantile(&counts, 0.99)? })
    }

    /// Returns the state of each limit that is configured, or that has decided something in the last ten minutes.
    fn limit_states(&self, limits: &ByName<LiveCounts>) -> Vec<LimitState> {
        let policy = self.server.limiter.policy();
        let history = self.server.feed.history();
        let shown = limits.iter().filter_map(|(named, counts)| {
            let (numbers, denied_share) = (numbers(&policy, named.0, &named.1), history.denied_share(named));
            (numbers.is_some() || denied_share.is_some()).then(|| LimitState {
                name: named.1.to_string(),
                kind: named.0,
                numbers: numbers.unwrap_or_default(),
                counts: *counts,
                denied_share,
            })
        });
        shown.take(LIMITS).collect()
    }

    fn gate_states(&self, requests: &GateRequests) -> Vec<GateState> {
        let states = self.server.gates.iter().map(|gate| {
            let limit = gate.connection_limit();
            GateState {
                name: gate.name().to_owned(),
                address: self.server.addresses.of(gate.name()).unwrap_or_else(|| gate.address()).to_string(),
                connections: limit.map(|limit| limit.open() as u64),
                max_connections: limit.map(|limit| limit.max() as u64),
                refused: limit.map_or(0, |limit| limit.refused()),
                evicted: limit.map_or(0, |limit| limit.evicted.get()),
                requests: requests.of(gate.name()),
            }
        });
        states.collect()
    }
}

/// Returns the start time computed from the wall clock `at`. Keeps `known` if the difference is below
/// [`CLOCK_STEP_MIN`]. The wall clock jumps when it is set or the machine sleeps.
fn started_at(known: f64, at: f64, uptime: Duration) -> f64 {
    let started_at = at - uptime.as_secs_f64();
    if (started_at - known).abs() < CLOCK_STEP_MIN { known } else { started_at }
}

/// Returns the requests that came after `before`.
fn decisions_since(now: &DecisionCounts, before: &DecisionCounts) -> DecisionCounts {
    let by_name = now.by_name.iter().map(|(name, counts)| {
        (name.clone(), since(counts, &before.by_name.get(name).copied().unwrap_or_default()))
    });
    DecisionCounts { totals: since(&now.totals, &before.totals), by_name: by_name.collect() }
}

/// Returns what came after `before`. Two counters of one request are not read at one moment, so a difference of them
/// can be smaller than it was.
fn since(now: &LiveCounts, before: &LiveCounts) -> LiveCounts {
    LiveCounts {
        allowed: now.allowed.saturating_sub(before.allowed),
        denied: now.denied.saturating_sub(before.denied),
        degraded: now.degraded.saturating_sub(before.degraded),
    }
}

fn store_state(limiter: &Engine, at: f64) -> StoreState {
    let stats = limiter.stats();
    let nodes: Vec<_> = limiter.health().into_iter().flat_map(|health| health.nodes).collect();
    let nodes = nodes.into_iter().map(|node| {
        let (state, since, reason) = match node.state {
            NodeState::Up => ("up", None, None),
            NodeState::Unreachable { since, reason } => {
                ("unreachable", Some(since.elapsed().as_secs_f64()), Some(reason))
            }
            _ => ("connecting", None, None),
        };
        StoreNode { address: node.address, state: state.to_owned(), since, reason }
    });
    let nodes: Vec<_> = nodes.collect();
    let unreachable = nodes.iter().filter_map(|node| node.since).reduce(f64::max);
    StoreState {
        kind: if limiter.is_shared() { "redis" } else { "memory" }.to_owned(),
        buckets: stats.buckets as u64,
        max_buckets: stats.max_buckets as u64,
        client_buckets: stats.client_buckets as u64,
        max_client_buckets: stats.max_client_buckets as u64,
        nodes,
        degraded_since: unreachable.map(|seconds| at - seconds),
    }
}

/// Returns the seconds that this share of the answers took at most, as if those of one bucket were spread evenly.
fn quantile(counts: &[u64; LATENCY_BUCKETS], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let (mut left, mut low) = (share * total as f64, 0);
    for (count, high) in counts.iter().zip(Latencies::bounds()) {
        if *count > 0 && left <= *count as f64 {
            let nanos = low as f64 + (high - low) as f64 * (left / *count as f64);
            return Some(nanos / 1e9);
        }
        left -= *count as f64;
        low = high;
    }
    // Beyond the last bound, which is all that is known of it.
    Some(Nanos::new(low).as_secs_f64())
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the name of the machine, or nothing if the system does not tell.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| env::var("HOSTNAME"));
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sample_moves_no_tick() {
        let start = Instant::now();
        let mut next = start;
        for tick in 1..=100 {
            // A sample that takes six ticks, each second.
            let late = if tick % 10 == 1 { 6 * TICK } else { Duration::ZERO };
            next = next_tick(next, next + late);
            assert_eq!(next, start + tick * TICK);
        }
        let wakes = next + Duration::from_secs(3_600);
        assert_eq!(next_tick(next, wakes), wakes);
    }

    #[test]
    fn the_start_follows_a_wall_clock_that_is_set() {
        let uptime = Duration::from_secs(10);
        for (at, expected) in
            [(110.0, 100.0), (110.000_1, 100.0), (109.95, 100.0), (3_710.0, 3_700.0), (60.0, 50.0)]
        {
            assert_eq!(started_at(100.0, at, uptime), expected, "{at}");
        }
    }

    #[test]
    fn quantiles_are_spread_over_their_bucket() {
        let mut counts = [0; LATENCY_BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        // A hundred answers between 10 and 20 microseconds.
        counts[4] = 100;
        assert_eq!(quantile(&counts, 0.5), Some(15e-6));
        counts[LATENCY_BUCKETS - 1] = 100;
        assert_eq!(quantile(&counts, 0.5), Some(20e-6));
        assert_eq!(quantile(&counts, 0.99), Some(1.0));
    }
}
