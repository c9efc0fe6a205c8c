//! Resolves and explains rules.

use tollway::limiter::LimiterError;
use tollway_core::rule::RuleDecision;
use tollway_core::{Nanos, RuleRef, RuleRequest, Timestamp};
use tollway_wire::http::{HttpRuleRequest, RuleExplanation, RulePart};

use super::{CountedPolicy, Service, ServiceError, check_rule};
use crate::caller::Caller;

impl Service {
    /// Decides by a configured rule, and counts it. A request that is allowed is entered in the rule's logs.
    pub(crate) async fn resolve(
        &self,
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        asked: &HttpRuleRequest<'_>,
    ) -> Result<RuleDecision, ServiceError> {
        let name = RuleRef::Named(asked.rule.clone().into_owned());
        check_rule(caller, &name)?;
        let rule = policy.policy().find_rule(&name, asked.key.as_deref()).map_err(LimiterError::from)?;
        let bill = asked.bill(&rule).map_err(LimiterError::from)?;
        let began = self.began();
        let decision = self.resolve_bill(policy, || recorded_request(asked), &bill).await;
        let mut decided =
            self.decided(caller.gate, policy).with_spans(self.span_recorder(began, caller.trace));
        decided.rule(&asked.rule, asked.key.as_deref(), &decision);
        Ok(decision)
    }

    /// Returns which parts of a rule are reached. Decides, stores and counts nothing.
    pub(crate) async fn explain(
        &self,
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        asked: &HttpRuleRequest<'_>,
    ) -> Result<RuleExplanation, ServiceError> {
        let rule = RuleRef::from(&*asked.rule);
        check_rule(caller, &rule)?;
        let rule = policy.policy().find_rule(&rule, asked.key.as_deref()).map_err(LimiterError::from)?;
        let bill = asked.bill(&rule).map_err(LimiterError::from)?;
        let found = self.limiter.inspect_rule(&bill).await.map_err(LimiterError::from)?;
        let tree = RulePart::from_bill(&bill, |rate| Some(left(found.reached_until[rate], found.at)));
        Ok(RuleExplanation::new(bill.limit().rule().to_string(), tree, found.at))
    }
}

/// Returns a request as a trace has it.
fn recorded_request(asked: &HttpRuleRequest<'_>) -> RuleRequest<'static> {
    let selectors = asked.selectors.iter().map(|(name, value)| {
        let value = value.as_deref().unwrap_or_default();
        (name.clone().into_owned().into(), value.as_bytes().to_vec().into())
    });
    RuleRequest {
        rule: RuleRef::Named(asked.rule.clone().into_owned()),
        key: asked.key.as_ref().map(|key| key.clone().into_owned().into()),
        selectors: selectors.collect(),
    }
}

/// Returns the time until `moment`. A moment that never comes stays "for ever".
fn left(moment: Timestamp, now: Timestamp) -> Nanos {
    if moment <= now { Nanos::ZERO } else { RuleDecision::until(moment, now).retry_nanos }
}
