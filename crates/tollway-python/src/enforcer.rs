//! Enforces one rule for one function, or for one block.

use std::convert::Infallible;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use tollway::core::rule::{RuleStep, RuleValues};
use tollway::core::{self, KeyedRule, RuleBill};
use tollway::engine::RuleInspection;

use crate::decision::{RuleDecision, exceeded};
use crate::rule_call::RuleCall;
use crate::rule_namespace::{Keyed, RuleNamespace};
use crate::selectors::{Call, Layer, Selectors, is_awaitable, text};

/// A rule that is counted under a key, and the sources of its selectors' values.
#[pyclass(frozen, module = "tollway._tollway")]
pub(crate) struct Enforcer {
    rules: Py<RuleNamespace>,
    rule: Arc<KeyedRule>,
    key: String,
    selectors: Selectors,
}

/// The selectors of a rule in one call, with the values that are known.
pub(crate) struct CallValues {
    /// One for each log of the rule; `None` where the log has no selector.
    sources: Vec<Option<Py<PyAny>>>,
    pub(crate) known: RuleValues<Vec<u8>>,
}

#[pymethods]
impl Enforcer {
    /// Creates an enforcer that looks for values in `layers`, in order. With `has_first` it then looks at the first
    /// argument of a call, which may be passed by the name `first`.
    #[new]
    fn new(
        py: Python<'_>,
        rules: Py<RuleNamespace>,
        keyed: &Bound<'_, Keyed>,
        key: String,
        layers: Vec<Layer<'_>>,
        has_first: bool,
        first: Option<Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let rule = Arc::clone(&keyed.get().0);
        let first = has_first.then_some(first.as_ref());
        let selectors = Selectors::new(py, rule.limit().rule(), &layers, first)?;
        Ok(Self { rules, rule, key, selectors })
    }

    /// Returns the rule in canonical form.
    #[getter]
    fn rule(&self) -> String {
        self.rule.limit().rule().to_string()
    }

    /// Decides a call, and raises if it is denied.
    fn enforce(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        let call = Call { args: Some(args), kwargs: Some(kwargs), given: None };
        self.admit(&self.decide(py, call, |_, _| Ok(()))?.0)
    }

    /// Decides a call at once and raises if it is denied, or returns a call that is to be awaited.
    fn enforce_async(
        this: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<Option<RuleCall>> {
        let call = Call { args: Some(args), kwargs: Some(kwargs), given: None };
        let call = RuleCall::begin(this, call, true)?;
        if call.is_decided() { call.reply(this.py()).map(|_| None) } else { Ok(Some(call)) }
    }

    /// Decides with the `given` values for selectors, which come before all others.
    fn ask(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<RuleDecision> {
        let call = Call { args: None, kwargs: None, given: Some(given) };
        let (decision, remaining) =
            self.decide(py, call, |decision, bill| self.rules().remaining(decision, bill))?;
        Ok(RuleDecision::new(decision, remaining))
    }

    /// Decides at once as `ask` does, or returns a call that is to be awaited.
    fn ask_async<'py>(this: &Bound<'py, Self>, given: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let call = RuleCall::begin(this, Call { args: None, kwargs: None, given: Some(given) }, false)?;
        if call.is_decided() {
            return Ok(call.reply(this.py())?.into_bound(this.py()));
        }
        Ok(Bound::new(this.py(), call)?.into_any())
    }
}

impl Enforcer {
    /// Returns the rule that is enforced.
    pub(crate) const fn keyed(&self) -> &Arc<KeyedRule> {
        &self.rule
    }

    /// Returns the namespace of the rule, which decides.
    pub(crate) fn rules(&self) -> &RuleNamespace {
        self.rules.get()
    }

    /// Returns the exception if the decision is a denial.
    pub(crate) fn admit(&self, decision: &core::RuleDecision) -> PyResult<()> {
        if decision.allowed() { Ok(()) } else { Err(exceeded(decision, &self.key, &self.rule())) }
    }

    /// Returns what the selectors have in this call. Values that need no call are known.
    pub(crate) fn values(&self, py: Python<'_>, call: Call<'_, '_>) -> PyResult<CallValues> {
        let mut known = RuleValues::new(&self.rule, |_| None);
        let mut found = self.selectors.find(py, call)?.into_iter();
        let logs = self.rule.limit().rule().logs();
        let mut sources = Vec::with_capacity(logs.len());
        for (index, log) in logs.iter().enumerate() {
            let source = log.selector().and_then(|_| found.next());
            if let Some(source) = &source
                && !source.is_callable()
                && !is_awaitable(source)?
            {
                known.answer(index, text(source)?);
            }
            sources.push(source.map(Bound::unbind));
        }
        Ok(CallValues { sources, known })
    }

    /// Decides, and blocks if the store has to be waited for. `more` gets the decision and the bill.
    fn decide<T>(
        &self,
        py: Python<'_>,
        call: Call<'_, '_>,
        more: impl FnOnce(&core::RuleDecision, &RuleBill<'_>) -> PyResult<T>,
    ) -> PyResult<(core::RuleDecision, T)> {
        let rules = self.rules();
        let resolve = |bill: &RuleBill<'_>, denied: Option<core::RuleDecision>| {
            let decision = denied.map_or_else(|| rules.decide(py, bill), Ok)?;
            Ok((decision, more(&decision, bill)?))
        };
        if self.selectors.is_empty() {
            let Ok(bill) = self.rule.bill(|_| Ok::<Option<&[u8]>, Infallible>(None));
            return resolve(&bill, None);
        }
        let mut values = self.values(py, call)?;
        loop {
            match values.known.step(&self.rule) {
                RuleStep::Ask { log, .. } => {
                    let value = text(&values.ask(py, log)?)?;
                    values.known.answer(log, value);
                }
                RuleStep::Look => {
                    let seen = rules.look(py, &values.known.bill(&self.rule))?;
                    values.saw(seen);
                }
                RuleStep::Deny(decision) => return resolve(&values.known.bill(&self.rule), Some(decision)),
                RuleStep::Resolve => return resolve(&values.known.bill(&self.rule), None),
            }
        }
    }
}

impl CallValues {
    /// Returns the value of a log's selector, and calls it if it is a callable.
    pub(crate) fn ask<'py>(&self, py: Python<'py>, log: usize) -> PyResult<Bound<'py, PyAny>> {
        let source = self.sources[log].as_ref().expect("only a log with a selector has a value");
        let source = source.bind(py);
        if source.is_callable() { source.call0() } else { Ok(source.clone()) }
    }

    /// Notes the state of the logs. Without an answer of the store all values are needed, because the rule's
    /// `on_store_failure` decides.
    pub(crate) fn saw(&mut self, seen: Option<RuleInspection>) {
        match seen {
            Some(seen) => self.known.looked(seen.at, seen.reached_until),
            None => self.known.ask_all(),
        }
    }
}
