//! Asks for one function, or for one block.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use tollway::core::{KeyedRule, RuleBill, RuleDecision};

use crate::decision::{Decision, exceeded};
use crate::rule_namespace::{Keyed, RuleNamespace};
use crate::selectors::{Call, Layer, Selectors, is_awaitable, text};

/// A rule under its key, and where the values of its selectors come from.
#[pyclass(frozen, module = "tollway._tollway")]
pub(crate) struct Enforcer {
    engine: Py<RuleNamespace>,
    rule: Arc<KeyedRule>,
    key: String,
    selectors: Selectors,
}

/// A value for each selector of a rule, in the order of its logs.
pub(crate) type Values = Vec<Option<Vec<u8>>>;

#[pymethods]
impl Enforcer {
    /// `layers` are asked for values in order. `has_first` says that there is a first argument to ask after them, and
    /// `first` by which name it may be passed.
    #[new]
    fn new(
        py: Python<'_>,
        engine: Py<RuleNamespace>,
        keyed: &Bound<'_, Keyed>,
        key: String,
        layers: Vec<Layer<'_>>,
        has_first: bool,
        first: Option<Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let rule = Arc::clone(&keyed.get().0);
        let first = has_first.then_some(first.as_ref());
        let selectors = Selectors::new(py, rule.limit().rule(), &layers, first)?;
        Ok(Self { engine, rule, key, selectors })
    }

    /// The rule, in canonical form.
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

    /// The same if that needs no waiting. Otherwise the values with which a pending_calls is to ask.
    fn enforce_async<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let values =
            self.selectors.values(py, Call { args: Some(args), kwargs: Some(kwargs), given: None })?;
        if self.waits(&values)? {
            return PyList::new(py, values).map(Some);
        }
        self.admit(&self.decide(py, &texts(&values)?)?)?;
        Ok(None)
    }

    /// Decides with these values for selectors, before all others.
    fn ask(&self, py: Python<'_>, given: &Bound<'_, PyDict>) -> PyResult<Decision> {
        let values = self.selectors.values(py, Call { args: None, kwargs: None, given: Some(given) })?;
        Ok(Decision::new(self.decide(py, &texts(&values)?)?))
    }

    /// The same if that needs no waiting. Otherwise the values with which a pending_calls is to ask.
    fn ask_async<'py>(&self, py: Python<'py>, given: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let values = self.selectors.values(py, Call { args: None, kwargs: None, given: Some(given) })?;
        if self.waits(&values)? {
            return Ok(PyList::new(py, values)?.into_any());
        }
        let decision = Decision::new(self.decide(py, &texts(&values)?)?);
        Ok(Bound::new(py, decision)?.into_any())
    }
}

impl Enforcer {
    /// A decision that is still to be made, by whoever polls it.
    pub(crate) fn decision(
        &self,
        values: Values,
    ) -> PyResult<impl Future<Output = RuleDecision> + Send + use<>> {
        let limiter = Arc::clone(&*self.engine.get().limiter()?);
        let rule = Arc::clone(&self.rule);
        Ok(async move { limiter.resolve(&bill(&rule, &values)).await })
    }

    /// Nothing if it was allowed, and otherwise the exception.
    pub(crate) fn admit(&self, ruling: &RuleDecision) -> PyResult<()> {
        if ruling.allowed() { Ok(()) } else { Err(exceeded(ruling, &self.key, &self.rule())) }
    }

    fn decide(&self, py: Python<'_>, values: &Values) -> PyResult<RuleDecision> {
        self.engine.get().decide(py, &bill(&self.rule, values))
    }

    /// Is there anything to be awaited?
    fn waits(&self, values: &[Bound<'_, PyAny>]) -> PyResult<bool> {
        if self.engine.get().waits() {
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

/// Every value as part of a name.
pub(crate) fn texts(values: &[Bound<'_, PyAny>]) -> PyResult<Values> {
    values.iter().map(text).collect()
}

fn bill<'r>(rule: &'r KeyedRule, values: &Values) -> RuleBill<'r> {
    // One for each selector, as `Selectors` has them.
    let mut values = values.iter();
    let next = |_: &str| Ok::<_, std::convert::Infallible>(values.next().and_then(Option::as_deref));
    let Ok(bill) = rule.bill(next);
    bill
}
