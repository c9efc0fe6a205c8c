//! One limit of a limiter in this process.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use thiserror::Error;
use tollway::AsyncLimiter;
use tollway_core::algorithm::Algorithm;
use tollway_core::{ChargeError, Decision};

use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};
use crate::rejection;

/// Asks a limiter under one of its limits. With memory for a store the answer is there at once; Redis is awaited.
///
/// A reload of the limiter changes what identifiers are held to. If the limit is gone then, nobody is limited.
#[derive(Clone)]
pub struct LocalLimit {
    limiter: AsyncLimiter,
    limit: Arc<str>,
    cost: u64,
}

/// There is no limit of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no limit `{name}`")]
pub struct UnknownLimit {
    /// What was asked for.
    pub name: String,
}

impl LocalLimit {
    /// Takes one from the bucket of each request's id under this limit.
    pub fn new(limiter: impl Into<AsyncLimiter>, limit: &str) -> Result<Self, UnknownLimit> {
        let limiter = limiter.into();
        match limiter.policy().limit(limit) {
            Some(_) => Ok(Self { limiter, limit: limit.into(), cost: 1 }),
            None => Err(UnknownLimit { name: limit.to_owned() }),
        }
    }

    /// Takes this much instead of one.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

impl Admit for LocalLimit {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let engine = self.limiter.engine();
        match engine.policy().charge(&self.limit, id, self.cost) {
            Ok(charge) => {
                if let Some(decision) = engine.charge_now(&charge) {
                    return AdmitFuture::Ready(decision.into());
                }
            }
            Err(error) => return AdmitFuture::Ready(answer(Err(error))),
        }
        let (this, id) = (self.clone(), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            answer(this.limiter.spend(&this.limit, &id, this.cost).await)
        }))
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        if let Ok(charge) = self.limiter.policy().charge(&self.limit, id, self.cost) {
            rejection::describe(&charge, decision, headers);
        }
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        let policy = self.limiter.policy();
        match policy.charge(&self.limit, id, self.cost).ok()?.algorithm()? {
            // Of all algorithms the only one that lets requests pass at equal distances.
            Algorithm::TokenBucket(limit) => Some(limit.emission_interval().saturating_mul(self.cost).into()),
            _ => None,
        }
    }
}

fn answer(decided: Result<Decision, ChargeError>) -> AdmitReply {
    match decided {
        Ok(decision) => decision.into(),
        Err(ChargeError::Id { .. }) => AdmitOutcome::Unidentified.into(),
        Err(ChargeError::CostTooHigh { .. }) => AdmitOutcome::Rejected { retry_after: None }.into(),
        Err(_) => AdmitOutcome::Passed.into(),
    }
}
