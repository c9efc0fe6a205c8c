//! Keeps open connections that no call uses at the moment.

use std::sync::{Mutex, PoisonError};

/// The most connections that are kept. A burst of calls may open more, and those are closed after it.
pub(crate) const IDLE_MAX: usize = 64;

/// A stack of connections: the one used last is reused first, so that the others age and the server can close them.
#[derive(Debug)]
pub(crate) struct IdleConnections<T>(Mutex<Vec<T>>);

impl<T> IdleConnections<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Takes the connection used last that `is_alive` accepts, and closes those that it does not accept.
    pub(crate) fn take(&self, is_alive: impl Fn(&T) -> bool) -> Option<T> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if is_alive(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection on which no response is due.
    pub(crate) fn put(&self, connection: T) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}
