//! Makes decisions that are recorded. [`Tap`](crate::tap::Tap) says why they are made under its lock.

use tollway::block_on;
use tollway::engine::VerbAnswer;
use tollway::limiter::LimiterError;
use tollway_core::rule::RuleBill;
use tollway_core::{Bill, Charge, ChargeRequest, Decision, RuleDecision, RuleRequest, Verb};

use super::{CountedPolicy, Service};

impl Service {
    /// Returns whether an answer is recorded, at least in part. While nobody records, it only reads a number.
    #[inline]
    pub(super) fn is_recorded(
        &self,
        policy: &CountedPolicy,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> bool {
        let Some(sample) = self.tap.sample() else { return false };
        let is_in = |request: &ChargeRequest<'_>| {
            let charge = policy.policy().bucket_request(request);
            charge.is_ok_and(|charge| !charge.limit().is_inline() && sample.has(charge.id()))
        };
        charges.iter().any(is_in) || rules.iter().any(|rule| sample.has_rule(rule))
    }

    /// Performs a verb, and records the answer.
    pub(super) async fn perform_recorded<'a>(
        &self,
        policy: &'a CountedPolicy,
        verb: Verb,
        charges: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, LimiterError> {
        let (mut tap, answer) = if self.limiter.is_shared() {
            let answer = self.limiter.perform(policy.policy(), verb, charges, rules).await?;
            (self.tap.begin(), answer)
        } else {
            let tap = self.tap.begin();
            let engine = tap.engine().unwrap_or(&self.limiter);
            let answer = block_on(engine.perform(policy.policy(), verb, charges, rules))?;
            (tap, answer)
        };
        tap.answer(policy.policy(), verb, &answer, rules);
        Ok(answer)
    }

    /// Settles a batch of bills of one charge each, and records those decisions that are in the sample.
    #[inline]
    pub(super) async fn settle_charges(
        &self,
        policy: &CountedPolicy,
        charges: &[Charge<'_>],
        bills: &[Bill<'_>],
        decisions: &mut Vec<Decision>,
    ) {
        let is_recorded = self.tap.sample().is_some_and(|sample| {
            charges.iter().any(|charge| !charge.limit().is_inline() && sample.has(charge.id()))
        });
        if !is_recorded {
            return self.limiter.settle_into(bills, decisions).await;
        }
        let mut tap = if self.limiter.is_shared() {
            self.limiter.settle_into(bills, decisions).await;
            self.tap.begin()
        } else {
            let tap = self.tap.begin();
            block_on(tap.engine().unwrap_or(&self.limiter).settle_into(bills, decisions));
            tap
        };
        let decided = charges.iter().zip(&*decisions);
        decided.for_each(|(charge, decision)| tap.spend(policy.policy(), charge, decision));
    }

    /// Decides by a rule, and records the decision if it is in the sample.
    pub(super) async fn resolve_bill(
        &self,
        policy: &CountedPolicy,
        request: impl FnOnce() -> RuleRequest<'static>,
        bill: &RuleBill<'_>,
    ) -> RuleDecision {
        let request = self.tap.sample().map(|sample| (sample, request()));
        let Some((_, request)) = request.filter(|(sample, request)| sample.has_rule(request)) else {
            return self.limiter.resolve(bill).await;
        };
        let (mut tap, decision) = if self.limiter.is_shared() {
            let decision = self.limiter.resolve(bill).await;
            (self.tap.begin(), decision)
        } else {
            let tap = self.tap.begin();
            let decision = block_on(tap.engine().unwrap_or(&self.limiter).resolve(bill));
            (tap, decision)
        };
        tap.rule(policy.policy(), &request, &decision);
        decision
    }
}
