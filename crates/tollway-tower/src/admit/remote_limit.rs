//! Decides by one limit of a server.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;
use tollway_client::ClientError;
use tollway_client::http::Client;
use tollway_core::{Backoff, CircuitBreaker, Decision};

use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};
use crate::{rate_limit_headers, rejection};

/// The number of failures in a row that opens the circuit.
const FAILURES_MAX: u32 = 3;
/// The time between two probes while the circuit is open.
const PAUSE: Duration = Duration::from_millis(500);
/// The jitter of probes: none, because each process has its own start.
const NO_JITTER: u32 = u32::MAX;

/// Charges each request to one limit of a server, over HTTP.
///
/// A reply is awaited until the client's timeout. Three failures in a row open a circuit breaker: from then on requests
/// do not wait, and one probe in half a second finds out whether the server is back.
#[derive(Clone)]
pub struct RemoteLimit {
    client: Client,
    limit: Arc<str>,
    cost: u64,
    on_failure: OnFailure,
    circuit_breaker: Arc<Mutex<CircuitBreaker>>,
}

/// Tells what happens to a request while the server is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request passes: an outage of the limiter is no outage of the service.
    #[default]
    Pass,
    /// The request is rejected with 503: an outage of the limiter does not lift the limit.
    Reject,
}

impl RemoteLimit {
    /// Charges a cost of 1 to the bucket that the request's client has under `limit`.
    pub fn new(client: Client, limit: &str) -> Self {
        let circuit_breaker =
            Arc::new(Mutex::new(CircuitBreaker::new(FAILURES_MAX, Backoff::new(PAUSE, PAUSE))));
        Self { client, limit: limit.into(), cost: 1, on_failure: OnFailure::default(), circuit_breaker }
    }

    /// Sets the cost of each request (default: 1).
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets what happens to requests while the server is unreachable (default: they pass).
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    fn reply(&self, decision: Result<Decision, ClientError>) -> AdmitReply {
        match decision {
            Ok(decision) => {
                self.breaker().record_success();
                AdmitReply::from(decision)
            }
            Err(error @ (ClientError::Problem { .. } | ClientError::InvalidResponse { .. })) => {
                // The server works, but not for this request: its policy lacks the limit, or the id is malformed.
                self.breaker().record_success();
                let error: &(dyn Error + 'static) = &error;
                tracing::debug!(limit = &*self.limit, error, "the server cannot decide");
                self.failure()
            }
            Err(error) => {
                self.breaker().record_failure(Instant::now().into_std(), NO_JITTER);
                // As a `dyn Error`, so that its sources are logged too.
                let error: &(dyn Error + 'static) = &error;
                tracing::debug!(limit = &*self.limit, error, "no response from the server");
                self.failure()
            }
        }
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.circuit_breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> AdmitReply {
        match self.on_failure {
            OnFailure::Pass => AdmitOutcome::FailedOpen.into(),
            OnFailure::Reject => {
                AdmitOutcome::Unavailable { retry_after: Some(rejection::DEFAULT_RETRY_AFTER) }.into()
            }
        }
    }
}

impl fmt::Debug for RemoteLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, cost, on_failure, circuit_breaker, .. } = self;
        f.debug_struct("RemoteLimit")
            .field("limit", limit)
            .field("cost", cost)
            .field("on_failure", on_failure)
            .field("circuit_breaker", circuit_breaker)
            .finish_non_exhaustive()
    }
}

impl Admit for RemoteLimit {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        // The protocol has no other ids. Not a failure: a client must not choose an id that is a way around the limit.
        let Ok(id) = str::from_utf8(id) else { return AdmitFuture::Ready(AdmitOutcome::Unidentified.into()) };
        if !self.breaker().allows_call(Instant::now().into_std()) {
            return AdmitFuture::Ready(self.failure());
        }
        let (this, id) = (self.clone(), id.to_owned());
        AdmitFuture::Pending(Box::pin(async move {
            this.reply(this.client.spend(&this.limit, &id, this.cost).await)
        }))
    }

    fn add_headers(&self, _id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        rate_limit_headers::add_remaining_headers(&self.limit, decision, headers);
    }
}
