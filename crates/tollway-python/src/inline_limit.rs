//! A limit whose numbers come with the call.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use tollway::core::Nanos;
use tollway::core::algorithm::TokenBucket;

use crate::bill_request::wrong_type;

/// A token bucket whose numbers come with the call, in place of the name of a limit.
///
///     limiter.spend(InlineLimit(count=30, period=60, burst=16), "alice")
///
/// Up to `burst` units can be taken at once, and `count` units come back every `period`. The period is a number of
/// seconds, or a text such as `"1m30s"`. Without a burst, it is the count.
///
/// A bucket belongs to its id alone, whatever the numbers are: they may change from one call to the next. It is the
/// bucket that `CL.THROTTLE id burst-1 count period` has in the same store.
#[pyclass(frozen, eq, module = "tollway")]
#[derive(PartialEq)]
pub(crate) struct InlineLimit(pub(crate) TokenBucket);

#[pymethods]
impl InlineLimit {
    #[new]
    #[pyo3(signature = (*, count, period, burst=None))]
    fn new(
        count: &Bound<'_, PyAny>,
        period: &Bound<'_, PyAny>,
        burst: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let count = whole("count", count)?;
        let burst = burst.map_or(Ok(count), |burst| whole("burst", burst))?;
        let numbers = TokenBucket::new(burst, count, span(period)?);
        numbers.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The units that come back in a period.
    #[getter]
    const fn count(&self) -> u64 {
        self.0.count()
    }

    /// The seconds in which `count` units come back.
    #[getter]
    fn period(&self) -> f64 {
        self.0.period().as_secs_f64()
    }

    /// The units that can be taken at once.
    #[getter]
    const fn burst(&self) -> u64 {
        self.0.burst()
    }

    /// Returns the period as a text with a unit, which is exact where a float is not.
    #[getter]
    fn _period_text(&self) -> String {
        self.0.period().to_string()
    }

    fn __repr__(&self) -> String {
        format!("InlineLimit(count={}, period={:?}, burst={})", self.count(), self.period(), self.burst())
    }
}

fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(wrong_type(&format!("{name} must be an int"), value));
    }
    match value.extract() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(PyValueError::new_err(format!("{name} must be from 1 to {}, not {value}", u64::MAX))),
    }
}

/// Reads a period: a number of seconds, or a text with units.
fn span(period: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(text) = period.cast::<PyString>() {
        let span = text.to_cow()?.parse::<Nanos>();
        return span
            .map(Nanos::as_duration)
            .map_err(|error| PyValueError::new_err(format!("period {text:?}: {error}")));
    }
    let is_number = period.is_instance_of::<PyInt>() || period.is_instance_of::<PyFloat>();
    if !is_number || period.is_instance_of::<PyBool>() {
        let expected = "period must be a number of seconds, or a text such as '1m30s'";
        return Err(wrong_type(expected, period));
    }
    let seconds = period.extract::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| {
        PyValueError::new_err(format!("period must be above 0 seconds and at most 292 years, not {period}"))
    })
}
