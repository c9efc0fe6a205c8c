//! The client for programs on tokio: one connection, shared by all callers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};
use tollway_core::algorithm::Change;
use tollway_wire::throttr::ThrottrReply;

use super::connection::{CloseReason, PendingCall, ThrottrConnection};
use super::request::{quota_info, quota_status};
use super::{
    DEFAULT_PORT, DEFAULT_TIMEOUT, IN_FLIGHT_MAX, QuotaAttribute, QuotaInfo, QuotaRequest, QuotaStatus,
};
use crate::address::host_and_port;
use crate::connect::connect;
use crate::{ClientError, InvalidAddress, TIMEOUT_MAX};

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
    /// Creates a client of the server at `address`: `HOST`, or `HOST:PORT` if the port is not
    /// [`DEFAULT_PORT`](super::DEFAULT_PORT). No connection is opened yet.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        Self::with_timeout(address, DEFAULT_TIMEOUT)
    }

    /// Creates a client whose calls take at most `timeout`, connecting included, and never more than a day.
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, InvalidAddress> {
        let shared = Shared {
            address: host_and_port(address, DEFAULT_PORT)?,
            timeout: timeout.min(TIMEOUT_MAX),
            permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            connection: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the address of the server: its host and port.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Makes a quota. It is not done if a live one exists, unless the server has `on_insert: reset`.
    pub async fn insert(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        quota: u64,
        ttl: Duration,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::insert(&consumer, &resource, quota, ttl)).await.map(quota_status)
    }

    /// Returns what is left of a quota, if it is live.
    pub async fn query(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<Option<QuotaInfo>, ClientError> {
        self.call(QuotaRequest::query(&consumer, &resource)).await.map(quota_info)
    }

    /// Changes a quota. It is not done if there is no live one. The unit of `value` is described at [`QuotaAttribute`].
    pub async fn update(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        attribute: QuotaAttribute,
        change: Change,
        value: u64,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::update(&consumer, &resource, attribute, change, value))
            .await
            .map(quota_status)
    }

    /// Deletes a quota. It is not done if there is no live one.
    pub async fn purge(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::purge(&consumer, &resource)).await.map(quota_status)
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
        let mut pending = Pending { connection: None, calls: Vec::with_capacity(requests.len()) };
        let sent = self.shared.send(requests, &mut pending, deadline).await;
        let mut replies = Vec::with_capacity(requests.len());
        let Pending { connection, calls } = pending;
        for PendingCall { reply, sent_at } in calls {
            match timeout_at(deadline, reply).await {
                Ok(Ok(Ok(reply))) => replies.push(reply),
                Ok(Ok(Err(reason))) => return Err(self.shared.error(reason)),
                Ok(Err(_)) => return Err(self.shared.error(CloseReason::CLOSED)),
                Err(_) => {
                    if let Some(connection) = connection {
                        connection.close_if_silent_since(sent_at);
                    }
                    return Err(self.shared.timed_out());
                }
            }
        }
        sent?;
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
    async fn send(
        &self,
        requests: &[QuotaRequest<'_>],
        pending: &mut Pending,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let closed = || self.error(CloseReason::CLOSED);
        for request in requests {
            let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
            let mut permit = Some(permit.map_err(|_| self.timed_out())?.map_err(|_| closed())?);
            loop {
                let connection = match &pending.connection {
                    Some(connection) => connection,
                    None => pending.connection.insert(self.connection(deadline).await?),
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

    async fn connection(&self, deadline: Instant) -> Result<Arc<ThrottrConnection>, ClientError> {
        // While another caller connects, this one waits for the same connection.
        let timed_out =
            |_| ClientError::connecting(&self.address, self.timeout, io::ErrorKind::TimedOut.into());
        let mut connection = timeout_at(deadline, self.connection.lock()).await.map_err(timed_out)?;
        if let Some(open) = connection.as_ref().filter(|open| open.is_open()) {
            return Ok(Arc::clone(open));
        }
        let stream = connect(&self.address, self.timeout, deadline).await?;
        Ok(Arc::clone(connection.insert(Arc::new(ThrottrConnection::new(stream)))))
    }

    fn timed_out(&self) -> ClientError {
        ClientError::TimedOut { address: self.address.clone(), timeout: self.timeout }
    }

    fn error(&self, reason: CloseReason) -> ClientError {
        let address = self.address.clone();
        match reason {
            CloseReason::Closed { error } => {
                let source = error.map(|error| io::Error::new(error.kind(), error));
                ClientError::Disconnected { address, source }
            }
            CloseReason::InvalidReply(invalid) => {
                ClientError::InvalidResponse { address, source: invalid.into() }
            }
        }
    }
}
