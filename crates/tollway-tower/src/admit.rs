//! Who is asked whether a request may pass.
//!
//! | | asks |
//! |---|---|
//! | [`LocalLimit`], [`LocalRule`] | a limiter in this process |
//! | [`RemoteLimit`] | a server |
//! | [`Gatekeeper`](tollway_client::gatekeeper::Gatekeeper) | nobody: it knows what a master last said, and delays by itself |
//! | [`Delayed`](crate::Delayed) | one of these, and again later if it must |

mod circuit_breaker;
mod gatekeeper;
mod local_limit;
mod local_rule;
mod remote_limit;

use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollway_core::{Decision, Nanos, Verdict};

pub use self::local_limit::{LocalLimit, UnknownLimit};
pub use self::local_rule::{LocalRule, UnknownRule};
pub use self::remote_limit::{OnFailure, RemoteLimit};
use crate::LogInfo;

/// Says whether one more request may pass.
pub trait Admit: Send + Sync + 'static {
    /// The status of a rejection, unless the layer has another.
    const STATUS: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    /// May one more request of this id pass?
    fn admit(&self, id: &[u8]) -> AdmitFuture;

    /// The same, with something that whoever is asked may log.
    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        let _ = log_info;
        self.admit(id)
    }

    /// Adds the headers that say how the id stands after this decision of [`admit`](Self::admit).
    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        let _ = (id, decision, headers);
    }

    /// How far apart requests of the id pass that come too fast, if that is known.
    fn interval(&self, id: &[u8]) -> Option<Duration> {
        let _ = id;
        None
    }
}

/// The answer, or what will be.
pub enum AdmitFuture {
    /// It is there.
    Ready(AdmitReply),
    /// It must be waited for. To drop this is to withdraw the request.
    Pending(PendingReply),
}

/// An answer that is not there yet.
pub type PendingReply = Pin<Box<dyn Future<Output = AdmitReply> + Send>>;

/// What was said about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitReply {
    /// May it pass?
    pub outcome: AdmitOutcome,
    /// What a limiter decided, for who wants to say more about it.
    pub decision: Option<Decision>,
}

/// May a request pass?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmitOutcome {
    /// At once.
    Passed,
    /// Because nobody gave an answer, and that is what to do then.
    FailedOpen,
    /// It waited for its turn.
    Delayed {
        /// How long.
        by: Duration,
    },
    /// It came too soon.
    Rejected {
        /// When it may come again; `None` if no waiting helps.
        retry_after: Option<Duration>,
    },
    /// Nobody gave an answer, and that is what to do then. Nobody is over a limit.
    Unavailable {
        /// When it may come again.
        retry_after: Option<Duration>,
    },
    /// What was taken for its id is none.
    Unidentified,
}

impl From<AdmitOutcome> for AdmitReply {
    fn from(outcome: AdmitOutcome) -> Self {
        Self { outcome, decision: None }
    }
}

impl From<Decision> for AdmitReply {
    fn from(decision: Decision) -> Self {
        let outcome = outcome(decision.verdict, decision.retry_nanos);
        Self { outcome, decision: Some(decision) }
    }
}

fn outcome(verdict: Verdict, retry_after: Nanos) -> AdmitOutcome {
    let retry_after = (!retry_after.is_forever()).then(|| retry_after.into());
    match verdict {
        Verdict::Allow | Verdict::Unlimited | Verdict::AllowFull => AdmitOutcome::Passed,
        Verdict::AllowAway => AdmitOutcome::FailedOpen,
        Verdict::Deny | Verdict::DenyFull => AdmitOutcome::Rejected { retry_after },
        Verdict::DenyAway => AdmitOutcome::Unavailable { retry_after },
    }
}
