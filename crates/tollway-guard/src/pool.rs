//! Keeps connections to the upstream. Each worker has its own, so that no worker waits for another.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::body::{UploadBody, UploadProgress, UploadStage, UpstreamBody};
use crate::bounds::{CONNECT_MAX, IDLE_MAX, PING_AFTER, PONG_MAX};
use crate::guard::Shared;
use crate::socket;
use crate::timed_stream::TimedStream;
use crate::upstream::{Protocol, Upstream};

/// The reasons why a request has no response of the upstream.
#[derive(Debug, Error)]
pub(crate) enum ForwardError {
    #[error("upstream {upstream} is unreachable")]
    Unreachable { upstream: Upstream, source: io::Error },
    #[error("upstream {upstream} did not answer in time")]
    TimedOut { upstream: Upstream },
    #[error("upstream {upstream} closed the connection")]
    Disconnected { upstream: Upstream, source: hyper::Error },
    #[error("upstream {upstream} switched to a protocol that was not requested")]
    UnrequestedUpgrade { upstream: Upstream },
    #[error("the client did not send its request in time")]
    SlowClient,
    #[error("the client closed the connection in the middle of its request")]
    BrokenRequest,
}

/// Keeps the connections that one worker has opened to the upstream.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    idle: Mutex<Vec<http1::SendRequest<UploadBody>>>,
    /// The one HTTP/2 connection, which all requests share.
    http2: Mutex<Option<http2::SendRequest<UploadBody>>>,
}

/// An HTTP/1.1 connection while a request uses it.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    sender: http1::SendRequest<UploadBody>,
    upload: Option<Arc<UploadProgress>>,
}

impl Lease {
    /// Lets other requests use the connection, if the whole request was sent on it.
    pub(crate) fn return_to_pool(self) {
        let all_sent = self.upload.is_none_or(|upload| upload.stage() == UploadStage::Sent);
        if all_sent && !self.sender.is_closed() {
            let mut idle = lock(&self.pool.idle);
            if idle.len() < IDLE_MAX {
                idle.push(self.sender);
            }
        }
    }
}

impl Pool {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, idle: Mutex::default(), http2: Mutex::default() })
    }

    /// Sends a request, and returns the response as soon as its head has come.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<UploadBody>,
    ) -> Result<Response<UpstreamBody>, ForwardError> {
        match self.upstream().protocol {
            Protocol::Http1 | Protocol::Https => self.send_http1(request).await,
            Protocol::Http2 => self.send_http2(request).await,
        }
    }

    fn upstream(&self) -> &Upstream {
        &self.shared.settings.upstream
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<UploadBody>,
    ) -> Result<Response<UpstreamBody>, ForwardError> {
        let upload = request.body().progress();
        while let Some(mut sender) = self.take_idle() {
            // The upstream may have closed it meanwhile.
            if sender.ready().await.is_err() {
                continue;
            }
            let again = repeatable(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.lease(response, sender, upload)),
                Err(mut error) => match error.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(self.disconnected(error.into_error())),
                },
            }
        }
        let mut sender = self.connect_http1().await?;
        let response = sender.send_request(request).await.map_err(|error| self.disconnected(error))?;
        Ok(self.lease(response, sender, upload))
    }

    fn lease(
        self: &Arc<Self>,
        response: Response<hyper::body::Incoming>,
        sender: http1::SendRequest<UploadBody>,
        upload: Option<Arc<UploadProgress>>,
    ) -> Response<UpstreamBody> {
        let lease = Lease { pool: Arc::clone(self), sender, upload };
        response.map(|body| UpstreamBody::new(body, Some(lease), &self.shared.upstream_stall()))
    }

    fn take_idle(&self) -> Option<http1::SendRequest<UploadBody>> {
        lock(&self.idle).pop()
    }

    async fn connect_http1(&self) -> Result<http1::SendRequest<UploadBody>, ForwardError> {
        let unreachable = |source| ForwardError::Unreachable { upstream: self.upstream().clone(), source };
        let connect = async {
            let stream = self.connect().await?;
            let Some(tls) = &self.shared.tls else { return Ok(self.handshake_http1(stream).await) };
            let name = ServerName::try_from(self.upstream().host().to_owned()).map_err(io::Error::other)?;
            io::Result::Ok(self.handshake_http1(tls.connect(name, stream).await?).await)
        };
        let connected =
            timeout(CONNECT_MAX, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(unreachable)?
    }

    async fn handshake_http1<S>(&self, stream: S) -> Result<http1::SendRequest<UploadBody>, ForwardError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(TimedStream::new(stream, self.shared.upstream_stall()));
        let handshake = http1::handshake(stream).await;
        let (sender, connection) = handshake.map_err(|error| self.disconnected(error))?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    async fn send_http2(&self, request: Request<UploadBody>) -> Result<Response<UpstreamBody>, ForwardError> {
        let open = lock(&self.http2).clone();
        let mut sender = match open.filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect_http2().await?,
        };
        sender.ready().await.map_err(|error| self.disconnected(error))?;
        let response = sender.send_request(request).await.map_err(|error| self.disconnected(error))?;
        Ok(response.map(|body| UpstreamBody::new(body, None, &self.shared.upstream_stall())))
    }

    async fn connect_http2(&self) -> Result<http2::SendRequest<UploadBody>, ForwardError> {
        let connected = timeout(CONNECT_MAX, self.connect()).await;
        let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream
            .map_err(|source| ForwardError::Unreachable { upstream: self.upstream().clone(), source })?;
        let stream = TokioIo::new(TimedStream::new(stream, self.shared.upstream_stall()));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // A connection that no longer answers is closed, and another takes its place.
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_AFTER).keep_alive_timeout(PONG_MAX);
        let handshake = builder.adaptive_window(true).handshake(stream);
        let (sender, connection) = handshake.await.map_err(|error| self.disconnected(error))?;
        tokio::spawn(connection);
        *lock(&self.http2) = Some(sender.clone());
        Ok(sender)
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.upstream().authority.as_str()).await?;
        socket::configure(&stream)?;
        Ok(stream)
    }

    fn disconnected(&self, source: hyper::Error) -> ForwardError {
        ForwardError::Disconnected { upstream: self.upstream().clone(), source }
    }
}

/// Copies a request that changes nothing and has no body: it may be sent once more.
///
/// An upstream may close a kept connection in the moment in which it is used, and nobody knows whether it saw the
/// request.
fn repeatable(request: &Request<UploadBody>) -> Option<Request<UploadBody>> {
    let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !changes_nothing || request.body().progress().is_some() {
        return None;
    }
    let mut copy = Request::new(UploadBody::default());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is locked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
