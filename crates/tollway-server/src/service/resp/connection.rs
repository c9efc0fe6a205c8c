//! The state that one client's connection keeps between its commands.

use std::sync::atomic::{AtomicI64, Ordering};

use tollway_wire::resp::RespVersion;

/// The number of the next connection, in the whole process.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// The state that one client's connection keeps between its commands.
#[derive(Debug)]
pub(crate) struct RespConnection {
    pub(super) id: i64,
    pub(super) version: RespVersion,
    /// The name that the client gave it.
    pub(super) name: Option<Box<[u8]>>,
    /// The commands since `MULTI`; `None` outside of a transaction.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The transaction whose replies are being sent. What comes after it has to wait.
    pub(super) executing: Option<Box<Transaction>>,
}

/// The commands of a transaction, as they arrived.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
    /// The number of bytes whose commands are executed.
    pub(super) executed: usize,
    /// True if a command was refused, so that none is executed.
    pub(super) is_aborted: bool,
}

impl RespConnection {
    pub(crate) fn new() -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self::with_id(id)
    }

    fn with_id(id: i64) -> Self {
        Self { id, version: RespVersion::default(), name: None, transaction: None, executing: None }
    }

    /// Returns whether a transaction has begun and not ended.
    pub(crate) const fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Makes the connection as it was at its start.
    pub(super) fn reset(&mut self) {
        *self = Self::with_id(self.id);
    }

    pub(super) fn set_name(&mut self, name: &[u8]) {
        self.name = (!name.is_empty()).then(|| name.into());
    }
}
