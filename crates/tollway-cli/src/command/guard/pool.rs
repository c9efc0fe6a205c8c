//! Connections to the upstream. Each worker has its own, so nobody waits for another's.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body::{Answer, Question, Stage, Upload};
use super::bounds::{ASK_AFTER, ASKED_MAX, CONNECT_MAX, IDLE_MAX};
use super::pace::Patience;
use super::patient::Patient;
use super::sockets;
use super::upstream::{Speaks, Upstream};

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum SendError {
    #[error("upstream {upstream} is unreachable")]
    Unreachable { upstream: String, source: io::Error },
    #[error("upstream {upstream} did not answer in time")]
    TimedOut { upstream: String },
    #[error("upstream {upstream} closed the connection")]
    Broken { upstream: String, source: hyper::Error },
    #[error("upstream {upstream} switched to a protocol that was not requested")]
    UnaskedUpgrade { upstream: String },
    #[error("the client did not send its request in time")]
    SlowClient,
    #[error("the client closed the connection in the middle of its request")]
    BrokenRequest,
}

pub(super) struct Pool {
    upstream: Upstream,
    /// How long it may do nothing with what it is sent, and say nothing of what it announced.
    patience: Patience,
    idle: Mutex<Vec<http1::SendRequest<Question>>>,
    shared: Mutex<Option<http2::SendRequest<Question>>>,
}

/// A connection while it is in use.
pub(super) struct Lease {
    pool: Arc<Pool>,
    sender: http1::SendRequest<Question>,
    upload: Option<Arc<Upload>>,
}

impl Lease {
    /// Others may use it, if the whole request went out.
    pub(super) fn give_back(self) {
        let all_sent = self.upload.is_none_or(|upload| upload.stage() == Stage::Sent);
        if all_sent && !self.sender.is_closed() {
            let mut idle = lock(&self.pool.idle);
            if idle.len() < IDLE_MAX {
                idle.push(self.sender);
            }
        }
    }
}

impl Pool {
    pub(super) fn new(upstream: Upstream, timeout: Duration) -> Arc<Self> {
        let patience = Patience { lasts: timeout, places: None };
        Arc::new(Self { upstream, patience, idle: Mutex::default(), shared: Mutex::default() })
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Question>,
    ) -> Result<Response<Answer>, SendError> {
        match self.upstream.speaks {
            Speaks::Http1 => self.send_alone(request).await,
            Speaks::Http2 => self.send_shared(request).await,
        }
    }

    /// Over a connection that is nobody else's until the answer is over.
    async fn send_alone(
        self: &Arc<Self>,
        mut request: Request<Question>,
    ) -> Result<Response<Answer>, SendError> {
        let upload = request.body().upload();
        while let Some(mut sender) = self.take_idle() {
            // It may have been closed while nobody used it.
            if sender.ready().await.is_err() {
                continue;
            }
            let again = copy(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(self.leased(response, sender, upload)),
                Err(mut error) => match error.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(error.into_error())),
                },
            }
        }
        let mut sender = self.connect_alone().await?;
        let response = sender.send_request(request).await.map_err(|error| self.broken(error))?;
        Ok(self.leased(response, sender, upload))
    }

    fn leased(
        self: &Arc<Self>,
        response: Response<hyper::body::Incoming>,
        sender: http1::SendRequest<Question>,
        upload: Option<Arc<Upload>>,
    ) -> Response<Answer> {
        let lease = Lease { pool: Arc::clone(self), sender, upload };
        response.map(|body| Answer::passed(body, Some(lease), &self.patience))
    }

    fn take_idle(&self) -> Option<http1::SendRequest<Question>> {
        lock(&self.idle).pop()
    }

    async fn connect_alone(&self) -> Result<http1::SendRequest<Question>, SendError> {
        let stream = TokioIo::new(self.connect().await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(|error| self.broken(error))?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// Over the one connection that all use.
    async fn send_shared(&self, request: Request<Question>) -> Result<Response<Answer>, SendError> {
        let open = lock(&self.shared).clone();
        let mut sender = match open.filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect_shared().await?,
        };
        sender.ready().await.map_err(|error| self.broken(error))?;
        let response = sender.send_request(request).await.map_err(|error| self.broken(error))?;
        Ok(response.map(|body| Answer::passed(body, None, &self.patience)))
    }

    async fn connect_shared(&self) -> Result<http2::SendRequest<Question>, SendError> {
        let stream = TokioIo::new(self.connect().await?);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // One that no longer answers is given up, and another takes its place.
        builder.timer(TokioTimer::new()).keep_alive_interval(ASK_AFTER).keep_alive_timeout(ASKED_MAX);
        let handshake = builder.adaptive_window(true).handshake(stream);
        let (sender, connection) = handshake.await.map_err(|error| self.broken(error))?;
        tokio::spawn(connection);
        *lock(&self.shared) = Some(sender.clone());
        Ok(sender)
    }

    async fn connect(&self) -> Result<Patient<TcpStream>, SendError> {
        let unreachable = |source| SendError::Unreachable { upstream: self.upstream.to_string(), source };
        let connecting = timeout(CONNECT_MAX, TcpStream::connect(self.upstream.authority.as_str()));
        let stream = connecting.await.map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?;
        let stream = stream.map_err(unreachable)?;
        sockets::prepare(&stream).map_err(unreachable)?;
        Ok(Patient::new(stream, self.patience.clone()))
    }

    fn broken(&self, source: hyper::Error) -> SendError {
        SendError::Broken { upstream: self.upstream.to_string(), source }
    }
}

/// An upstream may close a connection in the very moment in which it is used again, and nobody knows whether it saw the request.
/// What changes nothing may be sent once more.
fn copy(request: &Request<Question>) -> Option<Request<Question>> {
    let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !changes_nothing || request.body().upload().is_some() {
        return None;
    }
    let mut copy = Request::new(Question::default());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
