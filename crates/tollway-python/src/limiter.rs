//! The limits and rules of a configuration, which are asked by their names.

use std::path::Path;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tollway::Clock;
use tollway::config::{Config, ConfigErrors};
use tollway::core::{self, Decider, ErrorChain, RuleLookupError, Verb};
use tollway::engine::VerbAnswer;
use tollway::limiter::LimiterError;

use crate::bill_request::{BillRequest, charge_request};
use crate::clock::ManualClock;
use crate::decision::{Decision, Refund};
use crate::pending_calls::{PendingPyReply, Reply};
use crate::process_engine::ProcessEngine;

/// The exceptions of the Python package that this module raises.
mod exceptions {
    use pyo3::import_exception;

    import_exception!(tollway._errors, ChargeError);
    import_exception!(tollway._errors, ConfigError);
    import_exception!(tollway._errors, InvalidBill);
    import_exception!(tollway._errors, InvalidCost);
    import_exception!(tollway._errors, InvalidId);
    import_exception!(tollway._errors, NotRefundable);
    import_exception!(tollway._errors, SelectorError);
    import_exception!(tollway._errors, StoreError);
    import_exception!(tollway._errors, UnknownLimit);
    import_exception!(tollway._errors, UnknownRule);
}

/// The part of a `Limiter` that is written in Rust.
#[pyclass(frozen, weakref, module = "tollway._tollway")]
pub(crate) struct NativeLimiter {
    engine: ProcessEngine,
}

/// The answer to a call, before it becomes a Python object.
enum LimiterAnswer {
    Decision(Decision),
    Refund(Refund),
    Reset,
}

