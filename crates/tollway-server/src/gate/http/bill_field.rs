//! Names the charge or the rule of a bill that an error is about: `charges[1].cost`, `rules[0].selectors.user`.
//!
//! The errors of the engine say what is wrong, and not with which charge: an index would be a part of each call that
//! succeeds. So what has failed is done again, under the same policy, for one charge after another.

use tollway::limiter::LimiterError;
use tollway_core::{ChargeRequest, Policy, RuleLookupError, RuleRequest, Verb};

use crate::caller::AccessDenied;
use crate::service::ServiceError;

/// The charges and rules of a request that has lists of them.
pub(super) struct BillParts<'a> {
    pub(super) verb: Verb,
    pub(super) charges: &'a [ChargeRequest<'a>],
    /// False if the one charge is the request itself, whose fields have no path.
    pub(super) has_charge_list: bool,
    pub(super) rules: &'a [RuleRequest<'a>],
}

impl BillParts<'_> {
    /// Returns the path of the charge or rule that an error is about, such as `charges[1]`. `None` if the error is not
    /// about one charge or rule.
    pub(super) fn path(&self, error: &ServiceError, policy: &Policy) -> Option<String> {
        match error {
            ServiceError::Limiter(LimiterError::Charge(_)) => {
                self.charge_path(self.charges.iter().position(|charge| is_invalid(policy, self.verb, charge)))
            }
            ServiceError::Limiter(LimiterError::Rule(error)) => {
                let is_unknown = matches!(error, RuleLookupError::UnknownRule { .. });
                let fails = |rule: &RuleRequest<'_>| match rule.find(policy) {
                    Ok(found) => !is_unknown && rule.bill(&found).is_err(),
                    Err(_) => is_unknown,
                };
                self.rules.iter().position(fails).map(|index| format!("rules[{index}]"))
            }
            ServiceError::Denied(AccessDenied::OtherLimits(name)) => {
                self.charge_path(self.charges.iter().position(|charge| charge.limit == **name))
            }
            _ => None,
        }
    }

    /// Returns the path of the name of the first rule that a token is not for, such as `rules[0].rule`. The service
    /// checks the charges before it.
    pub(super) fn denied_rule(&self, error: &ServiceError) -> Option<String> {
        let ServiceError::Denied(AccessDenied::OtherLimits(name)) = error else { return None };
        if self.charges.iter().any(|charge| charge.limit == **name) {
            return None;
        }
        let index = self.rules.iter().position(|rule| rule.rule.text() == name)?;
        Some(format!("rules[{index}].rule"))
    }

    /// Returns the path of the first charge that brings numbers.
    pub(super) fn inline_path(&self) -> Option<String> {
        self.charge_path(self.charges.iter().position(|charge| charge.inline.is_some()))
    }

    fn charge_path(&self, index: Option<usize>) -> Option<String> {
        index.filter(|_| self.has_charge_list).map(|index| format!("charges[{index}]"))
    }
}

fn is_invalid(policy: &Policy, verb: Verb, charge: &ChargeRequest<'_>) -> bool {
    match verb {
        Verb::Spend | Verb::Check => policy.charge_request(charge).is_err(),
        Verb::Refund => policy.charge_request(charge).and_then(|charge| charge.refundable()).is_err(),
        Verb::Reset => policy.bucket_request(charge).is_err(),
    }
}
