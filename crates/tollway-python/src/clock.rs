//! A clock for tests, which moves only when it is moved.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tollway::Clock;
use tollway::core::Timestamp;

/// A clock that moves only when it is moved, so that a test of limits need not wait.
///
///     clock = ManualClock()
///     rl = RateLimit(clock=clock)
///     clock.advance(60)
///
/// Times are seconds since the Unix epoch.
#[pyclass(frozen, module = "tollway")]
pub(crate) struct ManualClock(pub(crate) Clock);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (now=0.0))]
    fn new(now: f64) -> PyResult<Self> {
        Ok(Self(Clock::manual(timestamp(now)?)))
    }

    /// Returns the time of this clock.
    #[getter]
    #[allow(clippy::cast_precision_loss, reason = "Python's own clock is a float, too")]
    fn now(&self) -> f64 {
        self.0.now().as_nanos() as f64 / 1e9
    }

    /// Sets the clock to this time.
    fn set(&self, now: f64) -> PyResult<()> {
        self.0.set(timestamp(now)?);
        Ok(())
    }

    /// Moves the clock forward by so many seconds.
    fn advance(&self, seconds: f64) -> PyResult<()> {
        let on = timestamp(seconds)?.as_nanos();
        let now = self.0.now().as_nanos().saturating_add(on).min(Timestamp::MAX.as_nanos());
        self.0.set(Timestamp::from_nanos(now));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("ManualClock({:?})", self.now())
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what would be lost is rejected")]
fn timestamp(seconds: f64) -> PyResult<Timestamp> {
    // A timestamp has room for 584 years. The last ones are left out, so that adding a period does not overflow.
    if (0.0..=9e9).contains(&seconds) {
        Ok(Timestamp::from_nanos((seconds * 1e9).round() as u64))
    } else {
        Err(PyValueError::new_err(format!("a time is a number of seconds from 0 to 9e9, not {seconds}")))
    }
}
