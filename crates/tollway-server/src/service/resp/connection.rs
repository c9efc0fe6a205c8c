//! The state that one client's connection keeps between its commands.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use tollway_wire::resp::RespVersion;

use crate::caller::{Authenticator, Caller};
use crate::tokens::KnownToken;

/// The number of the next connection, in the whole process.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// The state that one client's connection keeps between its commands.
#[derive(Debug)]
pub(crate) struct RespConnection {
    pub(super) id: i64,
    pub(super) version: RespVersion,
    /// The address that the connection came from; `None` if it is not one over a network.
    peer: Option<IpAddr>,
    /// The name that the certificate of the client gives it.
    certificate: Option<Arc<str>>,
    /// The token that the client has logged in with.
    pub(super) token: Option<Arc<KnownToken>>,
    /// The name that the client gave it.
    pub(super) name: Option<Box<[u8]>>,
    /// The commands since `MULTI`; `None` outside of a transaction.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The transaction whose replies are being sent. What comes after it has to wait.
    pub(super) executing: Option<Box<Transaction>>,
}

/// The commands of a transaction, as they arrived.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The time of `MULTI`.
    began: Instant,
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
    /// The number of bytes whose commands are executed.
    pub(super) executed: usize,
    /// True if a command was refused, so that none is executed.
    pub(super) is_aborted: bool,
}

impl Transaction {
    pub(super) const fn new(began: Instant) -> Self {
        Self { began, bytes: Vec::new(), commands: 0, executed: 0, is_aborted: false }
    }

    /// Notes that a command was refused. The others will not be executed, so they need no memory.
    pub(super) fn abort(&mut self) {
        *self = Self { is_aborted: true, ..Self::new(self.began) };
    }
}

impl RespConnection {
    pub(crate) fn new(peer: Option<IpAddr>) -> Self {
        Self::with_id(NEXT_ID.fetch_add(1, Ordering::Relaxed), peer)
    }

    fn with_id(id: i64, peer: Option<IpAddr>) -> Self {
        let version = RespVersion::default();
        let (certificate, token, name) = (None, None, None);
        Self { id, version, peer, certificate, token, name, transaction: None, executing: None }
    }

    /// Sets the name that the certificate of the client gives it.
    pub(crate) fn set_certificate(&mut self, name: Arc<str>) {
        self.certificate = Some(name);
    }

    /// Returns the client behind the connection, who has logged in if the gate asks for that.
    #[inline]
    pub(super) fn caller(&self, auth: &Authenticator) -> Caller<'_> {
        let caller = auth.known_caller(self.peer, self.token.as_ref().map(|token| token.grant()));
        caller.with_certificate(self.certificate.as_deref())
    }

    /// Returns whether a transaction has begun and not ended.
    pub(super) const fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns the time at which the transaction began, if the connection is in one.
    pub(crate) fn transaction_began(&self) -> Option<Instant> {
        self.transaction.as_ref().map(|transaction| transaction.began)
    }

    /// Makes the connection as it was at its start.
    pub(super) fn reset(&mut self) {
        *self = Self { certificate: self.certificate.take(), ..Self::with_id(self.id, self.peer) };
    }

    pub(super) fn set_name(&mut self, name: &[u8]) {
        self.name = (!name.is_empty()).then(|| name.into());
    }
}
