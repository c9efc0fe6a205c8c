//! Spans of decisions for OpenTelemetry: one for each decision that is sampled.
//!
//! ```text
//! service/decided.rs ──> Spans: samples ──> bounded queue ──> the thread tollway-spans: OTLP over HTTP
//! ```
//!
//! A worker never waits: if the queue is full, a span is dropped and counted. Without the feature `otel` nothing can be
//! exported, and a server that is configured to do so does not start.

#[cfg(feature = "otel")]
mod exporter;
#[cfg(not(feature = "otel"))]
#[path = "spans/no_exporter.rs"]
mod exporter;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use tollway::config::OtelSettings;
use tollway_core::Nanos;
use tollway_wire::http::TraceParent;

use crate::metrics::{Counter, Metrics};

/// The number of spans that wait to be sent.
const QUEUE: usize = 4_096;

/// Samples the decisions of all workers.
#[derive(Debug)]
pub(crate) struct Spans {
    /// Random numbers below this are in the sample.
    threshold: u128,
    workers: Box<[RandomNumbers]>,
    queue: SyncSender<Message>,
    metrics: Arc<Metrics>,
}

/// Counts what became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounters {
    pub(crate) sent: Counter,
    /// The spans that found the queue full.
    pub(crate) dropped: Counter,
    /// The spans that the collector did not take.
    pub(crate) failed: Counter,
}

/// A message to the thread that exports.
#[derive(Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only what exports spans reads them"))]
enum Message {
    Span(Box<DecisionSpan>),
    /// Everything before this is sent, and then the thread ends.
    Stop,
}

/// A decision, as its span shows it.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only what exports spans reads them"))]
struct DecisionSpan {
    trace_id: u128,
    /// The id of the client's span; 0 if it has none.
    parent_id: u64,
    span_id: u64,
    began: SystemTime,
    ended: SystemTime,
    decided: SpanDecision,
}

/// The attributes of a span.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only what exports spans reads them"))]
pub(crate) struct SpanDecision {
    pub(crate) gate: &'static str,
    /// The verb of the request: `spend` or `check`.
    pub(crate) verb: &'static str,
    /// The name of the limit or the rule that decided.
    pub(crate) limit: Arc<str>,
    /// The id as `show_ids` says; `None` if ids are not shown.
    pub(crate) id: Option<String>,
    pub(crate) cost: u64,
    pub(crate) allowed: bool,
    /// The units that are left; `None` for rules and rates, which have none.
    pub(crate) remaining: Option<u64>,
    /// The time after which it would be allowed; `None` if it is not known.
    pub(crate) retry_after: Option<Nanos>,
    /// True if the store gave no answer.
    pub(crate) degraded: bool,
}

/// A decision that is in the sample: the place of its span in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    trace_id: u128,
    /// The id of the client's span; 0 if it has none.
    parent_id: u64,
    span_id: u64,
}

/// The random numbers of one worker. It is aligned so that two workers never share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct RandomNumbers(AtomicU64);

impl RandomNumbers {
    /// Returns the next number, by SplitMix64: a few instructions, and good enough for ids that nobody must guess.
    #[inline]
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Spans {
    /// Checks that this program can export to the endpoint.
    pub(crate) fn check(settings: &OtelSettings) -> io::Result<()> {
        exporter::check(&settings.endpoint)
    }

    /// Starts the thread that exports. The error says that this program cannot.
    pub(crate) fn start(
        settings: &OtelSettings,
        workers: usize,
        metrics: Arc<Metrics>,
    ) -> io::Result<(Arc<Self>, SpanThread)> {
        let (queue, receiver) = sync_channel(QUEUE);
        let stopping = Arc::<AtomicBool>::default();
        let thread =
            exporter::start(&settings.endpoint, receiver, Arc::clone(&stopping), Arc::clone(&metrics))?;
        let seeds = RandomState::new();
        let workers =
            (0..workers).map(|worker| RandomNumbers(AtomicU64::new(seeds.hash_one(worker)))).collect();
        let spans = Self { threshold: settings.sample.threshold(), workers, queue: queue.clone(), metrics };
        Ok((Arc::new(spans), SpanThread { queue, stopping, thread: Some(thread) }))
    }

    /// Returns the place of a decision's span if the decision is in the sample. It is a part of the client's trace, if
    /// the client has one and records it, and begins a trace of its own if the client has none.
    #[inline]
    pub(crate) fn sample(&self, worker: usize, parent: Option<TraceParent>) -> Option<Sampled> {
        let random = self.workers.get(worker)?;
        if let Some(TraceParent { trace_id, span_id: parent_id, sampled }) = parent {
            return sampled.then(|| Sampled { trace_id, parent_id, span_id: random.next() | 1 });
        }
        (u128::from(random.next()) < self.threshold).then(|| Sampled {
            trace_id: u128::from(random.next()) << 64 | u128::from(random.next() | 1),
            parent_id: 0,
            span_id: random.next() | 1,
        })
    }

    /// Queues a span to be sent, or drops it if too many wait.
    pub(crate) fn record(&self, sampled: Sampled, began: SystemTime, decided: SpanDecision) {
        let Sampled { trace_id, parent_id, span_id } = sampled;
        let ended = SystemTime::now();
        let span = Box::new(DecisionSpan { trace_id, parent_id, span_id, began, ended, decided });
        if self.queue.try_send(Message::Span(span)).is_err() {
            self.metrics.spans.dropped.one();
        }
    }
}

/// The thread that exports. When it is dropped, what was queued is sent.
#[derive(Debug)]
pub(crate) struct SpanThread {
    queue: SyncSender<Message>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SpanThread {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _ = self.queue.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
