//! One limit of a server.

use std::sync::Arc;

use http::HeaderMap;
use tollway_client::ClientError;
use tollway_client::http::Client;
use tollway_core::Decision;

use super::circuit_breaker::CircuitBreaker;
use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};
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
    circuit_breaker: Arc<CircuitBreaker>,
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
    /// Takes one from the bucket of each request's id under this limit.
    pub fn new(client: Client, limit: &str) -> Self {
        let circuit_breaker = Arc::new(CircuitBreaker::new());
        Self { client, limit: limit.into(), cost: 1, on_failure: OnFailure::default(), circuit_breaker }
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

    fn read(&self, decided: Result<Decision, ClientError>) -> AdmitReply {
        match decided {
            Ok(decision) => {
                self.circuit_breaker.answered();
                AdmitReply::from(decision)
            }
            Err(error @ (ClientError::Problem { .. } | ClientError::InvalidResponse { .. })) => {
                // The server is there, but cannot decide this: the limit does not exist, or the id is invalid.
                self.circuit_breaker.answered();
                tracing::debug!(limit = &*self.limit, %error, "the server cannot decide");
                self.failed()
            }
            Err(error) => {
                self.circuit_breaker.failed();
                tracing::debug!(limit = &*self.limit, %error, "no response from the server");
                self.failed()
            }
        }
    }

    fn failed(&self) -> AdmitReply {
        match self.on_failure {
            OnFailure::Pass => AdmitOutcome::FailedOpen.into(),
            OnFailure::Reject => {
                AdmitOutcome::Unavailable { retry_after: Some(crate::rejection::SECOND) }.into()
            }
        }
    }
}

impl Admit for RemoteLimit {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        if !self.circuit_breaker.allows_call() {
            return AdmitFuture::Ready(self.failed());
        }
        let (this, id) = (self.clone(), String::from_utf8_lossy(id).into_owned());
        AdmitFuture::Pending(Box::pin(async move {
            this.read(this.client.spend(&this.limit, &id, this.cost).await)
        }))
    }

    fn add_headers(&self, _id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        rejection::describe_standing(&self.limit, decision, headers);
    }
}
