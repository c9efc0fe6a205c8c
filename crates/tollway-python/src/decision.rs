//! The answers that Python gets: decisions of limits and of rules, and refunds.

use pyo3::import_exception;
use pyo3::prelude::*;
use tollway::core::{self, Nanos, Verdict};

import_exception!(tollway._errors, RateLimitExceeded);

/// A decision about a spend or a check, which is true if the request is allowed.
#[pyclass(frozen, eq, get_all, module = "tollway")]
#[derive(PartialEq)]
pub(crate) struct Decision {
    /// True if the request may pass.
    allowed: bool,
    /// The whole units that are left; `None` if the id has no limit, if the store gave no answer, or if a rule decided.
    remaining: Option<u64>,
    /// The seconds until the same request would be allowed; `None` if no time would help.
    retry_after: Option<f64>,
    /// The seconds until the bucket is as if it had never been used; `None` if it never is, or if a rule decided.
    reset_after: Option<f64>,
    /// The name of the limit that decided, `inline/throttle` for every `InlineLimit`; `None` if a rule decided.
    limit: Option<String>,
    /// The name of the rule that decided; `None` if a limit decided.
    rule: Option<String>,
    /// True if the store gave no answer, so that `on_store_failure` decided.
    degraded: bool,
}

#[pymethods]
impl Decision {
    #[new]
    #[pyo3(signature = (allowed, remaining, retry_after, reset_after, limit, degraded=false, rule=None))]
    const fn new(
        allowed: bool,
        remaining: Option<u64>,
        retry_after: Option<f64>,
        reset_after: Option<f64>,
        limit: Option<String>,
        degraded: bool,
        rule: Option<String>,
    ) -> Self {
        Self { allowed, remaining, retry_after, reset_after, limit, rule, degraded }
    }

    const fn __bool__(&self) -> bool {
        self.allowed
    }

    fn __repr__(&self) -> String {
        format!(
            "Decision(allowed={}, remaining={}, retry_after={}, reset_after={}, limit={}, rule={}, degraded={})",
            python_bool(self.allowed),
            python_option(self.remaining),
            python_option(self.retry_after),
            python_option(self.reset_after),
            python_option(self.limit.as_deref()),
            python_option(self.rule.as_deref()),
            python_bool(self.degraded),
        )
    }
}

impl Decision {
    /// Converts a decision that the limit of this name has made.
    pub(crate) fn by_limit(decision: &core::Decision, limit: &str) -> Self {
        let remaining = match decision.verdict {
            Verdict::Unlimited | Verdict::AllowUnreachable | Verdict::DenyUnreachable => None,
            _ => Some(decision.remaining),
        };
        Self {
            allowed: decision.allowed(),
            remaining,
            retry_after: seconds(decision.retry_nanos),
            reset_after: seconds(decision.reset_nanos),
            limit: Some(limit.to_owned()),
            rule: None,
            degraded: decision.degraded,
        }
    }

    /// Converts a decision that the rule of this name has made.
    pub(crate) fn by_rule(decision: &core::Decision, rule: &str) -> Self {
        Self {
            allowed: decision.allowed(),
            remaining: None,
            retry_after: seconds(decision.retry_nanos),
            reset_after: None,
            limit: None,
            rule: Some(rule.to_owned()),
            degraded: decision.degraded,
        }
    }
}

/// The answer to a refund, which is true if something was given back.
#[pyclass(frozen, eq, get_all, module = "tollway")]
#[derive(PartialEq)]
pub(crate) struct Refund {
    /// True if something was given back; false if the bucket was full already.
    refunded: bool,
    /// The whole units that are left; `None` if the id has no limit.
    remaining: Option<u64>,
    /// The seconds until the bucket is as if it had never been used; `None` if it never is.
    reset_after: Option<f64>,
}

#[pymethods]
impl Refund {
    #[new]
    const fn new(refunded: bool, remaining: Option<u64>, reset_after: Option<f64>) -> Self {
        Self { refunded, remaining, reset_after }
    }

    const fn __bool__(&self) -> bool {
        self.refunded
    }

    fn __repr__(&self) -> String {
        let (refunded, remaining) = (python_bool(self.refunded), python_option(self.remaining));
        let reset_after = python_option(self.reset_after);
        format!("Refund(refunded={refunded}, remaining={remaining}, reset_after={reset_after})")
    }
}

impl From<core::Refund> for Refund {
    fn from(refund: core::Refund) -> Self {
        let remaining = (refund.remaining != core::Refund::UNLIMITED.remaining).then_some(refund.remaining);
        Self { refunded: refund.refunded, remaining, reset_after: seconds(refund.reset_nanos) }
    }
}

/// The decision of a rule, which is true if the call is allowed.
#[pyclass(frozen, module = "tollway")]
pub(crate) struct RuleDecision(core::RuleDecision, Option<usize>);

impl RuleDecision {
    pub(crate) const fn new(decision: core::RuleDecision, remaining: Option<usize>) -> Self {
        Self(decision, remaining)
    }
}

#[pymethods]
impl RuleDecision {
    /// True if the call may pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.allowed()
    }

    /// The seconds until the call would be allowed if no other came: 0 if it was allowed, `None` if no time would help.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        seconds(self.0.retry_nanos)
    }

    /// The calls with the same values that would still be allowed at once: 0 if it was denied, `None` if nothing limits
    /// them, or over Redis.
    #[getter]
    fn remaining(&self) -> Option<usize> {
        self.1
    }

    /// True if the store gave no answer, so that `on_store_failure` decided.
    #[getter]
    fn degraded(&self) -> bool {
        self.0.degraded
    }

    fn __bool__(&self) -> bool {
        self.0.allowed()
    }

    fn __repr__(&self) -> String {
        let (allowed, degraded) = (python_bool(self.0.allowed()), python_bool(self.0.degraded));
        let (remaining, retry_after) = (python_option(self.1), python_option(self.retry_after()));
        format!(
            "RuleDecision(allowed={allowed}, remaining={remaining}, retry_after={retry_after}, degraded={degraded})"
        )
    }
}

/// Returns the exception for a denial by the rule of `key`.
pub(crate) fn exceeded(decision: &core::RuleDecision, key: &str, rule: &str) -> PyErr {
    let retry_after = seconds(decision.retry_nanos);
    RateLimitExceeded::new_err((key.to_owned(), rule.to_owned(), retry_after, decision.degraded))
}

fn seconds(nanos: Nanos) -> Option<f64> {
    (!nanos.is_forever()).then(|| nanos.as_secs_f64())
}

const fn python_bool(truth: bool) -> &'static str {
    if truth { "True" } else { "False" }
}

fn python_option(value: Option<impl std::fmt::Debug>) -> String {
    value.map_or("None".to_owned(), |value| format!("{value:?}"))
}
