//! Decides requests to Envoy's rate limit service.
//!
//! The gRPC gate, `POST /json` and the replays of traces decide by this code.

use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome};
use tollway_core::{Bill, Charge, ChargeKind, Decision, OnStoreFailure, Verdict};

use super::Engine;
use crate::limiter::LimiterError;

impl Engine {
    /// Settles the charges of a request, all or none, and then gives back what the request gives back. A request that
    /// is denied gives back nothing. A limit without refunds is an error before anything is settled.
    pub async fn settle_descriptors(
        &self,
        request: &DescriptorBill<'_>,
    ) -> Result<DescriptorOutcome, LimiterError> {
        let (charges, expression) = (request.charges(), request.expression());
        let given_back =
            request.refunds().into_iter().map(Charge::refundable).collect::<Result<Vec<_>, _>>()?;
        let mut each = Vec::with_capacity(charges.len());
        let decision = match (&*charges, &expression) {
            ([charge], None) if charge.kind() == ChargeKind::Spend => {
                each.push(self.charge(charge).await);
                each[0]
            }
            ([], None) => Decision::UNLIMITED,
            ([], Some(expression)) if expression.denies(&|_| false) => {
                Decision::UNLIMITED.with_verdict(Verdict::Deny)
            }
            ([], Some(_)) => Decision::UNLIMITED,
            (charges, None) => self.settle_each(&Bill::new(charges)?, &mut each).await,
            (charges, Some(expression)) => {
                self.settle_each(&Bill::new(charges)?.denied_by(expression)?, &mut each).await
            }
        };
        let decision = request.deny_hits_that_never_fit(decision, &mut each);
        let mut refunds = Vec::new();
        for charge in given_back.into_iter().filter(|_| decision.allowed()) {
            let says_deny = charge.limit().on_store_failure() == OnStoreFailure::Deny;
            match self.refund_charges(&[charge]).await {
                Err(error) if says_deny => return Err(error.into()),
                refund => refunds.push(refund.ok()),
            }
        }
        Ok(DescriptorOutcome::new(decision, each, refunds, self.clock().now()))
    }
}
