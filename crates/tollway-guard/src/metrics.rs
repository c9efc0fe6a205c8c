//! Counts requests and failures, and serves `/metrics` for Prometheus and `/healthz`.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tollway_client::gatekeeper::Gatekeeper;
use tollway_tower::{LOG_PAUSE, LogThrottle};

use crate::guard::Shared;
use crate::worker::accept;

/// The time in which the head of a request for metrics must arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The counters that the admission layer does not have.
pub(crate) struct Metrics {
    upstream_failures: AtomicU64,
    upstream_log: LogThrottle,
    open_requests: AtomicU64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let upstream_log = LogThrottle::new(LOG_PAUSE, Instant::now());
        Self { upstream_failures: AtomicU64::new(0), upstream_log, open_requests: AtomicU64::new(0) }
    }

    pub(crate) fn request_began(&self) {
        self.open_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request_ended(&self) {
        self.open_requests.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open_requests(&self) -> u64 {
        self.open_requests.load(Ordering::Relaxed)
    }

    /// Counts a failure of the upstream. Returns the number of unlogged ones, if one may be logged now.
    pub(crate) fn upstream_failed(&self) -> Option<u64> {
        self.upstream_failures.fetch_add(1, Ordering::Relaxed);
        self.upstream_log.allow(Instant::now())
    }
}

/// Returns the metrics in the text format of Prometheus.
fn text(shared: &Shared) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(&str, u64)]| {
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP tollway_guard_{name} {help}\n# TYPE tollway_guard_{name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(text, "tollway_guard_{name}{labels} {value}");
        }
    };
    let (metrics, counts) = (&shared.metrics, shared.layer.counts());
    let by_status = [
        (r#"{status="accepted"}"#, counts.passed),
        (r#"{status="delayed"}"#, counts.delayed),
        (r#"{status="rejected"}"#, counts.rejected),
        (r#"{status="failed_open"}"#, counts.failed_open),
        (r#"{status="unavailable"}"#, counts.unavailable),
        (r#"{status="unidentified"}"#, counts.unidentified),
        (r#"{status="abandoned"}"#, counts.abandoned),
    ];
    metric("requests_total", "counter", "Requests by outcome.", &by_status);
    metric("open_requests", "gauge", "Requests in flight.", &[("", metrics.open_requests())]);
    metric("waiting", "gauge", "Requests that are being delayed.", &[("", shared.layer.waiting() as u64)]);
    let failures = metrics.upstream_failures.load(Ordering::Relaxed);
    let help = "Requests that the upstream failed to answer.";
    metric("upstream_failures_total", "counter", help, &[("", failures)]);
    if let Some(stats) = shared.settings.gatekeeper.as_ref().map(Gatekeeper::stats) {
        let help = "Delays received from the master that are still in force.";
        metric("known_delays", "gauge", help, &[("", stats.known_delays as u64)]);
        let help = "Accounting messages dropped because the master was unreachable or slow.";
        metric("dropped_accounting_total", "counter", help, &[("", stats.dropped_accounting)]);
        let help = "1 if the master is connected, 0 if not.";
        metric("master_connected", "gauge", help, &[("", u64::from(stats.connected))]);
    }
    text
}

fn respond(request: &Request<Incoming>, shared: &Shared, is_draining: bool) -> Response<String> {
    let (status, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, text(shared)),
        "/healthz" if is_draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics are at /metrics, and health is at /healthz\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Serves metrics and health until the process ends, also while it drains.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    draining: watch::Receiver<bool>,
) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = accept(&listener).await;
        let (shared, draining) = (Arc::clone(&shared), draining.clone());
        let service = service_fn(move |request| {
            let response = respond(&request, &shared, *draining.borrow());
            async { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}
