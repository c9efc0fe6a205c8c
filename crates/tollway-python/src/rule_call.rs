//! One awaited call of a rule: values that have to be awaited, and a store that has to be waited for.
//!
//! ```text
//! advance     calls selectors as far as the rule needs their values, and returns one that has to be awaited
//! answer      takes the awaited value, and advances
//! start_rule  (of PendingCalls) asks the store; afterwards the call can advance again
//! ```
//!
//! Selectors are called by the task that awaits the call, so that they see its context variables.

use std::sync::Arc;

use pyo3::prelude::*;
use tollway::core;
use tollway::core::rule::RuleStep;
use tollway::engine::RuleInspection;

use crate::decision::RuleDecision;
use crate::enforcer::{CallValues, Enforcer};
use crate::pending_calls::{PendingPyReply, Reply};
use crate::selectors::{Call, is_awaitable, text};

/// A call that is not decided yet.
#[pyclass(module = "tollway._tollway")]
pub(crate) struct RuleCall {
    enforcer: Py<Enforcer>,
    /// True if a denial is an exception and not a decision.
    enforce: bool,
    values: CallValues,
    /// A value that has to be awaited, and the log that it is for.
    awaited: Option<(usize, Py<PyAny>)>,
    decision: Option<core::RuleDecision>,
}

/// The answer of a store that was waited for.
enum StoreAnswer {
    Seen(Option<RuleInspection>),
    Decided(core::RuleDecision),
}

#[pymethods]
impl RuleCall {
    /// Returns true if the call is decided, so that it has a reply.
    #[getter]
    pub(crate) fn is_decided(&self) -> bool {
        self.decision.is_some()
    }

    /// Goes on until the call is decided, the store has to be asked, or a value has to be awaited, which is returned.
    fn advance(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        while self.awaited.is_none() && self.decision.is_none() {
            let enforcer = self.enforcer.clone_ref(py);
            let (rule, rules) = (enforcer.get().keyed(), enforcer.get().rules());
            match self.values.known.step(rule) {
                RuleStep::Ask { log, .. } => {
                    let value = self.values.ask(py, log)?;
                    if is_awaitable(&value)? {
                        self.awaited = Some((log, value.unbind()));
                    } else {
                        self.values.known.answer(log, text(&value)?);
                    }
                }
                RuleStep::Deny(decision) => self.decision = Some(decision),
                RuleStep::Look | RuleStep::Resolve if rules.is_shared() => break,
                RuleStep::Look => {
                    let seen = rules.look(py, &self.values.known.bill(rule))?;
                    self.values.saw(seen);
                }
                RuleStep::Resolve => self.decision = Some(rules.decide(py, &self.values.known.bill(rule))?),
            }
        }
        Ok(self.awaited.as_ref().map(|(_, value)| value.clone_ref(py)))
    }

    /// Sets the value that was awaited, and advances.
    fn answer(&mut self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        if let Some((log, _)) = self.awaited.take() {
            self.values.known.answer(log, text(value)?);
        }
        self.advance(py)
    }

    /// Returns the decision; or, to enforce it, `None` or the exception.
    pub(crate) fn reply(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let decision = self.decision.as_ref().expect("a call that is decided");
        if self.enforce {
            return self.enforcer.get().admit(decision).map(|()| py.None());
        }
        let enforcer = self.enforcer.get();
        let remaining = enforcer.rules().remaining(decision, &self.values.known.bill(enforcer.keyed()))?;
        Ok(Py::new(py, RuleDecision::new(*decision, remaining))?.into_any())
    }
}

impl RuleCall {
    /// Begins a call, and decides it if nothing has to be waited for.
    pub(crate) fn begin(enforcer: &Bound<'_, Enforcer>, call: Call<'_, '_>, enforce: bool) -> PyResult<Self> {
        let py = enforcer.py();
        let values = enforcer.get().values(py, call)?;
        let enforcer = enforcer.clone().unbind();
        let mut call = Self { enforcer, enforce, values, awaited: None, decision: None };
        call.advance(py)?;
        Ok(call)
    }

    /// Returns the answer of the store, which the call notes before its future is completed.
    pub(crate) fn store_answer(this: &Bound<'_, Self>) -> PyResult<PendingPyReply> {
        let call = this.borrow();
        let rule = Arc::clone(call.enforcer.get().keyed());
        let engine = Arc::clone(&*call.enforcer.get().rules().engine()?);
        let (values, call) = (call.values.known.clone(), this.clone().unbind());
        Ok(Box::pin(async move {
            let bill = values.bill(&rule);
            let answer = match values.step(&rule) {
                RuleStep::Look => StoreAnswer::Seen(engine.inspect_rule(&bill).await.ok()),
                _ => StoreAnswer::Decided(engine.resolve(&bill).await),
            };
            let reply: Reply = Box::new(move |py| {
                let mut call = call.bind(py).borrow_mut();
                match answer {
                    StoreAnswer::Seen(seen) => call.values.saw(seen),
                    StoreAnswer::Decided(decision) => call.decision = Some(decision),
                }
                Ok(py.None())
            });
            reply
        }))
    }
}
