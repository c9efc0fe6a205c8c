//! What happened, for Prometheus.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tollway_client::gatekeeper::Gatekeeper;

use super::body::Answer;
use super::worker::accept;

/// Whoever asks for metrics asks quickly.
const HEAD_MAX: Duration = Duration::from_secs(5);

pub(super) struct Metrics {
    gatekeeper: Gatekeeper,
    pub(super) upstream_failures: AtomicU64,
    pub(super) open_requests: AtomicU64,
}

impl Metrics {
    pub(super) fn new(gatekeeper: Gatekeeper) -> Self {
        Self { gatekeeper, upstream_failures: AtomicU64::new(0), open_requests: AtomicU64::new(0) }
    }

    fn text(&self) -> String {
        let stats = self.gatekeeper.stats();
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: &[(&str, u64)]| {
            // Writing to a string cannot fail.
            let _ = write!(text, "# HELP tollway_guard_{name} {help}\n# TYPE tollway_guard_{name} {kind}\n");
            for (labels, value) in values {
                let _ = writeln!(text, "tollway_guard_{name}{labels} {value}");
            }
        };
        let by_status = [
            (r#"{status="accepted"}"#, stats.accepted),
            (r#"{status="delayed"}"#, stats.delayed),
            (r#"{status="rejected"}"#, stats.rejected),
        ];
        metric("requests_total", "counter", "Requests by outcome.", &by_status);
        let open = [("", self.open_requests.load(Ordering::Relaxed))];
        metric("open_requests", "gauge", "Requests in flight.", &open);
        metric("waiting", "gauge", "Requests that are being delayed.", &[("", stats.waiting as u64)]);
        metric(
            "known_delays",
            "gauge",
            "Delays received from the master that are still in force.",
            &[("", stats.known_delays as u64)],
        );
        let dropped = [("", stats.dropped_accounting)];
        metric(
            "dropped_accounting_total",
            "counter",
            "Accounting messages dropped because the master was unreachable or slow.",
            &dropped,
        );
        metric(
            "master_connected",
            "gauge",
            "1 if the master is connected, 0 if not.",
            &[("", u64::from(stats.connected))],
        );
        let failures = [("", self.upstream_failures.load(Ordering::Relaxed))];
        metric(
            "upstream_failures_total",
            "counter",
            "Requests that the upstream failed to answer.",
            &failures,
        );
        text
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Answer> {
        let found = request.uri().path() == "/metrics";
        let text = if found { self.text() } else { "metrics are at /metrics\n".to_owned() };
        let mut response = Response::new(Answer::ours(text));
        *response.status_mut() = if found { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

/// Until the process ends.
pub(super) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = accept(&listener).await;
        let metrics = Arc::clone(&metrics);
        let service = service_fn(move |request| {
            let response = metrics.answer(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
        tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}
