//! Serves the connections of proxies: HTTP/2, and the calls inside of it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Cursor;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::timeout;
use tollway::block_on;
use tollway_wire::http::{TraceParent, bearer_token};
use tollway_wire::rls;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tower_service::Service as TowerService;

use super::framing::{self, AnswerBody};
use crate::caller::{AccessDenied, Authenticator, Caller};
use crate::gate::limit::ConnectionPermit;
use crate::gate::stream::GateStream;
use crate::gate::tcp::ServeConnection;
use crate::service::RlsError;
use crate::tokens::{Grant, KnownToken, Scope};
use crate::worker::Worker;

/// The bytes that begin every HTTP/2 connection.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The answer to every call if the server echoes: OK, with a status and headers, as long as an ordinary answer.
const ECHO: &[u8] = b"\x08\x01\
    \x12\x17\x08\x01\x12\x08\x08\x80\xd0\xac\xf3\x0e\x10\x03\x18\xff\xcf\xac\xf3\x0e\x22\x03\x08\x90\x1c\
    \x1a\x38\x0a\x10RateLimit-Policy\x12\x24\"envoy/web/user\";q=4000000000;w=3600\
    \x1a\x31\x0a\x09RateLimit\x12\x24\"envoy/web/user\";r=3999999999;t=3600";

type Called = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A service beside the rate limit service.
struct OtherService {
    /// The beginning of the paths of its methods.
    path: String,
    /// The scope that its methods need, if they need a token.
    needs: Option<Scope>,
    call: Box<dyn Fn(Request<Incoming>) -> Called + Send + Sync>,
}

/// Serves the connections of one worker.
pub(super) struct RlsConnections {
    services: Arc<Services>,
}

/// The services that a call can name.
struct Services {
    worker: Arc<Worker>,
    auth: Authenticator,
    /// The services for health and reflection.
    others: Vec<OtherService>,
}

impl RlsConnections {
    pub(super) fn new(
        worker: Arc<Worker>,
        auth: Authenticator,
        health: HealthServer<HealthService>,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let messages = rls::file_descriptor_set();
        let message_max = worker.bounds().rls_message;
        let v1 = reflection().register_encoded_file_descriptor_set(&messages).build_v1()?;
        let v1alpha = reflection().register_encoded_file_descriptor_set(&messages).build_v1alpha()?;
        let others = vec![
            // Orchestrators ask for health, and have no token.
            other(health.max_decoding_message_size(message_max), None),
            other(v1.max_decoding_message_size(message_max), Some(Scope::Read)),
            other(v1alpha.max_decoding_message_size(message_max), Some(Scope::Read)),
        ];
        Ok(Self { services: Arc::new(Services { worker, auth, others }) })
    }
}

/// Returns a service as [`Services::others`] has it.
fn other<S>(service: S, needs: Option<Scope>) -> OtherService
where
    S: NamedService
        + TowerService<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let call = move |request| -> Called {
        let called = service.clone().call(request);
        Box::pin(async { called.await.unwrap_or_else(|never| match never {}) })
    };
    OtherService { path: format!("/{}/", S::NAME), needs, call: Box::new(call) }
}

impl ServeConnection for RlsConnections {
    const ENDLESS: bool = false;

    fn serve(
        &self,
        stream: GateStream,
        peer: IpAddr,
        permit: ConnectionPermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve(stream, peer, permit, Arc::clone(&self.services))
    }
}

