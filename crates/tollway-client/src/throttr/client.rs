//! The client for programs on tokio: one connection, shared by whoever asks.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};
use tollway_core::algorithm::Change;
use tollway_wire::throttr::ThrottrReply;

use super::call::{done, found};
use super::connection::{Asked, Connection, End};
use super::{Attribute, CallError, IN_FLIGHT_MAX, Quota, Request, TIMEOUT, TIMEOUT_MAX};

/// Asks one server, over a connection that is opened when it is needed. Clones share it, and any number of tasks may ask
/// at a time: what they ask together is sent together.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    timeout: Duration,
    /// As many as may be in flight; further calls wait for their turn, and not longer than for a reply.
    turns: Arc<Semaphore>,
    open: Mutex<Option<Arc<Connection>>>,
}

impl Client {
    /// A client of the server at this address, a host and a port.
    pub fn new(address: impl Into<String>) -> Self {
        Self::with_timeout(address, TIMEOUT)
    }

    /// A client whose calls take this long at most, connecting included, and a day at the very most.
    pub fn with_timeout(address: impl Into<String>, timeout: Duration) -> Self {
        let shared = Shared {
            address: address.into(),
            timeout: timeout.min(TIMEOUT_MAX),
            turns: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            open: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes a quota. False, and nothing changed, if there is a live one (and the server is not told to start over).
    pub async fn insert(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        quota: u64,
        ttl: Duration,
    ) -> Result<bool, CallError> {
        self.call(Request::insert(&consumer, &resource, quota, ttl)).await.map(done)
    }

    /// What is left of a quota, if it is live.
    pub async fn query(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<Option<Quota>, CallError> {
        self.call(Request::query(&consumer, &resource)).await.map(found)
    }

    /// Changes a quota. False if there is no live one. A time is in the unit that the quota was made with.
    pub async fn update(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        attribute: Attribute,
        change: Change,
        value: u64,
    ) -> Result<bool, CallError> {
        self.call(Request::update(&consumer, &resource, attribute, change, value)).await.map(done)
    }

    /// Forgets a quota. False if there was no live one.
    pub async fn purge(
        &self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<bool, CallError> {
        self.call(Request::purge(&consumer, &resource)).await.map(done)
    }

    /// Asks this.
    pub async fn call(&self, request: Request<'_>) -> Result<ThrottrReply, CallError> {
        request.fits()?;
        let deadline = Instant::now() + self.shared.timeout;
        let late =
            || CallError::TimedOut { address: self.shared.address.clone(), waited: self.shared.timeout };
        let (open, asked) = timeout_at(deadline, self.shared.ask(request)).await.map_err(|_| late())??;
        match timeout_at(deadline, asked.reply).await {
            Ok(Ok(reply)) => reply.map_err(|end| self.shared.explain(end)),
            Ok(Err(_)) => Err(self.shared.explain(End::HungUp { kind: None })),
            Err(_) => {
                open.end_if_silent_since(asked.at);
                Err(late())
            }
        }
    }
}

impl Shared {
    /// Puts a request on its way, over a new connection if there is none.
    async fn ask(&self, request: Request<'_>) -> Result<(Arc<Connection>, Asked), CallError> {
        let closed = |_| self.explain(End::HungUp { kind: None });
        let mut turn = Some(Arc::clone(&self.turns).acquire_owned().await.map_err(closed)?);
        loop {
            let open = self.connection().await?;
            // It may have ended since; then nothing was sent.
            if let Some(asked) = open.ask(&request, &mut turn)? {
                return Ok((open, asked));
            }
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        let unreachable = |source| CallError::Unreachable { address: self.address.clone(), source };
        let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(Arc::clone(open.insert(Arc::new(Connection::over(stream)))))
    }

    fn explain(&self, end: End) -> CallError {
        let address = self.address.clone();
        match end {
            End::HungUp { kind } => CallError::HungUp { address, source: kind.map(Into::into) },
            End::Misunderstood(source) => CallError::Misunderstood { address, source },
        }
    }
}
