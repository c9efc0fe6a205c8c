//! Answers requests to Envoy's rate limit service, from gRPC, from HTTP and from traces.

use thiserror::Error;
use tollway::limiter::LimiterError;
use tollway_core::descriptor::{DescriptorBill, RateLimitRequest, RateLimitRequestError};
use tollway_core::{ErrorChain, Verdict};
use tollway_wire::rls::RlsResponse;

use super::{CountedPolicy, Service};
use crate::caller::{AccessDenied, Caller};
use crate::tokens::Scope;

/// An error for a request that is not decided.
#[derive(Debug, Error)]
pub(crate) enum RlsError {
    #[error(transparent)]
    Request(#[from] RateLimitRequestError),
    /// The client may not ask for it.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
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
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        request: &RateLimitRequest<'_>,
        answer: impl FnOnce(&RlsResponse<'_>) -> T,
    ) -> Result<T, RlsError> {
        let bill = DescriptorBill::new(policy.policy(), request)?;
        let refunds = bill.refunds();
        if !refunds.is_empty() {
            caller.check_scope(Scope::Refund)?;
        }
        if !caller.may_use_all() {
            let charges = bill.charges();
            charges
                .iter()
                .chain(&refunds)
                .try_for_each(|charge| caller.check_limit(charge.limit().name()))?;
        }
        let began = self.began();
        let outcome = self.limiter.settle_descriptors(&bill).await.map_err(|error| match error {
            LimiterError::Store(_) => RlsError::Unavailable,
            error => RlsError::Charge(error),
        })?;
        let charges = bill.charges();
        let mut decided =
            self.decided(caller.gate, policy).with_spans(self.span_recorder(began, caller.trace));
        decided.descriptors(&bill, &charges, &outcome);
        if outcome.decision.allowed() {
            self.audit_refunds(caller, &refunds);
        }
        if outcome.decision.verdict == Verdict::DenyUnreachable {
            return Err(RlsError::Unavailable);
        }
        let statuses: Vec<_> = bill.statuses(&outcome).collect();
        let over_limit = bill.is_over_limit(&outcome);
        Ok(answer(&RlsResponse::new(over_limit, &statuses, &charges, &outcome.decision)))
    }
}
