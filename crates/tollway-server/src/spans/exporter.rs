//! Sends spans to a collector, as OTLP over HTTP, on a thread of its own.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::runtime::Runtime;
use tollway_core::{LogThrottle, Nanos};
use tracing::warn;

use super::{DecisionSpan, Message, SpanDecision};
use crate::bounds::LOG_PAUSE;
use crate::metrics::Metrics;

/// The number of spans that are sent in one request.
const BATCH: usize = 512;
/// The time that the first span of a request waits for others.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// The time that a collector may take for one request. Meanwhile spans wait in the queue.
const EXPORT_TIME: Duration = Duration::from_secs(3);

/// Starts the thread. The error names what is wrong with the endpoint.
pub(super) fn start(
    endpoint: &str,
    queue: Receiver<Message>,
    stopping: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let exporter = runtime.block_on(async { exporter(endpoint) })?;
    let throttle = LogThrottle::new(LOG_PAUSE, Instant::now());
    let scope = InstrumentationScope::builder("tollway").with_version(env!("CARGO_PKG_VERSION")).build();
    let thread = ExportThread { runtime, exporter, queue, stopping, metrics, throttle, scope };
    thread::Builder::new().name("tollway-spans".to_owned()).spawn(move || thread.run())
}

/// Checks the endpoint. Nothing is sent.
pub(super) fn check(endpoint: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async { exporter(endpoint).map(drop) })
}

fn exporter(endpoint: &str) -> io::Result<SpanExporter> {
    let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let builder = builder.with_endpoint(format!("{endpoint}/v1/traces")).with_timeout(EXPORT_TIME);
    let mut exporter = builder.build().map_err(io::Error::other)?;
    exporter.set_resource(&Resource::builder().with_service_name("tollway").build());
    Ok(exporter)
}

struct ExportThread {
    runtime: Runtime,
    exporter: SpanExporter,
    queue: Receiver<Message>,
    /// True once the server stops.
    stopping: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    throttle: LogThrottle,
    scope: InstrumentationScope,
}

impl ExportThread {
    fn run(self) {
        loop {
            let (batch, next) = self.collect();
            let failed = !batch.is_empty() && !self.export(batch);
            // A server that stops does not wait for a collector that is away.
            if next.is_break() || failed && self.stopping.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Returns the spans for one request, and whether there will be more.
    fn collect(&self) -> (Vec<SpanData>, ControlFlow<()>) {
        let mut batch = Vec::new();
        let mut deadline: Option<Instant> = None;
        while batch.len() < BATCH {
            let message = match deadline {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.queue.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Span(span)) => batch.push(self.span_data(*span)),
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return (batch, ControlFlow::Break(()));
                }
            }
            deadline.get_or_insert_with(|| Instant::now() + BATCH_TIME);
        }
        (batch, ControlFlow::Continue(()))
    }

    /// Sends spans, and returns whether the collector took them.
    fn export(&self, batch: Vec<SpanData>) -> bool {
        let count = batch.len() as u64;
        let Err(error) = self.runtime.block_on(self.exporter.export(batch)) else {
            self.metrics.spans.sent.add(count);
            return true;
        };
        self.metrics.spans.failed.add(count);
        if let Some(held_back) = self.throttle.allow(Instant::now()) {
            warn!(%error, spans = count, held_back, "spans could not be sent; check the endpoint of \"otel\"");
        }
        false
    }

    fn span_data(&self, span: DecisionSpan) -> SpanData {
        let DecisionSpan { trace_id, parent_id, span_id, began, ended, decided } = span;
        let (trace_id, span_id) = (TraceId::from(trace_id), SpanId::from(span_id));
        SpanData {
            span_context: SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, false, TraceState::NONE),
            // 0 is the id that no span has.
            parent_span_id: SpanId::from(parent_id),
            parent_span_is_remote: parent_id != 0,
            span_kind: SpanKind::Server,
            name: decided.verb.into(),
            start_time: began,
            end_time: ended,
            attributes: attributes(decided),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Returns the attributes of a span. Numbers of OpenTelemetry have a sign, so what is above their range is cut to it.
fn attributes(decided: SpanDecision) -> Vec<KeyValue> {
    let SpanDecision { gate, verb: _, limit, id, cost, allowed, remaining, retry_after, degraded } = decided;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new("tollway.gate", gate),
        KeyValue::new("tollway.limit", limit),
        KeyValue::new("tollway.allowed", allowed),
        KeyValue::new("tollway.cost", number(cost)),
        KeyValue::new("tollway.degraded", degraded),
    ];
    attributes.extend(remaining.map(|remaining| KeyValue::new("tollway.remaining", number(remaining))));
    let retry_after = retry_after.filter(|retry| !retry.is_forever()).map(Nanos::as_secs_f64);
    attributes.extend(retry_after.map(|seconds| KeyValue::new("tollway.retry_after", seconds)));
    attributes.extend(id.map(|id| KeyValue::new("tollway.id", id)));
    attributes
}
