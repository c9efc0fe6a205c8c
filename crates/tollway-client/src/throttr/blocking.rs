//! The blocking Throttr client: each call returns when its replies have arrived. It needs no runtime.
//!
//! ```no_run
//! use std::time::Duration;
//! use tollway_client::throttr::QuotaRequest;
//! use tollway_client::throttr::blocking::Client;
//!
//! let client = Client::new("127.0.0.1:9000")?;
//! let inserted = client.insert("alice", "/downloads", 100, Duration::from_secs(3600))?;
//! assert!(inserted.is_done(), "alice has no quota yet");
//! let requests = [QuotaRequest::query("alice", "/downloads"), QuotaRequest::purge("bob", "/downloads")];
//! assert_eq!(client.pipeline(&requests)?.len(), 2);
//! # Ok::<(), tollway_client::ClientError>(())
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tollway_core::algorithm::Change;
use tollway_wire::throttr::ThrottrReply;

use super::request::{ExpectedReply, quota_info, quota_status};
use super::{
    DEFAULT_PORT, DEFAULT_TIMEOUT, IN_FLIGHT_MAX, QuotaAttribute, QuotaInfo, QuotaRequest, QuotaStatus,
};
use crate::address::host_and_port;
use crate::blocking_tcp::BlockingConnection;
use crate::idle::IdleConnections;
use crate::{ClientError, InvalidAddress, InvalidThrottrReply, TIMEOUT_MAX};

/// A client of one server whose calls block the thread. Clones share the connections, and any number of threads may use
/// it, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    timeout: Duration,
    next_id: AtomicU32,
    idle: IdleConnections<BlockingConnection>,
}

impl Client {
    /// Creates a client of the server at `address`: `HOST`, or `HOST:PORT` if the port is not
    /// [`DEFAULT_PORT`]. No connection is opened yet.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        Self::with_timeout(address, DEFAULT_TIMEOUT)
    }

    /// Creates a client whose calls take at most `timeout`, connecting included, and never more than a day. The time to
    /// resolve a name is not included: the system does not let it be limited.
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, InvalidAddress> {
        let shared = Shared {
            address: host_and_port(address, DEFAULT_PORT)?,
            timeout: timeout.min(TIMEOUT_MAX),
            next_id: AtomicU32::new(0),
            idle: IdleConnections::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the address of the server: its host and port.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Makes a quota. It is not done if a live one exists, unless the server has `on_insert: reset`.
    pub fn insert(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        quota: u64,
        ttl: Duration,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::insert(&consumer, &resource, quota, ttl)).map(quota_status)
    }

    /// Returns what is left of a quota, if it is live.
    pub fn query(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<Option<QuotaInfo>, ClientError> {
        self.call(QuotaRequest::query(&consumer, &resource)).map(quota_info)
    }

    /// Changes a quota. It is not done if there is no live one. The unit of `value` is described at [`QuotaAttribute`].
    pub fn update(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        attribute: QuotaAttribute,
        change: Change,
        value: u64,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::update(&consumer, &resource, attribute, change, value)).map(quota_status)
    }

    /// Deletes a quota. It is not done if there is no live one.
    pub fn purge(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<QuotaStatus, ClientError> {
        self.call(QuotaRequest::purge(&consumer, &resource)).map(quota_status)
    }

    /// Sends one request and returns its reply.
    pub fn call(&self, request: QuotaRequest<'_>) -> Result<ThrottrReply, ClientError> {
        let replies = self.pipeline(&[request])?;
        Ok(replies[0])
    }

    /// Sends all of the requests, up to [`IN_FLIGHT_MAX`] in one write, and returns a reply to each. It is one call
    /// with one timeout, and fails unless every reply arrives.
    pub fn pipeline(&self, requests: &[QuotaRequest<'_>]) -> Result<Vec<ThrottrReply>, ClientError> {
        let deadline = Instant::now() + self.shared.timeout;
        requests.iter().try_for_each(QuotaRequest::check)?;
        let mut replies = Vec::with_capacity(requests.len());
        if requests.is_empty() {
            return Ok(replies);
        }
        let Shared { address, timeout, idle, .. } = &*self.shared;
        let mut connection = match idle.take(BlockingConnection::is_alive) {
            Some(connection) => connection,
            None => BlockingConnection::open(address, *timeout, deadline)?,
        };
        for batch in requests.chunks(IN_FLIGHT_MAX) {
            self.exchange(&mut connection, batch, deadline, &mut replies)?;
        }
        // Kept only if all went well: on a connection that failed, the next reply could be to any request.
        idle.put(connection);
        Ok(replies)
    }

    fn exchange(
        &self,
        connection: &mut BlockingConnection,
        batch: &[QuotaRequest<'_>],
        deadline: Instant,
        replies: &mut Vec<ThrottrReply>,
    ) -> Result<(), ClientError> {
        let Shared { address, timeout, next_id, .. } = &*self.shared;
        let failed = |error| ClientError::exchanging(address, *timeout, error);
        let invalid = |reply: InvalidThrottrReply| ClientError::InvalidResponse {
            address: address.clone(),
            source: reply.into(),
        };
        let mut outbox = Vec::new();
        let encode =
            |request: &QuotaRequest<'_>| request.encode(next_id.fetch_add(1, Ordering::Relaxed), &mut outbox);
        let expected: Vec<ExpectedReply> = batch.iter().map(encode).collect::<Result<_, _>>()?;
        connection.write(&outbox, deadline).map_err(failed)?;
        let (mut inbox, mut start) = (Vec::new(), 0);
        let mut expected = expected.iter();
        while let Some(next) = expected.as_slice().first() {
            if let Some((reply, len)) = next.decode(&inbox[start..]).map_err(invalid)? {
                replies.push(reply);
                start += len;
                expected.next();
                continue;
            }
            inbox.drain(..std::mem::take(&mut start));
            connection.read(&mut inbox, deadline).map_err(failed)?;
        }
        if start < inbox.len() { Err(invalid(InvalidThrottrReply::Unrequested)) } else { Ok(()) }
    }
}
