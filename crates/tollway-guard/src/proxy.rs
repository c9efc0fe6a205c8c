//! The tower service behind the admission layer: forwards a request to the upstream.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::time::timeout;
use tollway_tower::{Rejection, RequestHead};
use tower_service::Service;
use tracing::{debug, warn};

use crate::body::{UploadBody, UploadProgress, UploadStage, UpstreamBody};
use crate::connection::Connection;
use crate::guard::Shared;
use crate::headers;
use crate::permits::Permit;
use crate::pool::ForwardError;
use crate::stall_timer::StallTimer;
use crate::upstream::Protocol;

type Forwarded = Result<Response<UpstreamBody>, ForwardError>;

/// Forwards the requests of one client.
#[derive(Clone)]
pub(crate) struct Proxy(pub(crate) Arc<Connection>);

impl Service<Request<Incoming>> for Proxy {
    type Response = Response<UpstreamBody>;
    type Error = ForwardError;
    type Future = Pin<Box<dyn Future<Output = Forwarded> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.forward(request).await })
    }
}

/// Maps a failure to the response that the client gets, and logs and counts those of the upstream.
pub(crate) fn rejection_of(error: &ForwardError, shared: &Shared) -> Rejection {
    let (status, message) = match error {
        ForwardError::SlowClient => {
            return Rejection::new(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive\n");
        }
        ForwardError::BrokenRequest => {
            return Rejection::new(StatusCode::BAD_REQUEST, "the request ended too early\n");
        }
        ForwardError::TimedOut { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time\n")
        }
        _ => (StatusCode::BAD_GATEWAY, "the upstream did not answer\n"),
    };
    if let Some(held_back) = shared.metrics.upstream_failed() {
        let error: &(dyn std::error::Error + 'static) = error;
        warn!(error, status = status.as_u16(), held_back, "no response of the upstream");
    }
    Rejection::new(status, message)
}

impl Proxy {
    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Forwarded {
        let requested = headers::upgrade(request.headers());
        let client = requested.is_some().then(|| hyper::upgrade::on(&mut request));
        let request = self.readdress(request, requested);
        let mut response = match request.body().progress() {
            None => {
                let sent = timeout(self.shared().settings.upstream_timeout, self.0.pool.send(request)).await;
                sent.unwrap_or_else(|_| Err(self.timed_out()))?
            }
            Some(upload) => self.upload(&upload, self.0.pool.send(request)).await?,
        };
        let granted = headers::upgrade(response.headers());
        headers::remove_hop_by_hop(response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some(client), Some(protocol)) = (client, granted) else {
                let upstream = self.shared().settings.upstream.clone();
                return Err(ForwardError::UnrequestedUpgrade { upstream });
            };
            headers::set_upgrade(response.headers_mut(), protocol);
            let permit = Arc::clone(&self.0.permit);
            tokio::spawn(tunnel(client, hyper::upgrade::on(&mut response), permit));
        }
        Ok(response)
    }

    /// Awaits the response to a request with a body.
    ///
    /// The client is timed while more of the body is due from it, and the upstream at all other times.
    async fn upload(&self, upload: &UploadProgress, sent: impl Future<Output = Forwarded>) -> Forwarded {
        let (mut client, mut upstream) =
            StallTimer::pair(self.shared().client_stall(), self.shared().upstream_stall());
        let mut sent = pin!(sent);
        let uploaded = poll_fn(|cx| {
            if let Poll::Ready(sent) = sent.as_mut().poll(cx) {
                return Poll::Ready(sent);
            }
            if upload.stage() == UploadStage::Client {
                upstream.stop();
                return client.poll_stalled(cx, upload.moved()).map(|()| Err(ForwardError::SlowClient));
            }
            client.stop();
            upstream.poll_stalled(cx, upload.moved()).map(|()| Err(self.timed_out()))
        })
        .await;
        let is_broken = upload.stage() == UploadStage::Broken;
        uploaded.map_err(|error| if is_broken { ForwardError::BrokenRequest } else { error })
    }

    fn timed_out(&self) -> ForwardError {
        ForwardError::TimedOut { upstream: self.shared().settings.upstream.clone() }
    }

    /// Makes the request that the upstream gets.
    fn readdress(&self, request: Request<Incoming>, upgrade: Option<HeaderValue>) -> Request<UploadBody> {
        let (address, peer) = (&self.shared().address, self.0.peer.ip().to_canonical());
        let head = RequestHead::new(&request);
        let (client, from_proxy) =
            (address.client_address(head).unwrap_or(peer), address.is_from_proxy(head));
        let (mut parts, body) = request.into_parts();
        headers::remove_hop_by_hop(&mut parts.headers);
        headers::set_forwarded(&mut parts.headers, peer, client, from_proxy);
        headers::set_host(&mut parts.headers, &parts.uri);
        if let Some(protocol) = upgrade {
            headers::set_upgrade(&mut parts.headers, protocol);
        }
        let upstream = &self.shared().settings.upstream;
        let (uri, version) = match upstream.protocol {
            Protocol::Http1 | Protocol::Https => {
                headers::complete_http1(&mut parts.headers, &body.size_hint(), &upstream.authority);
                (origin_form(parts.uri), Version::HTTP_11)
            }
            Protocol::Http2 => {
                let host = parts.headers.remove(HOST);
                (absolute_form(parts.uri, host, &upstream.authority), Version::HTTP_2)
            }
        };
        let mut request = Request::new(UploadBody::new(body));
        *request.method_mut() = parts.method;
        *request.headers_mut() = parts.headers;
        (*request.uri_mut(), *request.version_mut()) = (uri, version);
        request
    }
}

/// Returns the path alone, which HTTP/1.1 servers expect.
fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    uri.into_parts().path_and_query.map_or_else(|| Uri::from_static("/"), Uri::from)
}

/// Returns the URI with the host, which HTTP/2 has there and nowhere else.
fn absolute_form(uri: Uri, host: Option<HeaderValue>, upstream: &Authority) -> Uri {
    let mut parts = uri.into_parts();
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(host.unwrap_or_else(|| upstream.clone()));
    // `OPTIONS *` has no path.
    parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    Uri::from_parts(parts).expect("a URI with all its parts is valid")
}

/// Copies bytes both ways after an upgrade. The connection keeps its permit until the tunnel ends.
async fn tunnel(client: OnUpgrade, upstream: OnUpgrade, _permit: Arc<Permit>) {
    match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => {
            // Either side may end a tunnel at any time.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await;
        }
        Err(error) => debug!(%error, "upgrade failed"),
    }
}
