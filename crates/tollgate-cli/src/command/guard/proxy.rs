//! One request: who is it, may it pass, and what does the upstream say?

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tollgate_client::gatekeeper::{Admission, Gatekeeper};
use tracing::debug;

use super::body::{Answer, Question};
use super::headers;
use super::metrics::Metrics;
use super::pool::{Pool, SendError};
use super::tunnel;
use super::upstream::{Speaks, Upstream};
use super::who::Who;

/// What all workers have in common.
pub(super) struct Settings {
    pub(super) gatekeeper: Gatekeeper,
    pub(super) who: Who,
    pub(super) upstream: Upstream,
    pub(super) timeout: Duration,
    pub(super) metrics: Arc<Metrics>,
    /// As many as may be connected.
    pub(super) clients: Arc<Semaphore>,
}

/// One client's connection.
pub(super) struct Client {
    pub(super) settings: Arc<Settings>,
    pub(super) pool: Arc<Pool>,
    pub(super) peer: SocketAddr,
    /// Held as long as the connection is open, whatever it has become.
    pub(super) place: Arc<OwnedSemaphorePermit>,
}

impl Client {
    /// Answers one request. To drop this, as happens when the client hangs up, gives up its place.
    pub(super) async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Response<Answer> {
        if request.method() == Method::CONNECT {
            return ours(StatusCode::METHOD_NOT_ALLOWED, "this is no forward proxy\n");
        }
        request.extensions_mut().insert(self.peer);
        if let Some(rejection) = self.admit(&request).await {
            return rejection;
        }
        match self.pass(request).await {
            Ok(response) => response,
            Err(error) => {
                self.settings.metrics.upstream_failures.fetch_add(1, Ordering::Relaxed);
                debug!(error = &error as &dyn std::error::Error, "no answer");
                match error {
                    SendError::TimedOut { .. } => {
                        ours(StatusCode::GATEWAY_TIMEOUT, "the upstream is too slow\n")
                    }
                    _ => ours(StatusCode::BAD_GATEWAY, "the upstream gave no answer\n"),
                }
            }
        }
    }

    /// Waits as long as it must; what it returns is the end of the request.
    async fn admit(&self, request: &Request<Incoming>) -> Option<Response<Answer>> {
        let identifier = self.settings.who.identify(request)?;
        let log_info = request.headers().get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
        match self.settings.gatekeeper.admit_with(identifier, log_info).await {
            Admission::Rejected { retry_after, .. } => Some(rejection(retry_after)),
            _ => None,
        }
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Answer>, SendError> {
        let wanted = headers::upgrade(request.headers());
        let client = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
        let request = self.readdress(request, wanted);
        let upstream = || self.settings.upstream.to_string();
        let answered = timeout(self.settings.timeout, self.pool.send(request)).await;
        let mut response = answered.map_err(|_| SendError::TimedOut { upstream: upstream() })??;
        let became = headers::upgrade(response.headers());
        headers::end_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let (Some(client), Some(protocol)) = (client, became)
        {
            headers::ask_upgrade(response.headers_mut(), protocol);
            tunnel::dig(client, hyper::upgrade::on(&mut response), Arc::clone(&self.place));
        }
        Ok(response)
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
            Speaks::Http1 => (origin_form(parts.uri), Version::HTTP_11),
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

fn rejection(retry_after: Duration) -> Response<Answer> {
    let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
    let mut response = ours(StatusCode::SERVICE_UNAVAILABLE, "too many requests: come again later\n");
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

fn ours(status: StatusCode, text: &'static str) -> Response<Answer> {
    let mut response = Response::new(Answer::Ours(Some(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
