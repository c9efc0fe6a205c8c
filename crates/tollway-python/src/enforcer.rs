//! Enforces one rule for one function, or for one block.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tollway::core::{self, KeyedRule, RuleBill};

use crate::decision::{RuleDecision, exceeded};
use crate::pending_calls::{PendingPyReply, Reply};
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

/// The values that the selectors of a rule have, in the order of its logs.
type Values = Vec<Option<Vec<u8>>>;

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
        let values =
            self.selectors.values(py, Call { args: Some(args), kwargs: Some(kwargs), given: None })?;
        self.admit(&self.decide(py, &texts(&values)?)?)
    }

    /// Decides a call at once and raises if it is denied, or returns the values to start a pending call with.
    fn enforce_async<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let values =
            self.selectors.values(py, Call { args: Some(args), kwargs: Some(kwargs), given: None })?;
        if self.must_wait(&values)? {
            return PyList::new(py, values).map(Some);
        }
        self.admit(&self.decide(py, &texts(&values)?)?)?;
        Ok(None)
    }

    /// Decides with the `given` values for selectors, which come before all others.
    fn ask(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<RuleDecision> {
        let values = self.selectors.values(py, Call { args: None, kwargs: None, given: Some(given) })?;
        Ok(RuleDecision::new(self.decide(py, &texts(&values)?)?))
    }

    /// Decides at once as `ask` does, or returns the values to start a pending call with.
    fn ask_async<'py>(&self, py: Python<'py>, given: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let values = self.selectors.values(py, Call { args: None, kwargs: None, given: Some(given) })?;
        if self.must_wait(&values)? {
            return Ok(PyList::new(py, values)?.into_any());
        }
        let decision = RuleDecision::new(self.decide(py, &texts(&values)?)?);
        Ok(Bound::new(py, decision)?.into_any())
    }
}

impl Enforcer {
    /// Returns the reply to a call that has these values. To `enforce`, a denial is an exception and not a decision.
    pub(crate) fn reply(
        this: &Bound<'_, Self>,
        values: &[Bound<'_, PyAny>],
        enforce: bool,
    ) -> PyResult<PendingPyReply> {
        let values = texts(values)?;
        let engine = Arc::clone(&*this.get().rules.get().engine()?);
        let enforcer = this.clone().unbind();
        Ok(Box::pin(async move {
            let decision = engine.resolve(&bill(&enforcer.get().rule, &values)).await;
            let reply: Reply = Box::new(move |py| match enforce {
                true => enforcer.get().admit(&decision).map(|()| py.None()),
                false => Ok(Py::new(py, RuleDecision::new(decision))?.into_any()),
            });
            reply
        }))
    }

    /// Returns the exception if the decision is a denial.
    fn admit(&self, decision: &core::RuleDecision) -> PyResult<()> {
        if decision.allowed() { Ok(()) } else { Err(exceeded(decision, &self.key, &self.rule())) }
    }

    fn decide(&self, py: Python<'_>, values: &Values) -> PyResult<core::RuleDecision> {
        self.rules.get().decide(py, &bill(&self.rule, values))
    }

    /// Returns true if the decision, or one of the values, has to be awaited.
    fn must_wait(&self, values: &[Bound<'_, PyAny>]) -> PyResult<bool> {
        if self.rules.get().is_shared() {
            return Ok(true);
        }
        for value in values {
            if is_awaitable(value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Converts every value to the bytes that are part of a log's name.
fn texts(values: &[Bound<'_, PyAny>]) -> PyResult<Values> {
    values.iter().map(text).collect()
}

fn bill<'r>(rule: &'r KeyedRule, values: &Values) -> RuleBill<'r> {
    // `Selectors` returns one value for each selector, in the order in which `KeyedRule::bill` takes them.
    let mut values = values.iter();
    let next = |_: &str| Ok::<_, std::convert::Infallible>(values.next().and_then(Option::as_deref));
    let Ok(bill) = rule.bill(next);
    bill
}
