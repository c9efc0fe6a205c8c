//! One request: who is it, may it pass, and what does the upstream say?

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::{Request, Response, StatusCode, Version};
use tokio::time::timeout;
use tollway_client::gatekeeper::{Admission, Gatekeeper};
use tollway_tower::{RequestHead, user_agent};
use tracing::debug;

use super::body::{Answer, Question, Stage, Upload};
use super::headers;
use super::metrics::Metrics;
use super::pace::{Pace, Patience};
use super::places::{Place, Places};
use super::pool::{Pool, SendError};
use super::refusal::refusal;
use super::tunnel;
use super::upstream::{Speaks, Upstream};
use super::who::Who;

type Sent = Result<Response<Answer>, SendError>;

/// What all workers have in common.
pub(super) struct Settings {
    pub(super) gatekeeper: Gatekeeper,
    pub(super) who: Who,
    pub(super) upstream: Upstream,
    pub(super) timeout: Duration,
    pub(super) metrics: Arc<Metrics>,
    /// For so many as may be connected.
    pub(super) places: Arc<Places>,
    /// How long a client may be silent.
    pub(super) patience: Duration,
}

impl Settings {
    /// With clients, of which others may need the place.
    pub(super) fn patience(&self) -> Patience {
        Patience { lasts: self.patience, places: Some(Arc::clone(&self.places)) }
    }
}

/// One client's connection.
pub(super) struct Client {
    settings: Arc<Settings>,
    pool: Arc<Pool>,
    peer: SocketAddr,
    /// Kept as long as the connection is open, also after an upgrade.
    place: Arc<Place>,
    /// How many requests are under way.
    requests: AtomicUsize,
    /// How many there ever were.
    begun: AtomicU64,
}

