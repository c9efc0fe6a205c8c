//! A limiter, and the rules of one namespace.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use pyo3::exceptions::PyValueError;
use pyo3::import_exception;
use pyo3::prelude::*;
use tollway::config::StoreUrl;
use tollway::core::{KeyedRule, LocalShare, OnStoreFailure, Policy, RuleBill, RuleDecision, RuleLimit};
use tollway::rate_limit::{self, RuleRegistry};
use tollway::store::Store;
use tollway::store::memory::MAX_BUCKETS;
use tollway::{Clock, engine};

use crate::clock::ManualClock;

import_exception!(tollway._errors, RuleError);
import_exception!(tollway._errors, RuleKeyError);

/// What all limits of one `RateLimit` share.
#[pyclass(frozen, weakref, module = "tollway._tollway")]
pub(crate) struct RuleNamespace {
    limiter: ArcSwap<engine::Engine>,
    /// Is the limiter that of the process this one was forked from? The thread that talked to Redis stayed there.
    foreign: AtomicBool,
    store: StoreUrl,
    clock: Clock,
    rules: RuleRegistry,
    on_store_failure: OnStoreFailure,
}

/// A rule under its key.
#[pyclass(frozen, module = "tollway._tollway")]
pub(crate) struct Keyed(pub(crate) Arc<KeyedRule>);

#[pymethods]
impl RuleNamespace {
    #[new]
    fn new(
        store: &str,
        namespace: &str,
        on_store_failure: &str,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let store: StoreUrl =
            store.parse().map_err(|error| PyValueError::new_err(format!("store {error}")))?;
        let clock = clock.map_or_else(Clock::monotonic, |clock| clock.get().0.clone());
        Ok(Self {
            limiter: ArcSwap::from_pointee(open(&store, &clock)?),
            foreign: AtomicBool::new(false),
            store,
            clock,
            rules: RuleRegistry::new(namespace),
            on_store_failure: failure(on_store_failure)?,
        })
    }

    /// Where the logs are, without a password.
    #[getter]
    fn store(&self) -> String {
        self.store.to_string()
    }

    /// The rules of a key, for a function.
    fn define(&self, key: &str, rule: Option<String>) -> PyResult<Keyed> {
        self.rules.define(key, self.limit(rule)?).map(Keyed).map_err(key_error)
    }

    /// The rules of a key, for a block.
    fn enter(&self, key: &str, rule: Option<String>) -> PyResult<Keyed> {
        self.rules.enter(key, self.limit(rule)?).map(Keyed).map_err(key_error)
    }

    /// Rules that are counted under this name, and not remembered.
    fn unnamed(&self, name: &str, rule: &str) -> PyResult<Keyed> {
        Ok(Keyed(self.rules.unregistered(name, self.read(rule)?)))
    }

    /// Must be called in a process that was forked from the one in which this was made.
    fn forked(&self) {
        // What is in memory is this process's own, from now on.
        self.foreign.store(self.store != StoreUrl::Memory, Ordering::Relaxed);
    }
}

impl RuleNamespace {
    /// Decides, and waits for it if need be.
    pub(crate) fn decide(&self, py: Python<'_>, bill: &RuleBill<'_>) -> PyResult<RuleDecision> {
        let limiter = self.limiter()?;
        if let Some(decision) = limiter.resolve_now(bill) {
            return Ok(decision);
        }
        Ok(py.detach(|| limiter.blocking().resolve(bill)))
    }

    /// Is an answer something to wait for?
    pub(crate) fn waits(&self) -> bool {
        self.store != StoreUrl::Memory
    }

    /// The limiter of this process.
    pub(crate) fn limiter(&self) -> PyResult<Guard<Arc<engine::Engine>>> {
        if self.foreign.load(Ordering::Relaxed) {
            let theirs = self.limiter.swap(Arc::new(open(&self.store, &self.clock)?));
            // To drop it would be to wait for a thread that this process does not have.
            mem::forget(theirs);
            self.foreign.store(false, Ordering::Relaxed);
        }
        Ok(self.limiter.load())
    }

    fn limit(&self, rule: Option<String>) -> PyResult<Option<RuleLimit>> {
        rule.map(|rule| self.read(&rule)).transpose()
    }

    fn read(&self, rule: &str) -> PyResult<RuleLimit> {
        let rule = rule.parse().map_err(rule_error)?;
        Ok(RuleLimit::new(rule).with_on_store_failure(self.on_store_failure))
    }
}

/// The exception for a malformed rule, with the place in its text.
pub(crate) fn rule_error(error: tollway::core::RuleError) -> PyErr {
    RuleError::new_err(error.to_string())
}

fn key_error(error: rate_limit::RuleKeyError) -> PyErr {
    RuleKeyError::new_err(error.to_string())
}

fn open(store: &StoreUrl, clock: &Clock) -> PyResult<engine::Engine> {
    Ok(engine::Engine::with(Policy::default(), Store::open(store, MAX_BUCKETS)?, clock.clone()))
}

fn failure(answer: &str) -> PyResult<OnStoreFailure> {
    match answer {
        "allow" => Ok(OnStoreFailure::Allow),
        "deny" => Ok(OnStoreFailure::Deny),
        "local" => Ok(OnStoreFailure::Local(LocalShare::WHOLE)),
        _ => Err(PyValueError::new_err("on_store_failure must be 'allow', 'deny' or 'local'")),
    }
}
