//! What was decided, as Python sees it.

use pyo3::import_exception;
use pyo3::prelude::*;
use tollway::core::RuleDecision;

import_exception!(tollway._errors, RateLimitExceeded);

/// Allowed or denied. A decision is true if it was allowed.
#[pyclass(frozen, module = "tollway")]
pub(crate) struct Decision(RuleDecision);

impl Decision {
    pub(crate) const fn new(ruling: RuleDecision) -> Self {
        Self(ruling)
    }
}

#[pymethods]
impl Decision {
    /// May the request pass?
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed()
    }

    /// In how many seconds it would be allowed if nobody else came; `None` if no passing of time lifts the denial. Zero if it
    /// was allowed.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        retry_after(&self.0)
    }

    /// Did the store give no answer, so that this is what `on_store_failure` says to do then?
    #[getter]
    fn degraded(&self) -> bool {
        self.0.degraded
    }

    fn __bool__(&self) -> bool {
        self.0.allowed()
    }

    fn __repr__(&self) -> String {
        let (allowed, degraded) = (python(self.0.allowed()), python(self.0.degraded));
        let retry_after = self.retry_after().map_or("None".to_owned(), |seconds| format!("{seconds:?}"));
        format!("Decision(allowed={allowed}, retry_after={retry_after}, degraded={degraded})")
    }
}

/// The exception that says so.
pub(crate) fn exceeded(ruling: &RuleDecision, key: &str, rule: &str) -> PyErr {
    RateLimitExceeded::new_err((key.to_owned(), rule.to_owned(), retry_after(ruling), ruling.degraded))
}

fn retry_after(ruling: &RuleDecision) -> Option<f64> {
    (!ruling.retry_nanos.is_forever()).then(|| ruling.retry_nanos.as_secs_f64())
}

const fn python(truth: bool) -> &'static str {
    if truth { "True" } else { "False" }
}
