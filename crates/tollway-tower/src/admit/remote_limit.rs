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
use tollway_wire::http::rate_limit_headers::add_remaining_headers;

use super::on_failure::FailureHandler;
use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply, OnFailure};
use crate::Unidentified;
use crate::rate_limit_headers::ResponseHeaders;

// The statuses of problems that are about one request.
const BAD_REQUEST: u16 = 400;
const TOO_LARGE: u16 = 413;
const UNPROCESSABLE: u16 = 422;

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
    failure: FailureHandler,
    circuit_breaker: Arc<Mutex<CircuitBreaker>>,
}

impl RemoteLimit {
    /// Charges a cost of 1 to the bucket that the request's client has under `limit`.
    ///
    /// Fails if the server does not answer, or does not have the limit: a misspelt name limits nobody.
    pub async fn connect(client: Client, limit: &str) -> Result<Self, ClientError> {
        match client.check(limit, "tollway-tower", 0).await {
            // The limit exists, but its ids have another format.
            Err(ClientError::Problem { status: UNPROCESSABLE, .. }) | Ok(_) => Ok(Self::new(client, limit)),
            Err(error) => Err(error),
        }
    }

    /// Charges like [`connect`](Self::connect), but does not ask the server yet, which may start later.
    ///
    /// If the server does not have the limit, that is logged as an error, and [`on_failure`](Self::on_failure) decides.
    pub fn new(client: Client, limit: &str) -> Self {
        let circuit_breaker =
            Arc::new(Mutex::new(CircuitBreaker::new(FAILURES_MAX, Backoff::new(PAUSE, PAUSE))));
        Self { client, limit: limit.into(), cost: 1, failure: FailureHandler::default(), circuit_breaker }
    }

    /// Sets the cost of each request (default: 1).
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets what happens to requests while the server is unreachable or lacks the limit (default: they pass).
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.failure.on_failure = on_failure;
        self
    }

    fn breaker(&self) -> MutexGuard<'_, CircuitBreaker> {
        self.circuit_breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reply(&self, decision: Result<Decision, ClientError>) -> AdmitReply {
        let error = match decision {
            Ok(decision) => {
                self.breaker().record_success();
                return decision.into();
            }
            Err(error) => error,
        };
        match &error {
            ClientError::Problem { status, title, .. } => {
                self.breaker().record_success();
                match *status {
                    UNPROCESSABLE if title == "Cost too high" => {
                        AdmitOutcome::Rejected { retry_after: None }.into()
                    }
                    // Not a failure: a client must not choose an id that is a way around the limit.
                    BAD_REQUEST | TOO_LARGE | UNPROCESSABLE => {
                        AdmitOutcome::Unidentified(Unidentified::Invalid).into()
                    }
                    400..=499 => self.failure.misconfigured(&error),
                    _ => self.failure.reply(),
                }
            }
            ClientError::InvalidResponse { .. } => {
                self.breaker().record_success();
                self.failure.misconfigured(&error)
            }
            _ => {
                self.breaker().record_failure(Instant::now().into_std(), NO_JITTER);
                // As a `dyn Error`, so that its sources are logged too.
                let error: &(dyn Error + 'static) = &error;
                tracing::debug!(limit = &*self.limit, error, "no response from the server");
                self.failure.reply()
            }
        }
    }
}

impl fmt::Debug for RemoteLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, cost, failure, circuit_breaker, .. } = self;
        f.debug_struct("RemoteLimit")
            .field("limit", limit)
            .field("cost", cost)
            .field("on_failure", &failure.on_failure)
            .field("circuit_breaker", circuit_breaker)
            .finish_non_exhaustive()
    }
}

impl Admit for RemoteLimit {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        // JSON carries no other ids. To replace bytes would make several clients one.
        let Ok(id) = str::from_utf8(id) else {
            return AdmitFuture::Ready(AdmitOutcome::Unidentified(Unidentified::Invalid).into());
        };
        if !self.breaker().allows_call(Instant::now().into_std()) {
            return AdmitFuture::Ready(self.failure.reply());
        }
        let (this, id) = (self.clone(), id.to_owned());
        AdmitFuture::Pending(Box::pin(async move {
            this.reply(this.client.spend(&this.limit, &id, this.cost).await)
        }))
    }

    fn add_headers(&self, _id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        // The server does not send the numbers of its limit.
        add_remaining_headers(&mut ResponseHeaders(headers), &self.limit, None, decision);
    }
}
