//! One limit of a server.

use std::sync::Arc;

use http::HeaderMap;
use tollway_client::http::awaiting::{AskError, Client};
use tollway_client::http::{ChargeRequest, ServerResponse as Said};
use tollway_core::{Decision, Nanos, Verb, Verdict};

use super::patience::Patience;
use super::{Admission, Admit, Answer, Asked};
use crate::rejection;

/// Asks a server over HTTP under one of its limits.
///
/// Each answer is waited for until the client's deadline. After three that did not come the server is left alone for half a
/// second at a time, and requests wait for nothing.
#[derive(Clone)]
pub struct RemoteLimit {
    client: Client,
    limit: Arc<str>,
    cost: u64,
    on_failure: OnFailure,
    patience: Arc<Patience>,
}

/// What becomes of a request about which the server gave no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It passes: a limiter must not take down what it protects.
    #[default]
    Pass,
    /// It is rejected with 503: nobody gets more than the limit by breaking the limiter.
    Reject,
}

impl RemoteLimit {
    /// Takes one from the bucket of each request's identifier under this limit.
    pub fn new(client: Client, limit: &str) -> Self {
        let patience = Arc::new(Patience::new());
        Self { client, limit: limit.into(), cost: 1, on_failure: OnFailure::default(), patience }
    }

    /// Takes this much instead of one.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// With this for requests about which the server gives no answer.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    async fn spend(&self, identifier: &str) -> Result<Said, AskError> {
        self.client.ask(Verb::Spend, &[ChargeRequest::new(&self.limit, identifier, self.cost)]).await
    }

    fn read(&self, said: Result<Said, AskError>) -> Answer {
        match said {
            Ok(said) => {
                self.patience.answered();
                decision(said).map_or_else(|| self.failed(), Answer::from)
            }
            Err(AskError::Answer(problem)) => {
                // It is there, but cannot answer this: a limit that it does not have, or an id that is none.
                self.patience.answered();
                tracing::debug!(limit = &*self.limit, %problem, "the server has no answer");
                self.failed()
            }
            Err(error) => {
                self.patience.failed();
                tracing::debug!(limit = &*self.limit, %error, "no answer");
                self.failed()
            }
        }
    }

    fn failed(&self) -> Answer {
        match self.on_failure {
            OnFailure::Pass => Admission::PassedUnasked.into(),
            OnFailure::Reject => {
                Admission::Unavailable { retry_after: Some(crate::rejection::SECOND) }.into()
            }
        }
    }
}

impl Admit for RemoteLimit {
    fn ask(&self, identifier: &[u8]) -> Asked {
        if !self.patience.may_ask() {
            return Asked::Answered(self.failed());
        }
        let (this, identifier) = (self.clone(), String::from_utf8_lossy(identifier).into_owned());
        Asked::Awaiting(Box::pin(async move { this.read(this.spend(&identifier).await) }))
    }

    fn describe(&self, _identifier: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        rejection::describe_standing(&self.limit, decision, headers);
    }
}

/// The same as a limiter would have decided.
fn decision(said: Said) -> Option<Decision> {
    let Said::Decision { allowed, remaining, retry_after, reset_after, reason, degraded, .. } = said else {
        return None;
    };
    let verdict = match (allowed, reason.as_deref()) {
        (true, Some("store")) => Verdict::AllowAway,
        (true, Some("full")) => Verdict::AllowFull,
        (true, _) if remaining.is_none() => Verdict::Unlimited,
        (true, _) => Verdict::Allow,
        (false, Some("store")) => Verdict::DenyAway,
        (false, Some("full")) => Verdict::DenyFull,
        (false, _) => Verdict::Deny,
    };
    Some(Decision {
        verdict,
        remaining: remaining.unwrap_or(u64::MAX),
        retry_after: retry_after.unwrap_or(Nanos::FOREVER),
        reset_after: reset_after.unwrap_or(Nanos::FOREVER),
        charge: 0,
        degraded,
    })
}
