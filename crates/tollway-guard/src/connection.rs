//! Serves one client connection until it ends, is idle for too long, makes room for another, or the proxy drains.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tollway_tower::{AdmissionService, Admit, Rejection, ResponseBody, grpc_content_type};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{ClientBody, UpstreamBody};
use crate::bounds::{CLOSE_MAX, SLOW_RATE};
use crate::guard::{Identification, Shared};
use crate::permits::Permit;
use crate::pool::Pool;
use crate::proxy::{Proxy, rejection_of};
use crate::request_check;
use crate::timed_stream::TimedStream;
use crate::worker::Server;

const TOO_MANY_STREAMS: Rejection =
    Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests at the same time\n")
        .retry_after(Some(Duration::from_secs(1)));

/// The connection that one client opened.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) peer: SocketAddr,
    /// Held as long as the connection is open, also after an upgrade.
    pub(crate) permit: Arc<Permit>,
    /// The number of requests in flight.
    open_requests: AtomicUsize,
    /// The number of requests so far.
    requests: AtomicU64,
}

/// A request in flight, until its response has ended.
pub(crate) struct OpenRequest {
    connection: Arc<Connection>,
    /// The permit of a further request; the first has that of the connection.
    _permit: Option<Permit>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.connection.open_requests.fetch_sub(1, Ordering::Relaxed);
        self.connection.shared.metrics.request_ended();
    }
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, pool: Arc<Pool>, peer: SocketAddr, permit: Permit) -> Arc<Self> {
        let (open_requests, requests) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self { shared, pool, peer, permit: Arc::new(permit), open_requests, requests })
    }

    /// Serves the connection to its end.
    pub(crate) async fn serve(
        self: Arc<Self>,
        server: Server,
        stream: TcpStream,
        mut draining: watch::Receiver<bool>,
    ) {
        let shared = &self.shared;
        let stream = TimedStream::new(stream, shared.client_stall());
        let mut idle = IdleTimer::new(shared.settings.client_timeout, stream.written());
        let admission = shared.layer.layer(Proxy(Arc::clone(&self)));
        let service = service_fn(|request| {
            // Before anything is awaited: a request that was not polled yet is in flight, too.
            let (open, this, admission) = (self.open_request(), Arc::clone(&self), admission.clone());
            async move {
                let response = match &open {
                    Some(_) => this.respond(admission, request).await,
                    None => reject(TOO_MANY_STREAMS, &request),
                };
                Ok::<_, Infallible>(response.map(|body| ClientBody::new(body, open)))
            }
        });
        let mut serving = pin!(server.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut wanted = pin!(None);
        let ended_or_idle = poll_fn(|cx| {
            // How a client ends its connection does not matter.
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let is_idle = self.open_requests.load(Ordering::Relaxed) == 0;
            if idle.is_new_request(self.requests.load(Ordering::Relaxed)) || !is_idle {
                wanted.set(None);
                idle.stop();
            }
            if !is_idle {
                return Poll::Pending;
            }
            if wanted.is_none() {
                wanted.set(Some(shared.permits.wanted()));
            }
            let is_wanted = wanted.as_mut().as_pin_mut().is_some_and(|wanted| wanted.poll(cx).is_ready());
            if is_wanted { Poll::Ready(false) } else { idle.poll_expired(cx).map(|()| false) }
        });
        let (has_ended, close_max) = tokio::select! {
            has_ended = ended_or_idle => (has_ended, CLOSE_MAX),
            _ = draining.wait_for(|draining| *draining) => (false, Duration::MAX),
        };
        if !has_ended {
            serving.as_mut().graceful_shutdown();
            // A request that was on its way is answered.
            while timeout(close_max, serving.as_mut()).await.is_err()
                && self.open_requests.load(Ordering::Relaxed) > 0
            {}
        }
    }

    /// Counts one more request in flight. On an HTTP/2 connection each further one needs a permit, like a connection.
    fn open_request(self: &Arc<Self>) -> Option<OpenRequest> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let others = self.open_requests.fetch_add(1, Ordering::Relaxed);
        self.shared.metrics.request_began();
        let permit = (others > 0).then(|| self.shared.permits.try_acquire()).flatten();
        let open = OpenRequest { connection: Arc::clone(self), _permit: permit };
        (others == 0 || open._permit.is_some()).then_some(open)
    }

    /// Returns the response of the upstream, or a rejection. The client withdraws its request by dropping this.
    async fn respond(
        &self,
        mut admission: AdmissionService<Proxy, Arc<dyn Admit>, Identification>,
        mut request: Request<Incoming>,
    ) -> Response<ResponseBody<UpstreamBody>> {
        if let Err(rejection) = request_check::check(&request) {
            return reject(rejection, &request);
        }
        request.extensions_mut().insert(self.peer);
        let grpc_type = grpc_content_type(request.headers()).cloned();
        admission.call(request).await.unwrap_or_else(|error| {
            rejection_of(&error, &self.shared).response(grpc_type.as_ref()).map(ResponseBody::from)
        })
    }
}

fn reject<B>(rejection: Rejection, request: &Request<Incoming>) -> Response<ResponseBody<B>> {
    rejection.response(grpc_content_type(request.headers())).map(ResponseBody::from)
}

/// Measures how long a client has had no request in flight.
struct IdleTimer {
    timeout: Duration,
    since: Option<Instant>,
    /// The number of requests at the last look.
    requests: u64,
    timer: Pin<Box<Sleep>>,
    written: Arc<AtomicU64>,
    written_before: u64,
}

impl IdleTimer {
    fn new(timeout: Duration, written: Arc<AtomicU64>) -> Self {
        let timer = Box::pin(sleep(timeout));
        Self { timeout, since: None, requests: 0, timer, written, written_before: 0 }
    }

    /// Returns true if a request came since the last look. It may have been answered already.
    fn is_new_request(&mut self, requests: u64) -> bool {
        std::mem::replace(&mut self.requests, requests) != requests
    }

    fn start(&mut self) -> Instant {
        self.written_before = self.written.load(Ordering::Relaxed);
        *self.since.insert(Instant::now())
    }

    fn stop(&mut self) {
        self.since = None;
    }

    /// Returns ready when the client was idle for too long.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = match self.since {
            Some(since) => since,
            None => self.start(),
        };
        loop {
            // The timer is moved only when it expires: a busy client would move it with every request.
            ready!(self.timer.as_mut().poll(cx));
            let end = since + self.timeout;
            if Instant::now() < end {
                self.timer.as_mut().reset(end);
            } else if self.is_still_reading() {
                self.timer.as_mut().reset(Instant::now() + self.timeout);
            } else {
                return Poll::Ready(());
            }
        }
    }

    /// Returns true if the client still takes the end of a long response. Pings of HTTP/2 do not count.
    fn is_still_reading(&mut self) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        let more = written - std::mem::replace(&mut self.written_before, written);
        more as f64 >= SLOW_RATE as f64 * self.timeout.as_secs_f64()
    }
}
