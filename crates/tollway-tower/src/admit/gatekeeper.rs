//! A gatekeeper, which knows by itself.

use http::StatusCode;
use tollway_client::gatekeeper::{self, Gate, Gatekeeper};

use super::{Admission, Admit, Asked};
use crate::LogInfo;

/// Delays and rejects by what the gatekeeper knows, within its own bounds; what must not wait any longer gets a 503.
impl Admit for Gatekeeper {
    const STATUS: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    fn ask(&self, identifier: &[u8]) -> Asked {
        asked(self.decide(identifier, &[]))
    }

    /// The master is told the log info.
    fn ask_with(&self, identifier: &[u8], log_info: &LogInfo<'_>) -> Asked {
        asked(self.decide(identifier, &log_info.bytes()))
    }
}

fn asked(gate: Gate) -> Asked {
    match gate {
        Gate::Pass => Asked::Answered(Admission::Passed.into()),
        Gate::Wait(wait) => Asked::Awaiting(Box::pin(async { admission(wait.over().await).into() })),
        Gate::Reject { retry_after, .. } => {
            Asked::Answered(Admission::Rejected { retry_after: Some(retry_after) }.into())
        }
    }
}

fn admission(admission: gatekeeper::Admission) -> Admission {
    match admission {
        gatekeeper::Admission::Delayed { by } => Admission::Delayed { by },
        gatekeeper::Admission::Rejected { retry_after, .. } => {
            Admission::Rejected { retry_after: Some(retry_after) }
        }
        // It fails open, whatever else it will have to say.
        _ => Admission::Passed,
    }
}
