//! Who is asked whether a request may pass.
//!
//! | | asks |
//! |---|---|
//! | [`LocalLimit`], [`LocalRule`] | a limiter in this process |
//! | [`RemoteLimit`] | a server |
//! | [`Gatekeeper`](tollway_client::gatekeeper::Gatekeeper) | nobody: it knows what a master last said, and delays by itself |
//! | [`Delayed`](crate::Delayed) | one of these, and again later if it must |

mod gatekeeper;
mod limit;
mod patience;
mod remote;
mod rule;

use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollway_core::{Decision, Nanos, Verdict};

pub use self::limit::{LocalLimit, UnknownLimit};
pub use self::remote::{OnFailure, RemoteLimit};
pub use self::rule::{LocalRule, UnknownRule};
use crate::LogInfo;

/// Says whether one more request may pass.
pub trait Admit: Send + Sync + 'static {
    /// The status of a rejection, unless the layer has another.
    const STATUS: StatusCode = StatusCode::TOO_MANY_REQUESTS;

    /// May one more request of this identifier pass?
    fn ask(&self, identifier: &[u8]) -> Asked;

    /// The same, with something that whoever is asked may log.
    fn ask_with(&self, identifier: &[u8], log_info: &LogInfo<'_>) -> Asked {
        let _ = log_info;
        self.ask(identifier)
    }

    /// Adds the headers that say how the identifier stands after this decision of [`ask`](Self::ask).
    fn describe(&self, identifier: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        let _ = (identifier, decision, headers);
    }

    /// How far apart requests of the identifier pass that come too fast, if that is known.
    fn interval(&self, identifier: &[u8]) -> Option<Duration> {
        let _ = identifier;
        None
    }
}

/// The answer, or what will be.
pub enum Asked {
    /// It is there.
    Answered(Answer),
    /// It must be waited for. To drop this is to withdraw the request.
    Awaiting(Awaiting),
}

/// An answer that is not there yet.
pub type Awaiting = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What was said about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// May it pass?
    pub admission: Admission,
    /// What a limiter decided, for who wants to say more about it.
    pub decision: Option<Decision>,
}

/// May a request pass?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// At once.
    Passed,
    /// Because nobody gave an answer, and that is what to do then.
    PassedUnasked,
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
    /// What was taken for its identifier is none.
    Unidentified,
}

impl From<Admission> for Answer {
    fn from(admission: Admission) -> Self {
        Self { admission, decision: None }
    }
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        let admission = admission(decision.verdict, decision.retry_after);
        Self { admission, decision: Some(decision) }
    }
}

fn admission(verdict: Verdict, retry_after: Nanos) -> Admission {
    let retry_after = (!retry_after.is_forever()).then(|| retry_after.into());
    match verdict {
        Verdict::Allow | Verdict::Unlimited | Verdict::AllowFull => Admission::Passed,
        Verdict::AllowAway => Admission::PassedUnasked,
        Verdict::Deny | Verdict::DenyFull => Admission::Rejected { retry_after },
        Verdict::DenyAway => Admission::Unavailable { retry_after },
    }
}
