//! [`Admit`] for a gatekeeper, which decides from the delays that its master published.

use http::StatusCode;
use tollway_client::gatekeeper::{self, AdmissionDecision, Gatekeeper};

use super::{Admit, AdmitFuture, AdmitOutcome};
use crate::LogInfo;

/// Delays and rejects requests within the gatekeeper's own bounds. A rejection is a 503, which Smockron clients expect.
impl Admit for Gatekeeper {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        admit_future(self.decide(id, &[]))
    }

    /// Sends the log info to the master with the accounting message.
    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        admit_future(self.decide(id, &log_info.bytes()))
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn waiting(&self) -> usize {
        self.stats().waiting
    }
}

fn admit_future(decision: AdmissionDecision) -> AdmitFuture {
    match decision {
        AdmissionDecision::Wait(wait) => {
            AdmitFuture::Pending(Box::pin(async { outcome(wait.finish().await).into() }))
        }
        AdmissionDecision::Reject { retry_after, .. } => {
            AdmitFuture::Ready(AdmitOutcome::Rejected { retry_after: Some(retry_after) }.into())
        }
        // A gatekeeper fails open, so a decision that it may add later passes too.
        _ => AdmitFuture::Ready(AdmitOutcome::Passed.into()),
    }
}

fn outcome(admission: gatekeeper::Admission) -> AdmitOutcome {
    match admission {
        gatekeeper::Admission::Delayed { by } => AdmitOutcome::Delayed { by },
        gatekeeper::Admission::Rejected { retry_after, .. } => {
            AdmitOutcome::Rejected { retry_after: Some(retry_after) }
        }
        // As above.
        _ => AdmitOutcome::Passed,
    }
}
