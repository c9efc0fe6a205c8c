//! Rules, resolved and explained.

use tollway_core::rule::RuleDecision;
use tollway_core::{Nanos, RuleLookupError, RuleRef, Timestamp};
use tollway_wire::http::{HttpRuleRequest, RuleExplanation, RulePart};

use super::{CallError, InForce, Service};

impl Service {
    /// Decides by a configured rule. A request that is allowed is entered in the rule's logs.
    pub(crate) async fn resolve(
        &self,
        in_force: &InForce,
        asked: &HttpRuleRequest<'_>,
    ) -> Result<RuleDecision, RuleLookupError> {
        let name = RuleRef::Named(asked.rule.clone().into_owned());
        let rule = in_force.policy.find_rule(&name, asked.key.as_deref())?;
        let ruling = self.limiter.resolve(&asked.bill(&rule)?).await;
        in_force.of_rule(&asked.rule).ruled(&ruling);
        Ok(ruling)
    }

    /// Returns which parts of a rule are reached. Decides, stores and counts nothing.
    pub(crate) async fn explain(
        &self,
        in_force: &InForce,
        asked: &HttpRuleRequest<'_>,
    ) -> Result<RuleExplanation, CallError> {
        let rule = in_force.policy.find_rule(&RuleRef::from(&*asked.rule), asked.key.as_deref())?;
        let bill = asked.bill(&rule)?;
        let found = self.limiter.inspect_rule(&bill).await?;
        let tree = RulePart::from_bill(&bill, |rate| Some(left(found.reached_until[rate], found.at)));
        Ok(RuleExplanation::new(bill.limit().rule().to_string(), tree, found.at))
    }
}

/// Returns the time until `moment`. A moment that never comes stays "for ever".
fn left(moment: Timestamp, now: Timestamp) -> Nanos {
    if moment <= now { Nanos::ZERO } else { RuleDecision::until(moment, now).retry_nanos }
}
