//! Answers requests to Envoy's rate limit service, from gRPC, from HTTP and from traces.

use thiserror::Error;
use tollway::limiter::LimiterError;
use tollway_core::descriptor::{DescriptorBill, RateLimitRequest, RateLimitRequestError};
use tollway_core::{ErrorChain, Verb, Verdict};
use tollway_wire::rls::RlsResponse;

use super::{CountedPolicy, Service};
use crate::decision_log;

/// An error for a request that is not decided.
#[derive(Debug, Error)]
pub(crate) enum RlsError {
    #[error(transparent)]
    Request(#[from] RateLimitRequestError),
    /// A limit cannot give back what the request gives back.
    #[error("{}", ErrorChain(.0))]
    Charge(LimiterError),
    /// The store gave no answer, and a limit says to deny then. The proxy decides by its own failure mode.
    #[error("the store is unreachable, and a limit has on_store_failure: deny")]
    Unavailable,
}

impl Service {
    /// Decides a request, counts and logs the decision, and returns what `answer` makes of the response.
    pub(crate) async fn should_rate_limit<T>(
        &self,
        gate: &str,
        policy: &CountedPolicy,
        request: &RateLimitRequest<'_>,
        answer: impl FnOnce(&RlsResponse<'_>) -> T,
    ) -> Result<T, RlsError> {
        let bill = DescriptorBill::new(policy.policy(), request)?;
        let outcome = self.limiter.settle_descriptors(&bill).await.map_err(|error| match error {
            LimiterError::Store(_) => RlsError::Unavailable,
            error => RlsError::Charge(error),
        })?;
        let charges = bill.charges();
        for ((charge, decision), metric) in charges.iter().zip(&outcome.charges).zip(bill.metrics()) {
            // A charge that a denied bill did not take is neither allowed nor denied.
            if !outcome.decision.allowed() && decision.allowed() {
                continue;
            }
            if let Some(counters) = policy.descriptor_counters(charge.limit()) {
                counters.spent(decision);
            }
            if let Some(descriptor) = metric {
                self.metrics.descriptors.count(charge.limit().name(), descriptor, decision);
            }
        }
        if outcome.decision.charge < charges.len() {
            decision_log::bill(gate, Verb::Spend, &charges, &[], &outcome.decision);
        }
        if outcome.decision.verdict == Verdict::DenyUnreachable {
            return Err(RlsError::Unavailable);
        }
        let statuses: Vec<_> = bill.statuses(&outcome).collect();
        let over_limit = bill.is_over_limit(&outcome);
        Ok(answer(&RlsResponse::new(over_limit, &statuses, &charges, &outcome.decision)))
    }
}
