//! An engine that a forked process replaces by one of its own.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tollway::Clock;
use tollway::config::StoreUrl;
use tollway::core::{ErrorChain, Policy};
use tollway::engine::Engine;
use tollway::store::Store;
use tollway::store::memory::MemoryBounds;

/// The engine of this process.
pub(crate) struct ProcessEngine {
    engine: ArcSwap<Engine>,
    /// True if this process was forked after the engine was opened. The thread that talks to Redis stayed behind.
    is_foreign: AtomicBool,
    store: StoreUrl,
    memory_bounds: MemoryBounds,
    clock: Clock,
}

impl ProcessEngine {
    /// Opens the store. Does not wait for Redis, which may be started later.
    pub(crate) fn open(
        policy: Policy,
        store: StoreUrl,
        memory_bounds: MemoryBounds,
        clock: Clock,
    ) -> io::Result<Self> {
        let engine = Engine::with(policy, Store::open(&store, memory_bounds)?, clock.clone());
        let is_foreign = AtomicBool::new(false);
        Ok(Self { engine: ArcSwap::from_pointee(engine), is_foreign, store, memory_bounds, clock })
    }

    /// Notes that this process was forked from the one that opened the engine.
    pub(crate) fn on_fork(&self) {
        // Buckets in memory were copied by the fork, and belong to this process from now on.
        self.is_foreign.store(self.is_shared(), Ordering::Relaxed);
    }

    /// Returns true if the buckets are in Redis, so that an answer has to be waited for.
    pub(crate) fn is_shared(&self) -> bool {
        self.store != StoreUrl::Memory
    }

    /// Returns the store that was opened. Its text form has no password.
    pub(crate) const fn store(&self) -> &StoreUrl {
        &self.store
    }

    /// Returns the engine, and opens another one first if this process was forked.
    pub(crate) fn current(&self) -> PyResult<Guard<Arc<Engine>>> {
        if self.is_foreign.load(Ordering::Relaxed) {
            let policy = Policy::clone(&self.engine.load().policy());
            let store = Store::open(&self.store, self.memory_bounds).map_err(|error| os_error(&error))?;
            let own = Engine::with(policy, store, self.clock.clone());
            // Dropping the parent's engine would wait for a thread that this process does not have.
            mem::forget(self.engine.swap(Arc::new(own)));
            self.is_foreign.store(false, Ordering::Relaxed);
        }
        Ok(self.engine.load())
    }
}

/// Returns the exception for a store that cannot be opened.
pub(crate) fn os_error(error: &io::Error) -> PyErr {
    PyOSError::new_err(ErrorChain(error).to_string())
}
