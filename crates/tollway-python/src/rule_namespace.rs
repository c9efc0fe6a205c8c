//! The rules of one namespace, and the engine that decides them.

use std::sync::Arc;

use arc_swap::Guard;
use pyo3::exceptions::PyValueError;
use pyo3::import_exception;
use pyo3::prelude::*;
use tollway::Clock;
use tollway::config::StoreUrl;
use tollway::core::{self, KeyedRule, LocalShare, OnStoreFailure, Policy, RuleBill, RuleLimit};
use tollway::engine::{Engine, RuleInspection};
use tollway::rate_limit::{self, RuleRegistry};
use tollway::store::memory::MemoryBounds;

use crate::clock::ManualClock;
use crate::process_engine::{ProcessEngine, os_error};

import_exception!(tollway._errors, RuleError);
import_exception!(tollway._errors, RuleKeyError);

/// The part of a `RateLimit` that all of its limits share.
#[pyclass(frozen, weakref, module = "tollway._tollway")]
pub(crate) struct RuleNamespace {
    engine: ProcessEngine,
    rules: RuleRegistry,
    on_store_failure: OnStoreFailure,
}

/// A rule that is counted under a key.
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
        let engine = ProcessEngine::open(Policy::default(), store, MemoryBounds::default(), clock);
        Ok(Self {
            engine: engine.map_err(|error| os_error(&error))?,
            rules: RuleRegistry::new(namespace),
            on_store_failure: parse_on_store_failure(on_store_failure)?,
        })
    }

    /// Returns the store without a password.
    #[getter]
    fn store(&self) -> String {
        self.engine.store().to_string()
    }

    /// Returns the rule of a key for a function, which may define it once.
    fn define(&self, key: &str, rule: Option<String>) -> PyResult<Keyed> {
        self.rules.define(key, self.limit(rule)?).map(Keyed).map_err(key_error)
    }

    /// Returns the rule of a key for a block, which may repeat its definition.
    fn enter(&self, key: &str, rule: Option<String>) -> PyResult<Keyed> {
        self.rules.enter(key, self.limit(rule)?).map(Keyed).map_err(key_error)
    }

    /// Returns a rule that is counted under this name, and does not register it.
    fn unnamed(&self, name: &str, rule: &str) -> PyResult<Keyed> {
        Ok(Keyed(self.rules.unregistered(name, self.read(rule)?)))
    }

    /// Notes that this process was forked. Called in the child.
    fn forked(&self) {
        self.engine.on_fork();
    }
}

impl RuleNamespace {
    /// Decides a bill. Blocks over Redis, without the interpreter's lock.
    pub(crate) fn decide(&self, py: Python<'_>, bill: &RuleBill<'_>) -> PyResult<core::RuleDecision> {
        let engine = self.engine()?;
        if let Some(decision) = engine.resolve_now(bill) {
            return Ok(decision);
        }
        Ok(py.detach(|| engine.blocking().resolve(bill)))
    }

    /// Returns the calls that would still be allowed at once after this decision; `None` if it is not known.
    pub(crate) fn remaining(
        &self,
        decision: &core::RuleDecision,
        bill: &RuleBill<'_>,
    ) -> PyResult<Option<usize>> {
        if !decision.allowed() {
            return Ok(Some(0));
        }
        Ok(self.engine()?.remaining_now(bill))
    }

    /// Returns until when the rates of a bill are reached; `None` if the store gave no answer. Blocks over Redis,
    /// without the interpreter's lock.
    pub(crate) fn look(&self, py: Python<'_>, bill: &RuleBill<'_>) -> PyResult<Option<RuleInspection>> {
        let engine = self.engine()?;
        if !self.is_shared() {
            return Ok(engine.blocking().inspect_rule(bill).ok());
        }
        Ok(py.detach(|| engine.blocking().inspect_rule(bill)).ok())
    }

    /// Returns true if a decision has to be waited for.
    pub(crate) fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    /// Returns the engine of this process.
    pub(crate) fn engine(&self) -> PyResult<Guard<Arc<Engine>>> {
        self.engine.current()
    }

    fn limit(&self, rule: Option<String>) -> PyResult<Option<RuleLimit>> {
        rule.map(|rule| self.read(&rule)).transpose()
    }

    fn read(&self, rule: &str) -> PyResult<RuleLimit> {
        let rule = rule.parse().map_err(rule_error)?;
        Ok(RuleLimit::new(rule).with_on_store_failure(self.on_store_failure))
    }
}

/// Returns the exception for an invalid rule. Its message shows the place in the text.
pub(crate) fn rule_error(error: core::RuleError) -> PyErr {
    RuleError::new_err(error.to_string())
}

fn key_error(error: rate_limit::RuleKeyError) -> PyErr {
    RuleKeyError::new_err(error.to_string())
}

fn parse_on_store_failure(text: &str) -> PyResult<OnStoreFailure> {
    match text {
        "allow" => Ok(OnStoreFailure::Allow),
        "deny" => Ok(OnStoreFailure::Deny),
        "local" => Ok(OnStoreFailure::Local(LocalShare::WHOLE)),
        _ => Err(PyValueError::new_err("on_store_failure must be 'allow', 'deny' or 'local'")),
    }
}
