//! Sources of decisions: each implements [`Admit`], which decides whether one more request may pass.
//!
//! | type | feature | decides by |
//! |---|---|---|
//! | `LocalLimit`, `LocalRule` | `local` | a limiter in this process |
//! | `RemoteLimit` | `remote` | a server, over HTTP |
//! | `client::gatekeeper::Gatekeeper` | `gatekeeper` | the delays that a master last published; it makes requests wait by itself |
//! | [`Delayed`](crate::Delayed) | none | one of these, and retries a rejected request after its `retry_after` |

#[cfg(feature = "gatekeeper")]
mod gatekeeper;
#[cfg(feature = "local")]
mod local_limit;
#[cfg(feature = "local")]
mod local_rule;
#[cfg(any(feature = "local", feature = "remote"))]
mod on_failure;
#[cfg(feature = "remote")]
mod remote_limit;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollway_core::{Decision, Nanos, Verdict};

#[cfg(feature = "local")]
pub use self::local_limit::LocalLimit;
#[cfg(feature = "local")]
pub use self::local_rule::LocalRule;
#[cfg(any(feature = "local", feature = "remote"))]
pub use self::on_failure::OnFailure;
#[cfg(feature = "remote")]
pub use self::remote_limit::RemoteLimit;
use crate::{LogInfo, Unidentified};

/// Decides whether one more request of a client may pass.
pub trait Admit: Send + Sync + 'static {
    /// Counts one request of the client `id` and decides whether it may pass.
    fn admit(&self, id: &[u8]) -> AdmitFuture;

    /// Decides like [`admit`](Self::admit), and passes log info on to a source that keeps a log.
    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        let _ = log_info;
        self.admit(id)
    }

    /// Adds the `RateLimit` headers that describe this decision of [`admit`](Self::admit).
    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        let _ = (id, decision, headers);
    }

    /// Returns the status that a rejection has, unless the layer sets another.
    fn status(&self) -> StatusCode {
        StatusCode::TOO_MANY_REQUESTS
    }

    /// Returns the number of requests that wait for their turn now.
    fn waiting(&self) -> usize {
        0
    }

    /// Returns the time between two requests that pass at the limit's rate, if it is known.
    fn interval(&self, id: &[u8]) -> Option<Duration> {
        let _ = id;
        None
    }
}

impl<A: Admit + ?Sized> Admit for Arc<A> {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        (**self).admit(id)
    }

    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        (**self).admit_with_log_info(id, log_info)
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        (**self).add_headers(id, decision, headers);
    }

    fn status(&self) -> StatusCode {
        (**self).status()
    }

    fn waiting(&self) -> usize {
        (**self).waiting()
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        (**self).interval(id)
    }
}

/// A reply that is either there or must be awaited. Dropping a pending one withdraws the request.
#[must_use = "a request must not go on before its reply is known"]
pub enum AdmitFuture {
    /// The reply was made without waiting, and costs no allocation.
    Ready(AdmitReply),
    /// The reply takes time.
    Pending(PendingReply),
}

/// A future that resolves to the reply about one request.
pub type PendingReply = Pin<Box<dyn Future<Output = AdmitReply> + Send>>;

impl AdmitFuture {
    /// Returns the reply, and waits for it if it must.
    pub async fn reply(self) -> AdmitReply {
        match self {
            Self::Ready(reply) => reply,
            Self::Pending(pending) => pending.await,
        }
    }
}

impl fmt::Debug for AdmitFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(reply) => f.debug_tuple("Ready").field(reply).finish(),
            Self::Pending(_) => f.debug_tuple("Pending").finish_non_exhaustive(),
        }
    }
}

/// The outcome of one request, with the decision that led to it. Made from an [`AdmitOutcome`] or a [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct AdmitReply {
    /// The outcome that the layer acts on.
    pub outcome: AdmitOutcome,
    /// The limiter's decision, if a limiter made one. The `RateLimit` headers are written from it.
    pub decision: Option<Decision>,
}

/// The outcome of one request: it passes, waits or is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum AdmitOutcome {
    /// The request passes without a wait.
    Passed,
    /// The request passes because nothing can decide, and the configuration says to fail open: the server or the store
    /// is unreachable, or the policy lacks the limit.
    FailedOpen,
    /// The request waited for its turn and passes now.
    Delayed {
        /// The time that it waited.
        by: Duration,
    },
    /// The request is over its limit.
    Rejected {
        /// The time until the same request would be allowed; `None` if waiting does not help.
        retry_after: Option<Duration>,
    },
    /// The request is rejected because nothing can decide. Its client is not over a limit.
    Unavailable {
        /// The time after which a client should try again.
        retry_after: Option<Duration>,
    },
    /// The request has no client id, or one that its limit does not accept.
    Unidentified(Unidentified),
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

/// Maps a verdict to the outcome of the request.
fn outcome(verdict: Verdict, retry_after: Nanos) -> AdmitOutcome {
    let retry_after = (!retry_after.is_forever()).then(|| retry_after.into());
    match verdict {
        Verdict::Allow | Verdict::Unlimited | Verdict::AllowFull => AdmitOutcome::Passed,
        Verdict::AllowUnreachable => AdmitOutcome::FailedOpen,
        Verdict::Deny | Verdict::DenyFull => AdmitOutcome::Rejected { retry_after },
        Verdict::DenyUnreachable => AdmitOutcome::Unavailable { retry_after },
    }
}
