//! The client for programs on tokio: one connection, shared by all callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};
use tollway_core::algorithm::Change;
use tollway_wire::throttr::ThrottrReply;

use super::connection::{CloseReason, PendingCall, ThrottrConnection};
use super::request::{quota_info, succeeded};
use super::{IN_FLIGHT_MAX, QuotaAttribute, QuotaInfo, QuotaRequest};
use crate::{ClientError, TIMEOUT, TIMEOUT_MAX};

/// A client of one server for programs on tokio, over a connection that is opened when it is needed. Clones share the
/// connection, and any number of tasks may use it: requests that they make together are sent together.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    timeout: Duration,
    /// The permits to be in flight. More calls wait for their turn, within their timeout.
    permits: Arc<Semaphore>,
    connection: Mutex<Option<Arc<ThrottrConnection>>>,
}

impl Client {
    /// Creates a client of the server at `address`, a host and a port. No connection is opened yet.
    pub fn new(address: &str) -> Self {
        Self::with_timeout(address, TIMEOUT)
    }

    /// Creates a client whose calls take at most `timeout`, connecting included, and never more than a day.
    pub fn with_timeout(address: &str, timeout: Duration) -> Self {
        let shared = Shared {
            address: address.to_owned(),
            timeout: timeout.min(TIMEOUT_MAX),
            permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            connection: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the address of the server, a host and a port.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Makes a quota. Returns false, and changes nothing, if there is a live one (unless the server has
    /// `on_insert: reset`).
    pub async fn insert(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        quota: u64,
        ttl: Duration,
    ) -> Result<bool, ClientError> {
        self.call(QuotaRequest::insert(&consumer, &resource, quota, ttl)).await.map(succeeded)
    }

    /// Returns what is left of a quota, if it is live.
    pub async fn query(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<Option<QuotaInfo>, ClientError> {
        self.call(QuotaRequest::query(&consumer, &resource)).await.map(quota_info)
    }

    /// Changes a quota. Returns false if there is no live one. A time is in the unit that the quota was made with.
    pub async fn update(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        attribute: QuotaAttribute,
        change: Change,
        value: u64,
    ) -> Result<bool, ClientError> {
        self.call(QuotaRequest::update(&consumer, &resource, attribute, change, value)).await.map(succeeded)
    }

    /// Deletes a quota. Returns false if there was no live one.
    pub async fn purge(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<bool, ClientError> {
        self.call(QuotaRequest::purge(&consumer, &resource)).await.map(succeeded)
    }

    /// Sends one request and returns its reply.
    pub async fn call(&self, request: QuotaRequest<'_>) -> Result<ThrottrReply, ClientError> {
        let replies = self.pipeline(&[request]).await?;
        Ok(replies[0])
    }

    /// Sends all of the requests without waiting for a reply in between, and returns a reply to each. It is one call
    /// with one timeout, and fails unless every reply arrives.
    pub async fn pipeline(&self, requests: &[QuotaRequest<'_>]) -> Result<Vec<ThrottrReply>, ClientError> {
        requests.iter().try_for_each(QuotaRequest::check)?;
        let deadline = Instant::now() + self.shared.timeout;
        let timed_out =
            || ClientError::TimedOut { address: self.shared.address.clone(), timeout: self.shared.timeout };
        let mut pending = Pending { connection: None, calls: Vec::with_capacity(requests.len()) };
        let sent = timeout_at(deadline, self.shared.send(requests, &mut pending)).await;
        let mut replies = Vec::with_capacity(requests.len());
        let Pending { connection, calls } = pending;
        for PendingCall { reply, sent_at } in calls {
            match timeout_at(deadline, reply).await {
                Ok(Ok(Ok(reply))) => replies.push(reply),
                Ok(Ok(Err(reason))) => return Err(self.shared.error(reason)),
                Ok(Err(_)) => return Err(self.shared.error(CloseReason::Closed { kind: None })),
                Err(_) => {
                    if let Some(connection) = connection {
                        connection.close_if_silent_since(sent_at);
                    }
                    return Err(timed_out());
                }
            }
        }
        sent.map_err(|_| timed_out())??;
        Ok(replies)
    }
}

/// The requests of a call that are in flight, all on one connection.
struct Pending {
    connection: Option<Arc<ThrottrConnection>>,
    calls: Vec<PendingCall>,
}

impl Shared {
    /// Sends the requests in order, and stops if the connection ends before the last: those after a lost request must
    /// not be carried out as though it had been.
    async fn send(&self, requests: &[QuotaRequest<'_>], pending: &mut Pending) -> Result<(), ClientError> {
        let closed = || self.error(CloseReason::Closed { kind: None });
        for request in requests {
            let mut permit = Some(Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?);
            loop {
                let connection = match &pending.connection {
                    Some(connection) => connection,
                    None => pending.connection.insert(self.connection().await?),
                };
                if let Some(call) = connection.send(request, &mut permit)? {
                    pending.calls.push(call);
                    break;
                }
                // The connection has ended. Before the first request, another one will do.
                if !pending.calls.is_empty() {
                    return Err(closed());
                }
                pending.connection = None;
            }
        }
        Ok(())
    }

    async fn connection(&self) -> Result<Arc<ThrottrConnection>, ClientError> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| open.is_open()) {
            return Ok(Arc::clone(open));
        }
        let connecting = |error| ClientError::connecting(&self.address, self.timeout, error);
        let stream = TcpStream::connect(&self.address).await.map_err(connecting)?;
        stream.set_nodelay(true).map_err(connecting)?;
        Ok(Arc::clone(connection.insert(Arc::new(ThrottrConnection::new(stream)))))
    }

    fn error(&self, reason: CloseReason) -> ClientError {
        let address = self.address.clone();
        match reason {
            CloseReason::Closed { kind } => {
                ClientError::Disconnected { address, source: kind.map(Into::into) }
            }
            CloseReason::InvalidReply(invalid) => {
                ClientError::InvalidResponse { address, source: invalid.into() }
            }
        }
    }
}
