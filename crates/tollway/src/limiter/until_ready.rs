//! Waiting until a cost fits, with a timeout.

use std::time::{Duration, Instant};

use futures_timer::Delay;
use thiserror::Error;
use tollway_core::{ChargeError, Decision};

/// The error of a wait that cannot end in time, or that never began.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UntilReadyError {
    /// The charge was not valid: an unknown limit, an id of the wrong format, or a cost that can never fit.
    #[error(transparent)]
    Charge(#[from] ChargeError),
    /// The cost does not fit before the timeout. Nothing was taken.
    #[error("{}", timed_out(.decision.retry_after()))]
    TimedOut {
        /// The last denial, whose `retry_after` counts from when the wait was given up.
        decision: Decision,
    },
}

fn timed_out(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) => format!("the request would be allowed in {wait:?} at the earliest, after its timeout"),
        None => "the request is denied, and waiting does not help".to_owned(),
    }
}

/// Asks again after the wait that each denial suggests, until the request is allowed or the next try would come after
/// the timeout.
pub(super) async fn until_ready<A>(
    timeout: Duration,
    mut ask: impl FnMut() -> A,
) -> Result<Decision, UntilReadyError>
where
    A: Future<Output = Result<Decision, ChargeError>>,
{
    let started = Instant::now();
    loop {
        let decision = ask().await?;
        if decision.allowed() {
            return Ok(decision);
        }
        let in_time = |wait: &Duration| started.elapsed().saturating_add(*wait) <= timeout;
        let Some(wait) = decision.retry_after().filter(in_time) else {
            return Err(UntilReadyError::TimedOut { decision });
        };
        Delay::new(wait).await;
    }
}
