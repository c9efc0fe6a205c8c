//! Helpers of the tests: a limiter with a manual clock, a service that says hello, and requests to it.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tollway::core::Timestamp;
use tollway::{AsyncLimiter, Clock, Config};
use tollway_tower::{AdmissionService, Admit, Identify, LocalLimit};
use tower_service::Service;
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Allows two at once, then one in ten seconds.
pub(crate) const POLICY: &str = "
limits:
  PerClient: { burst: 2, count: 1, period: 10s }
  PerAccount: { burst: 2, count: 1, period: 10s, id: regId }
rules:
  upload: 'client:2/10s'
";

pub(crate) fn limiter(policy: &str) -> (AsyncLimiter, Clock) {
    let clock = Clock::manual(Timestamp::EPOCH);
    let config = Config::parse(policy, "policy.yaml").unwrap();
    (AsyncLimiter::open(config, clock.clone()).unwrap(), clock)
}

pub(crate) fn per_client() -> LocalLimit {
    LocalLimit::new(limiter(POLICY).0, "PerClient").unwrap()
}

/// A service that responds with a greeting.
#[derive(Clone, Debug)]
pub(crate) struct Hello;

impl<B> Service<Request<B>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Response::new("hello".to_owned())))
    }
}

/// Returns a request to `path` from the address `peer`, with these headers.
pub(crate) fn request(path: &str, peer: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    if !peer.is_empty() {
        request.extensions_mut().insert(SocketAddr::new(peer.parse().unwrap(), 4711));
    }
    request
}

/// Sends a request, and returns the status, the headers and the body of the response.
pub(crate) async fn send<A: Admit, I: Identify>(
    service: &mut AdmissionService<Hello, A, I>,
    request: Request<()>,
) -> (u16, HeaderMap, String) {
    let (head, body) = service.call(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// Sends requests one after another, and returns the statuses of the responses.
pub(crate) async fn statuses<A: Admit, I: Identify>(
    service: &mut AdmissionService<Hello, A, I>,
    requests: impl IntoIterator<Item = Request<()>>,
) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(send(service, request).await.0);
    }
    statuses
}

/// Collects the errors that this thread logs, until it is dropped.
pub(crate) struct ErrorLog {
    lines: Arc<Mutex<Vec<String>>>,
    _capturing: DefaultGuard,
}

impl ErrorLog {
    pub(crate) fn capture() -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        Self { _capturing: set_default(ErrorSubscriber(Arc::clone(&lines))), lines }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

struct ErrorSubscriber(Arc<Mutex<Vec<String>>>);

impl Subscriber for ErrorSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        write!(self.0, "{field}={value} ").unwrap();
    }
}
