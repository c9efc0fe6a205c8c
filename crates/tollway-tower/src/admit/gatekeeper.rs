//! A gatekeeper, which knows by itself.

use http::StatusCode;
use tollway_client::gatekeeper::{self, AdmissionDecision, Gatekeeper};

use super::{Admit, AdmitFuture, AdmitOutcome};
use crate::LogInfo;

/// Delays and rejects by what the gatekeeper knows, within its own bounds; what must not wait any longer gets a 503.
impl Admit for Gatekeeper {
    const STATUS: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    fn admit(&self, id: &[u8]) -> AdmitFuture {
        asked(self.decide(id, &[]))
    }

    /// The master is told the log info.
    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        asked(self.decide(id, &log_info.bytes()))
    }
}

fn asked(decision: AdmissionDecision) -> AdmitFuture {
    match decision {
        AdmissionDecision::Pass => AdmitFuture::Ready(AdmitOutcome::Passed.into()),
        AdmissionDecision::Wait(wait) => {
            AdmitFuture::Pending(Box::pin(async { admission(wait.finish().await).into() }))
        }
        AdmissionDecision::Reject { retry_after, .. } => {
            AdmitFuture::Ready(AdmitOutcome::Rejected { retry_after: Some(retry_after) }.into())
        }
    }
}

fn admission(admission: gatekeeper::Admission) -> AdmitOutcome {
    match admission {
        gatekeeper::Admission::Delayed { by } => AdmitOutcome::Delayed { by },
        gatekeeper::Admission::Rejected { retry_after, .. } => {
            AdmitOutcome::Rejected { retry_after: Some(retry_after) }
        }
        // It fails open, whatever else it will have to say.
        _ => AdmitOutcome::Passed,
    }
}