/// A request that is under way, until its answer is.
pub(super) struct Busy {
    client: Arc<Client>,
    /// The first has that of the connection.
    _place: Option<Place>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.client.requests.fetch_sub(1, Ordering::Relaxed);
        self.client.settings.metrics.open_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    pub(super) fn new(settings: Arc<Settings>, pool: Arc<Pool>, peer: SocketAddr, place: Place) -> Arc<Self> {
        let (requests, begun) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Self { settings, pool, peer, place: Arc::new(place), requests, begun })
    }

    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// How many requests there were so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Answers one request, if there was room for it. To drop this, as happens when the client hangs up, gives up its place.
    pub(super) async fn answer(&self, busy: Option<Busy>, request: Request<Incoming>) -> Response<Answer> {
        let Some(busy) = busy else {
            return rejection("too many requests at the same time; retry later\n", Duration::from_secs(1));
        };
        let mut response = self.respond(request).await;
        response.body_mut().until_its_end(busy);
        response
    }

    /// One request more is under way. With HTTP/2 a connection may have many, and each but the first takes as much as a
    /// connection does.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Busy> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let others = self.requests.fetch_add(1, Ordering::Relaxed);
        self.settings.metrics.open_requests.fetch_add(1, Ordering::Relaxed);
        let place = (others > 0).then(|| self.settings.places.try_take());
        let busy = Busy { client: Arc::clone(self), _place: place.flatten() };
        (others == 0 || busy._place.is_some()).then_some(busy)
    }

    async fn respond(&self, mut request: Request<Incoming>) -> Response<Answer> {
        if let Some((status, text)) = refusal(&request) {
            return ours(status, text);
        }
        request.extensions_mut().insert(self.peer);
        if let Some(rejection) = self.admit(&request).await {
            return rejection;
        }
        match self.pass(request).await {
            Ok(response) => response,
            Err(error) => self.excuse(&error),
        }
    }

    fn excuse(&self, error: &SendError) -> Response<Answer> {
        debug!(error = error as &dyn std::error::Error, "request failed");
        match error {
            SendError::SlowClient => {
                return ours(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive\n");
            }
            SendError::BrokenRequest => {
                return ours(StatusCode::BAD_REQUEST, "the request ended too early\n");
            }
            _ => {}
        }
        self.settings.metrics.upstream_failures.fetch_add(1, Ordering::Relaxed);
        match error {
            SendError::TimedOut { .. } => {
                ours(StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time\n")
            }
            _ => ours(StatusCode::BAD_GATEWAY, "the upstream did not answer\n"),
        }
    }

    /// Waits as long as it must; what it returns is the end of the request.
    async fn admit(&self, request: &Request<Incoming>) -> Option<Response<Answer>> {
        let identifier = self.settings.who.identify(request)?;
        let log_info = user_agent(RequestHead::new(request));
        match self.settings.gatekeeper.admit_with(identifier, log_info).await {
            Admission::Rejected { retry_after, .. } => {
                Some(rejection("too many requests; retry later\n", retry_after))
            }
            _ => None,
        }
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Answer>, SendError> {
        let wanted = headers::upgrade(request.headers());
        let client = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
        let request = self.readdress(request, wanted);
        let mut response = match request.body().upload() {
            None => self.answered(self.pool.send(request)).await?,
            Some(upload) => self.attended(&upload, self.pool.send(request)).await?,
        };
        let became = headers::upgrade(response.headers());
        headers::end_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(protocol)) = (client, became) else {
                return Err(SendError::UnaskedUpgrade { upstream: self.settings.upstream.to_string() });
            };
            headers::ask_upgrade(response.headers_mut(), protocol);
            tunnel::dig(client, hyper::upgrade::on(&mut response), Arc::clone(&self.place));
        }
        Ok(response)
    }

    async fn answered(&self, sent: impl Future<Output = Sent>) -> Sent {
        timeout(self.settings.timeout, sent).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// The upstream has its time when the client has sent all, and while it does not take what is there.
    async fn attended(&self, upload: &Upload, sent: impl Future<Output = Sent>) -> Sent {
        let patience = Patience { lasts: self.settings.timeout, places: None };
        let (mut client, mut upstream) = Pace::both(self.settings.patience(), patience);
        let mut sent = pin!(sent);
        let attended = poll_fn(|context| {
            if let Poll::Ready(sent) = sent.as_mut().poll(context) {
                return Poll::Ready(sent);
            }
            if upload.stage() == Stage::Client {
                upstream.rest();
                return client.poll_too_slow(context, upload.moved()).map(|()| Err(SendError::SlowClient));
            }
            client.rest();
            upstream.poll_too_slow(context, upload.moved()).map(|()| Err(self.timed_out()))
        })
        .await;
        attended
            .map_err(|error| if upload.stage() == Stage::Broken { SendError::BrokenRequest } else { error })
    }

    fn timed_out(&self) -> SendError {
        SendError::TimedOut { upstream: self.settings.upstream.to_string() }
    }

    /// The same request, from us to the upstream.
    fn readdress(&self, request: Request<Incoming>, upgrade: Option<HeaderValue>) -> Request<Question> {
        let (mut parts, body) = request.into_parts();
        headers::end_hop(&mut parts.headers);
        headers::forward(&mut parts.headers, &parts.uri, self.peer);
        if let Some(protocol) = upgrade {
            headers::ask_upgrade(&mut parts.headers, protocol);
        }
        let (uri, version) = match self.settings.upstream.speaks {
            Speaks::Http1 => {
                headers::complete(&mut parts.headers, &body.size_hint(), &self.settings.upstream);
                (origin_form(parts.uri), Version::HTTP_11)
            }
            Speaks::Http2 => (self.absolute_form(parts.uri, parts.headers.remove(HOST)), Version::HTTP_2),
        };
        let mut request = Request::new(Question::new(body));
        *request.method_mut() = parts.method;
        *request.headers_mut() = parts.headers;
        (*request.uri_mut(), *request.version_mut()) = (uri, version);
        request
    }

    /// HTTP/2 says the host there, and nowhere else.
    fn absolute_form(&self, uri: Uri, host: Option<HeaderValue>) -> Uri {
        let mut parts = uri.into_parts();
        let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(host.unwrap_or_else(|| self.settings.upstream.authority.clone()));
        // An OPTIONS of everything has no path.
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
        Uri::from_parts(parts).expect("an address with all its parts")
    }
}

/// The path alone, as servers expect it.
fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    uri.into_parts().path_and_query.map_or_else(|| Uri::from_static("/"), Uri::from)
}

fn rejection(text: &'static str, retry_after: Duration) -> Response<Answer> {
    let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
    let mut response = ours(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

fn ours(status: StatusCode, text: &'static str) -> Response<Answer> {
    let mut response = Response::new(Answer::ours(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