/// Serves one connection until one side ends it, or until its calls are answered after a drain began or after one of
/// them did not arrive in time.
async fn serve(mut stream: GateStream, peer: IpAddr, permit: ConnectionPermit, services: Arc<Services>) {
    let worker = Arc::clone(&services.worker);
    let bounds = *worker.bounds();
    let certificate = stream.certificate_name();
    let mut preface = [0; PREFACE.len()];
    // hyper waits for these bytes for ever, and so would everybody who opens a connection and sends nothing.
    match timeout(bounds.head_time, stream.read_exact(&mut preface)).await {
        Ok(Ok(_)) if preface == PREFACE => {}
        // It speaks something else, or hung up, as the checks of load balancers do.
        Ok(_) => return,
        Err(_) => return worker.metrics.cut_head.one(),
    }
    let (reader, writer) = tokio::io::split(stream);
    let stream = TokioIo::new(tokio::io::join(Cursor::new(preface).chain(reader), writer));
    let calls = Arc::new(ConnectionCalls::new(peer, certificate, permit));
    let call = service_fn(|request| {
        let (services, in_flight) = (Arc::clone(&services), InFlight::new(&calls));
        let method = services.method(request, &calls);
        async move { Ok::<_, Infallible>(services.call(method, in_flight).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.rls_streams)
        .max_header_list_size(u32::try_from(bounds.rls_head).unwrap_or(u32::MAX))
        .initial_stream_window_size(u32::try_from(bounds.rls_message).unwrap_or(u32::MAX))
        .initial_connection_window_size(bounds.rls_window)
        .keep_alive_interval(bounds.idle)
        .keep_alive_timeout(bounds.write_time);
    let mut serving = pin!(builder.serve_connection(stream, call));
    // An error is the end of the connection: the proxy opens another.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = worker.drain.clone().started() => {}
        () = calls.stalled.notified() => {}
    }
    serving.as_mut().graceful_shutdown();
    // A peer that does not answer GOAWAY would stay connected, and hold up a drain.
    while timeout(bounds.drain_idle, serving.as_mut()).await.is_err()
        && calls.in_flight.load(Ordering::Relaxed) > 0
    {}
}

/// A connection, and the number of its calls that are not answered.
struct ConnectionCalls {
    peer: IpAddr,
    /// The name that the certificate of the client gives it.
    certificate: Option<Arc<str>>,
    /// The token that the last call had.
    token: Mutex<Option<Arc<KnownToken>>>,
    permit: ConnectionPermit,
    in_flight: AtomicUsize,
    /// The number of its calls of the services for health and reflection whose answers have not ended.
    others: AtomicUsize,
    /// It is notified if a call does not arrive in time. A peer that sent one half call after another would keep the
    /// connection busy, and so from being closed, for ever.
    stalled: Notify,
}

impl ConnectionCalls {
    fn new(peer: IpAddr, certificate: Option<Arc<str>>, permit: ConnectionPermit) -> Self {
        let (token, stalled) = (Mutex::default(), Notify::new());
        let (in_flight, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { peer, certificate, token, permit, in_flight, others, stalled }
    }

    /// Returns the client that made a call, whose token allows this.
    fn caller<'c>(&'c self, auth: &Authenticator, grant: Option<&'c Arc<Grant>>) -> Caller<'c> {
        auth.known_caller(Some(self.peer), grant).with_certificate(self.certificate.as_deref())
    }
}

/// Marks a connection as busy until the call is answered or dropped: a full gate closes only idle connections.
struct InFlight(Arc<ConnectionCalls>);

impl InFlight {
    fn new(calls: &Arc<ConnectionCalls>) -> Self {
        if calls.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            calls.permit.set_busy();
        }
        Self(Arc::clone(calls))
    }

    /// Ends the connection of a call that did not arrive in time, and returns the status of the call.
    fn stall(&self) -> Status {
        self.0.stalled.notify_one();
        Status::deadline_exceeded("the request did not arrive")
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.permit.set_idle(Instant::now());
        }
    }
}

/// Counts a call of the services for health and reflection until its answer has ended: that of a call that watches
/// something never does, needs no token, and keeps buffers of its own.
pub(super) struct OtherCall(Arc<ConnectionCalls>);

impl OtherCall {
    /// Counts a call, unless the connection has as many as it may.
    fn new(calls: &Arc<ConnectionCalls>, max: usize) -> Option<Self> {
        let call = Self(Arc::clone(calls));
        (calls.others.fetch_add(1, Ordering::Relaxed) < max).then_some(call)
    }
}

impl Drop for OtherCall {
    fn drop(&mut self) {
        self.0.others.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A method that is called. It has only what the call needs of the request, which is long: hyper and tokio move the
/// future of a call several times.
enum Method {
    /// The message, the token of the call, and the span of the client that it belongs to.
    ShouldRateLimit(Incoming, Option<Arc<KnownToken>>, Option<TraceParent>),
    Other(Called, OtherCall),
    /// A call that is answered with this, whatever its message is.
    Refused(Status),
}

impl Services {
    fn method(&self, request: Request<Incoming>, calls: &Arc<ConnectionCalls>) -> Method {
        let path = request.uri().path();
        if path == rls::SHOULD_RATE_LIMIT {
            return match self.token(request.headers(), calls, Scope::Decide) {
                Ok(token) => {
                    let trace = self.trace_parent(request.headers());
                    Method::ShouldRateLimit(request.into_body(), token, trace)
                }
                Err(denied) => Method::Refused(status_of(&denied, &self.worker)),
            };
        }
        let Some(other) = self.others.iter().find(|other| path.starts_with(&other.path)) else {
            return Method::Refused(Status::unimplemented(format!("there is no method {path}")));
        };
        let needed = other.needs.map(|scope| self.token(request.headers(), calls, scope));
        if let Some(Err(denied)) = needed {
            return Method::Refused(status_of(&denied, &self.worker));
        }
        match OtherCall::new(calls, self.worker.bounds().rls_other_calls) {
            Some(counted) => Method::Other((other.call)(request), counted),
            None => Method::Refused(Status::resource_exhausted(
                "the connection has too many calls for health and reflection whose answers have not ended",
            )),
        }
    }

    /// Returns the token of a call, if it has a scope; `None` if the gate asks for no token.
    fn token(
        &self,
        headers: &HeaderMap,
        calls: &ConnectionCalls,
        scope: Scope,
    ) -> Result<Option<Arc<KnownToken>>, AccessDenied> {
        let Some(tokens) = self.auth.tokens() else { return Ok(None) };
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        let token = match (sent.next(), sent.next()) {
            (Some(only), None) => bearer_token(only.as_bytes()),
            _ => None,
        };
        let token = token.ok_or(AccessDenied::NoToken)?;
        let mut known = calls.token.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.grant(token, &mut known);
        with_scope(known.clone(), scope).map(Some)
    }

    /// Returns the span of the client that a call belongs to, if decisions have spans.
    fn trace_parent(&self, headers: &HeaderMap) -> Option<TraceParent> {
        self.worker.shared.spans.as_ref()?;
        let mut sent = headers.get_all("traceparent").iter();
        match (sent.next(), sent.next()) {
            (Some(only), None) => TraceParent::parse(only.as_bytes()),
            _ => None,
        }
    }

    async fn call(&self, method: Method, in_flight: InFlight) -> Response<AnswerBody> {
        match method {
            Method::ShouldRateLimit(body, token, trace) => {
                framing::response(self.should_rate_limit(body, token, trace, in_flight).await)
            }
            Method::Other(called, counted) => {
                // These answer as soon as their message is there, also those whose answer goes on.
                match timeout(self.worker.bounds().body_time, called).await {
                    Ok(response) => response.map(|body| AnswerBody::Other { body, _counted: counted }),
                    Err(_) => in_flight.stall().into_http().map(AnswerBody::Error),
                }
            }
            Method::Refused(status) => status.into_http().map(AnswerBody::Error),
        }
    }

    async fn should_rate_limit(
        &self,
        body: Incoming,
        mut token: Option<Arc<KnownToken>>,
        trace: Option<TraceParent>,
        in_flight: InFlight,
    ) -> Result<Bytes, Status> {
        let bounds = self.worker.bounds();
        // Decisions go on after their streams are reset, so that the bound of streams does not bound them.
        if in_flight.0.in_flight.load(Ordering::Relaxed) > bounds.rls_decisions {
            return Err(Status::resource_exhausted("too many calls were reset and are not decided"));
        }
        let mut reading = pin!(framing::read_message(body, bounds.rls_message));
        // Nearly all messages have arrived with the headers of their call, and need no timer.
        let message = match poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
            Poll::Ready(message) => message?,
            // A proxy that sends half a message would otherwise keep its place for ever. The decision is not timed: the
            // store has a deadline of its own.
            Poll::Pending => match timeout(bounds.body_time, reading).await {
                Ok(message) => message?,
                Err(_) => return Err(in_flight.stall()),
            },
        };
        if let Some(tokens) = self.auth.tokens() {
            // It may have been removed while the message arrived.
            tokens.renew(&mut token);
            token =
                Some(with_scope(token, Scope::Decide).map_err(|denied| status_of(&denied, &self.worker))?);
        }
        let grant = token.map(|token| Arc::clone(token.grant()));
        if !self.worker.awaits_store() {
            // The memory store answers at once. Awaited, the decision would be a part of the future of the call, which
            // hyper and tokio move several times, and would be copied each time.
            let caller = in_flight.0.caller(&self.auth, grant.as_ref()).with_trace(trace);
            return block_on(answer(&self.worker, &caller, &message));
        }
        let (worker, auth) = (Arc::clone(&self.worker), self.auth.clone());
        // hyper drops the future of a stream that is reset. A bill that was taken in one slot of a cluster and denied
        // in another would then never be undone, so the decision is a task of its own.
        let answered = tokio::spawn(async move {
            let caller = in_flight.0.caller(&auth, grant.as_ref()).with_trace(trace);
            let answered = answer(&worker, &caller, &message).await;
            drop(in_flight);
            answered
        });
        answered.await.unwrap_or_else(|_| Err(Status::internal("the decision panicked")))
    }
}

/// Returns a token that was found, if it has a scope.
fn with_scope(found: Option<Arc<KnownToken>>, scope: Scope) -> Result<Arc<KnownToken>, AccessDenied> {
    let token = found.ok_or(AccessDenied::UnknownToken)?;
    if token.grant().includes(scope) { Ok(token) } else { Err(AccessDenied::MissingScope(scope)) }
}

/// Returns the status of a call that its client may not make, and counts it.
fn status_of(denied: &AccessDenied, worker: &Worker) -> Status {
    worker.service.count_denied(denied);
    match denied {
        AccessDenied::NoToken => {
            Status::unauthenticated("a token is needed; send the metadata \"authorization: Bearer TOKEN\"")
        }
        AccessDenied::UnknownToken => Status::unauthenticated(denied.to_string()),
        AccessDenied::MissingScope(_) | AccessDenied::OtherLimits(_) | AccessDenied::AllLimits => {
            Status::permission_denied(denied.to_string())
        }
    }
}

async fn answer(worker: &Worker, caller: &Caller<'_>, message: &[u8]) -> Result<Bytes, Status> {
    let counters = &worker.metrics.rls;
    if worker.shared.echo {
        return Ok(framing::message(|out| out.extend_from_slice(ECHO)));
    }
    let arrived = Instant::now();
    let invalid = |error: &dyn std::error::Error| {
        counters.invalid.one();
        Status::invalid_argument(error.to_string())
    };
    let request = rls::decode(message).map_err(|error| invalid(&error))?;
    let policy = worker.service.policy();
    let answered = worker.service.should_rate_limit(caller, &policy, &request, |response| {
        let counter = if response.over_limit { &counters.over_limit } else { &counters.ok };
        counter.one();
        framing::message(|out| rls::encode(response, out))
    });
    let answered = answered.await.map_err(|error| match error {
        RlsError::Unavailable => {
            counters.unavailable.one();
            Status::unavailable(error.to_string())
        }
        RlsError::Denied(denied) => status_of(&denied, worker),
        error => invalid(&error),
    });
    worker.metrics.latency.record(arrived.elapsed());
    answered
}
