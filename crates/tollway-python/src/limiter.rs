//! Limits that a configuration has, charged by their names.

use std::borrow::Cow;
use std::path::Path;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PySequence, PyString};
use tollway::config::{Config, ConfigErrors};
use tollway::core::{self, ChargeKind, ChargeRequest, ErrorChain, Verb};
use tollway::engine::Engine;
use tollway::limiter::LimiterError;
use tollway::{AsyncLimiter, BlockingLimiter, Clock, block_on};

use crate::clock::ManualClock;
use crate::decision::{Decision, Refund};
use crate::pending_calls::{PendingPyReply, Reply};
use crate::process_engine::ProcessEngine;
use crate::selectors::encoded;

/// The exceptions of the Python package that this module raises.
mod exceptions {
    use pyo3::import_exception;

    import_exception!(tollway._errors, ChargeError);
    import_exception!(tollway._errors, ConfigError);
    import_exception!(tollway._errors, InvalidBill);
    import_exception!(tollway._errors, InvalidCost);
    import_exception!(tollway._errors, InvalidId);
    import_exception!(tollway._errors, NotRefundable);
    import_exception!(tollway._errors, StoreError);
    import_exception!(tollway._errors, UnknownLimit);
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
    /// Creates a limiter from the text of a configuration file.
    #[staticmethod]
    fn from_yaml(text: &str, clock: Option<&Bound<'_, ManualClock>>) -> PyResult<Self> {
        Self::open(Config::parse(text, "yaml"), clock)
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
                return Ok(Py::new(py, Decision::from_core(&decision, &request.limit))?.into_any());
            }
        }
        self.run(py, Verb::Spend, &[request])
    }

    /// Carries out `verb` for these charges. Blocks over Redis, without the interpreter's lock.
    fn call(&self, py: Python<'_>, verb: &str, charges: Vec<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let verb = parse_verb(verb)?;
        self.run(py, verb, &charge_requests(verb, &charges)?)
    }

    /// Notes that this process was forked. Called in the child.
    fn forked(&self) {
        self.engine.on_fork();
    }
}

impl NativeLimiter {
    /// Returns the reply to a call that the event loop waits for.
    pub(crate) fn reply(&self, verb: &str, charges: &[Bound<'_, PyAny>]) -> PyResult<PendingPyReply> {
        let verb = parse_verb(verb)?;
        let requests = charge_requests(verb, charges)?;
        let engine = Engine::clone(&**self.engine.current()?);
        Ok(Box::pin(async move {
            let answer = carry_out(engine, verb, &requests).await;
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

    fn run(&self, py: Python<'_>, verb: Verb, requests: &[ChargeRequest<'_>]) -> PyResult<Py<PyAny>> {
        let engine = self.engine.current()?;
        let answer = if self.engine.is_shared() {
            let limiter = AsyncLimiter::from(Engine::clone(&engine)).blocking();
            py.detach(|| carry_out_blocking(&limiter, verb, requests))
        } else {
            // In memory the future is ready at once, in less time than giving the interpreter's lock back takes.
            block_on(carry_out(Engine::clone(&engine), verb, requests))
        };
        answer_object(py, answer)
    }
}

async fn carry_out(
    engine: Engine,
    verb: Verb,
    requests: &[ChargeRequest<'_>],
) -> Result<LimiterAnswer, LimiterError> {
    let limiter = AsyncLimiter::from(engine);
    let decided = |decision| LimiterAnswer::decided(decision, requests);
    match verb {
        Verb::Spend => limiter.spend_all(requests).await.map(decided),
        Verb::Check => limiter.check_all(requests).await.map(decided),
        Verb::Refund => limiter.refund_all(requests).await.map(|refund| LimiterAnswer::Refund(refund.into())),
        Verb::Reset => limiter.reset_all(requests).await.map(|()| LimiterAnswer::Reset),
    }
}

/// Carries out a call as [`carry_out`] does, and puts the thread to sleep until Redis has answered.
fn carry_out_blocking(
    limiter: &BlockingLimiter,
    verb: Verb,
    requests: &[ChargeRequest<'_>],
) -> Result<LimiterAnswer, LimiterError> {
    let decided = |decision| LimiterAnswer::decided(decision, requests);
    match verb {
        Verb::Spend => limiter.spend_all(requests).map(decided),
        Verb::Check => limiter.check_all(requests).map(decided),
        Verb::Refund => limiter.refund_all(requests).map(|refund| LimiterAnswer::Refund(refund.into())),
        Verb::Reset => limiter.reset_all(requests).map(|()| LimiterAnswer::Reset),
    }
}

impl LimiterAnswer {
    fn decided(decision: core::Decision, requests: &[ChargeRequest<'_>]) -> Self {
        Self::Decision(Decision::from_core(&decision, &requests[decision.charge].limit))
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

/// Reads charges: each is `(limit, id)` with a cost of 1, or `(limit, id, cost)`. A reset has no costs.
fn charge_requests(verb: Verb, charges: &[Bound<'_, PyAny>]) -> PyResult<Vec<ChargeRequest<'static>>> {
    let mut requests: Vec<_> = charges.iter().map(|charge| read_charge(charge)).collect::<PyResult<_>>()?;
    if !verb.has_cost() {
        requests.iter_mut().for_each(|request| request.cost = 0);
    }
    Ok(requests)
}

fn read_charge(charge: &Bound<'_, PyAny>) -> PyResult<ChargeRequest<'static>> {
    let wrong =
        || PyTypeError::new_err(format!("a charge is (limit, id) or (limit, id, cost), not {charge}"));
    if charge.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let parts = charge.cast::<PySequence>().map_err(|_| wrong())?;
    match parts.len()? {
        2 => charge_request(&parts.get_item(0)?, &parts.get_item(1)?, &PyInt::new(charge.py(), 1)),
        3 => charge_request(&parts.get_item(0)?, &parts.get_item(1)?, &parts.get_item(2)?),
        _ => Err(wrong()),
    }
}

fn charge_request(
    limit: &Bound<'_, PyAny>,
    id: &Bound<'_, PyAny>,
    cost: &Bound<'_, PyAny>,
) -> PyResult<ChargeRequest<'static>> {
    let limit = limit
        .cast::<PyString>()
        .map_err(|_| PyTypeError::new_err(format!("limit must be a str, not {}", type_name(limit))))?;
    let limit = Cow::Owned(limit.to_cow()?.into_owned());
    Ok(ChargeRequest {
        limit,
        id: Cow::Owned(id_bytes(id)?),
        cost: cost_units(cost)?,
        kind: ChargeKind::Spend,
        inline: None,
    })
}

fn id_bytes(id: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = id.cast::<PyString>() {
        return encoded(text);
    }
    if let Ok(bytes) = id.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if id.is_instance_of::<PyInt>() && !id.is_instance_of::<PyBool>() {
        return encoded(&id.str()?);
    }
    // An id of `None` or `True` would be one bucket for everybody, so no other type is converted.
    Err(PyTypeError::new_err(format!("id must be a str, bytes or an int, not {}", type_name(id))))
}

fn cost_units(cost: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !cost.is_instance_of::<PyInt>() || cost.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("cost must be an int, not {}", type_name(cost))));
    }
    cost.extract().map_err(|_| {
        exceptions::InvalidCost::new_err(format!("cost must be from 0 to {}, not {cost}", u64::MAX))
    })
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "this type".to_owned(), |name| name.to_string())
}
