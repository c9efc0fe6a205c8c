//! Decides about requests that no limit can decide.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollway_core::LogThrottle;

use super::{AdmitOutcome, AdmitReply};
use crate::layer::LOG_PAUSE;

/// Tells what happens to a request that no limit can decide: the server is unreachable, or the policy lacks the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request passes: an outage of the limiter is no outage of the service.
    #[default]
    Pass,
    /// The request is rejected with 503: an outage of the limiter does not lift the limit.
    Reject,
}

/// The `Retry-After` that a client gets meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The choice of the operator, and the log of what is not the limiter's outage but a mistake in a policy.
#[derive(Clone, Debug)]
pub(super) struct FailureHandler {
    pub(super) on_failure: OnFailure,
    log: Arc<LogThrottle>,
}

impl Default for FailureHandler {
    fn default() -> Self {
        let log = Arc::new(LogThrottle::new(LOG_PAUSE, Instant::now()));
        Self { on_failure: OnFailure::default(), log }
    }
}

impl FailureHandler {
    /// Returns the reply to a request that cannot be decided.
    pub(super) fn reply(&self) -> AdmitReply {
        match self.on_failure {
            OnFailure::Pass => AdmitOutcome::FailedOpen.into(),
            OnFailure::Reject => AdmitOutcome::Unavailable { retry_after: Some(RETRY_AFTER) }.into(),
        }
    }

    /// Logs that the policy cannot decide any request, and returns the reply to this one.
    pub(super) fn misconfigured(&self, error: &(dyn Error + 'static)) -> AdmitReply {
        if let Some(held_back) = self.log.allow(Instant::now()) {
            let on_failure = self.on_failure;
            tracing::error!(error, ?on_failure, held_back, "requests are not limited; check the policy");
        }
        self.reply()
    }
}
