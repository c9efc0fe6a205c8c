//! Answers requests to Envoy's rate limit service, from gRPC, from HTTP and from traces.

use thiserror::Error;
use tollway::limiter::LimiterError;
use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome, RateLimitRequest, RateLimitRequestError};
use tollway_core::{Charge, ErrorChain, Verdict};
use tollway_wire::audit::UNKNOWN;
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
        let outcome = self.settle_descriptors(policy, request, &bill).await.map_err(|error| match error {
            LimiterError::Store(_) => {
                refunds.iter().for_each(|charge| self.audit_refund(caller, charge, Some(UNKNOWN)));
                RlsError::Unavailable
            }
            error => RlsError::Charge(error),
        })?;
        let charges = bill.charges();
        let mut decided =
            self.decided(caller.gate, policy).with_spans(self.span_recorder(began, caller.trace));
        decided.descriptors(&bill, &charges, &outcome);
        // A bill that was denied has no refunds.
        for (charge, refund) in refunds.iter().zip(&outcome.refunds) {
            if refund.is_some() {
                decided.refunded(charge);
            }
            self.audit_refund(caller, charge, refund.is_none().then_some(UNKNOWN));
        }
        if outcome.decision.verdict == Verdict::DenyUnreachable {
            return Err(RlsError::Unavailable);
        }
        Ok(respond(&bill, &charges, &outcome, answer))
    }
}

/// Returns what `answer` makes of the response to a bill with these charges.
pub(super) fn respond<T>(
    bill: &DescriptorBill<'_>,
    charges: &[Charge<'_>],
    outcome: &DescriptorOutcome,
    answer: impl FnOnce(&RlsResponse<'_>) -> T,
) -> T {
    let statuses: Vec<_> = bill.statuses(outcome).collect();
    answer(&RlsResponse::new(bill.is_over_limit(outcome), &statuses, charges, &outcome.decision))
}
