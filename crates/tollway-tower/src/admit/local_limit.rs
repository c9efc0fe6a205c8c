//! Decides by one limit of a limiter in this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tollway::AsyncLimiter;
use tollway_core::algorithm::Algorithm;
use tollway_core::{ChargeError, Decision};
use tollway_wire::http::rate_limit_headers::add_decision_headers;

use super::on_failure::FailureHandler;
use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply, OnFailure};
use crate::Unidentified;
use crate::rate_limit_headers::ResponseHeaders;

/// Charges each request to one limit of a limiter in this process.
///
/// With the memory store the reply is ready at once; Redis is awaited.
///
/// A reload of the limiter changes the numbers of the limit. If the new policy lacks the limit, that is logged as an
/// error, and [`on_failure`](Self::on_failure) decides.
#[derive(Clone)]
pub struct LocalLimit {
    limiter: AsyncLimiter,
    limit: Arc<str>,
    cost: u64,
    failure: FailureHandler,
}

impl LocalLimit {
    /// Charges a cost of 1 to the bucket that the request's client has under `limit`.
    pub fn new(limiter: impl Into<AsyncLimiter>, limit: &str) -> Result<Self, ChargeError> {
        let limiter = limiter.into();
        let policy = limiter.policy();
        match policy.limit(limit) {
            Some(_) => Ok(Self { limiter, limit: limit.into(), cost: 1, failure: FailureHandler::default() }),
            None => Err(policy.unknown_limit(limit)),
        }
    }

    /// Sets the cost of each request (default: 1).
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Sets what happens to requests after a reload removed the limit (default: they pass).
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.failure.on_failure = on_failure;
        self
    }

    fn reply(&self, decision: Result<Decision, ChargeError>) -> AdmitReply {
        match decision {
            Ok(decision) => decision.into(),
            Err(ChargeError::Id { .. }) => AdmitOutcome::Unidentified(Unidentified::Invalid).into(),
            Err(ChargeError::CostTooHigh { .. }) => AdmitOutcome::Rejected { retry_after: None }.into(),
            Err(error) => self.failure.misconfigured(&error),
        }
    }
}

impl fmt::Debug for LocalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, cost, .. } = self;
        f.debug_struct("LocalLimit").field("limit", limit).field("cost", cost).finish_non_exhaustive()
    }
}

impl Admit for LocalLimit {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        if let Some(decided) = self.limiter.engine().spend_now(&self.limit, id, self.cost) {
            return AdmitFuture::Ready(self.reply(decided));
        }
        let (this, id) = (self.clone(), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            this.reply(this.limiter.spend(&this.limit, &id, this.cost).await)
        }))
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        if let Ok(charge) = self.limiter.policy().charge(&self.limit, id, self.cost) {
            let charges = std::slice::from_ref(&charge);
            add_decision_headers(&mut ResponseHeaders(headers), charges, decision);
        }
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        let policy = self.limiter.policy();
        match policy.charge(&self.limit, id, self.cost).ok()?.algorithm()? {
            // The only algorithm that lets requests pass at equal distances.
            Algorithm::TokenBucket(limit) => Some(limit.emission_interval().saturating_mul(self.cost).into()),
            _ => None,
        }
    }
}