#[pymethods]
impl NativeLimiter {
    /// Creates a limiter from the text of a configuration file. Errors have the place in it after `name`.
    #[staticmethod]
    fn from_yaml(text: &str, name: &str, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<Self> {
        Self::open(Config::parse(text, name), clock)
    }

    /// Creates a limiter from a configuration file.
    #[staticmethod]
    fn from_file(path: &str, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<Self> {
        Self::open(Config::from_file(Path::new(path)), clock)
    }

    /// Returns the store without a password.
    #[getter]
    fn store(&self) -> String {
        self.engine.store().to_string()
    }

    /// Returns true if an answer has to be waited for.
    #[getter]
    fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    /// Takes `cost` from the bucket of `id`, if it fits.
    fn spend(
        &self,
        py: Python<'_>,
        limit: &Bound<'_, PyAny>,
        id: &Bound<'_, PyAny>,
        cost: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let request = charge_request(limit, id, cost)?;
        let engine = self.engine.current()?;
        if !self.engine.is_shared() {
            // The call that a program makes for each of its requests: no bill, and no future.
            let policy = engine.policy();
            let charge = policy.charge_request(&request).map_err(|error| exception(&error.into()))?;
            if let Some(decision) = engine.charge_now(&charge) {
                return Ok(Py::new(py, Decision::by_limit(&decision, &request.limit))?.into_any());
            }
        }
        self.run(py, &BillRequest { verb: Verb::Spend, charges: vec![request], rules: Vec::new() })
    }

    /// Carries out `verb` for these charges and rules. Blocks over Redis, without the interpreter's lock.
    fn call(
        &self,
        py: Python<'_>,
        verb: &str,
        charges: Vec<Bound<'_, PyAny>>,
        rules: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.run(py, &BillRequest::read(parse_verb(verb)?, &charges, &rules)?)
    }

    /// Notes that this process was forked. Called in the child.
    fn forked(&self) {
        self.engine.on_fork();
    }
}

impl NativeLimiter {
    /// Returns the reply to a call that the event loop waits for.
    pub(crate) fn reply(
        &self,
        verb: &str,
        charges: &[Bound<'_, PyAny>],
        rules: &[Bound<'_, PyAny>],
    ) -> PyResult<PendingPyReply> {
        let bill = BillRequest::read(parse_verb(verb)?, charges, rules)?;
        let engine = Arc::clone(&*self.engine.current()?);
        Ok(Box::pin(async move {
            let policy = engine.policy();
            let answer = engine.perform(&policy, bill.verb, &bill.charges, &bill.rules).await;
            let answer = answer.map(|answer| LimiterAnswer::new(&answer, &bill));
            let reply: Reply = Box::new(move |py| answer_object(py, answer));
            reply
        }))
    }

    fn open(config: Result<Config, ConfigErrors>, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<Self> {
        let config =
            config.map_err(|error| exceptions::ConfigError::new_err(ErrorChain(&error).to_string()))?;
        let clock = clock.map_or_else(Clock::monotonic, |clock| clock.get().0.clone());
        let engine = ProcessEngine::open(config.policy, config.store, config.memory_bounds, clock);
        let engine = engine.map_err(|error| {
            exceptions::ConfigError::new_err(format!("the store cannot be opened: {}", ErrorChain(&error)))
        })?;
        Ok(Self { engine })
    }

    fn run(&self, py: Python<'_>, bill: &BillRequest) -> PyResult<Py<PyAny>> {
        let engine = self.engine.current()?;
        let perform = || {
            let policy = engine.policy();
            let answer = engine.blocking().perform(&policy, bill.verb, &bill.charges, &bill.rules);
            answer.map(|answer| LimiterAnswer::new(&answer, bill))
        };
        // In memory the answer is there in less time than giving the interpreter's lock back takes.
        let answer = if self.engine.is_shared() { py.detach(perform) } else { perform() };
        answer_object(py, answer)
    }
}

impl LimiterAnswer {
    fn new(answer: &VerbAnswer<'_>, bill: &BillRequest) -> Self {
        match answer {
            VerbAnswer::Decision(_, decision) => Self::Decision(match decision.decider(&bill.charges) {
                Decider::Charge(charge) => Decision::by_limit(decision, &charge.limit),
                Decider::Rule(index) => Decision::by_rule(decision, bill.rules[index].rule.text()),
            }),
            VerbAnswer::Refund(_, refund) => Self::Refund((*refund).into()),
            VerbAnswer::Reset(_) => Self::Reset,
        }
    }
}

fn answer_object(py: Python<'_>, answer: Result<LimiterAnswer, LimiterError>) -> PyResult<Py<PyAny>> {
    match answer.map_err(|error| exception(&error))? {
        LimiterAnswer::Decision(decision) => Ok(Py::new(py, decision)?.into_any()),
        LimiterAnswer::Refund(refund) => Ok(Py::new(py, refund)?.into_any()),
        LimiterAnswer::Reset => Ok(py.None()),
    }
}

/// Returns the exception for a call that could not be carried out.
fn exception(error: &LimiterError) -> PyErr {
    let message = ErrorChain(error).to_string();
    match error {
        LimiterError::Charge(error) => match error {
            core::ChargeError::UnknownLimit { .. } => exceptions::UnknownLimit::new_err(message),
            core::ChargeError::Id { .. } => exceptions::InvalidId::new_err(message),
            core::ChargeError::CostTooHigh { .. } => exceptions::InvalidCost::new_err(message),
            core::ChargeError::NoRefund { .. } => exceptions::NotRefundable::new_err(message),
            _ => exceptions::ChargeError::new_err(message),
        },
        LimiterError::Bill(_) => exceptions::InvalidBill::new_err(message),
        LimiterError::Rule(RuleLookupError::UnknownRule { .. }) => exceptions::UnknownRule::new_err(message),
        LimiterError::Rule(RuleLookupError::MissingSelector { selector, .. }) => {
            exceptions::SelectorError::new_err((selector.clone(), message))
        }
        LimiterError::Store(_) => exceptions::StoreError::new_err(message),
        _ => exceptions::ChargeError::new_err(message),
    }
}

fn parse_verb(verb: &str) -> PyResult<Verb> {
    match verb {
        "spend" => Ok(Verb::Spend),
        "check" => Ok(Verb::Check),
        "refund" => Ok(Verb::Refund),
        "reset" => Ok(Verb::Reset),
        _ => Err(PyValueError::new_err(format!("{verb:?} is not a call of a limiter"))),
    }
}
