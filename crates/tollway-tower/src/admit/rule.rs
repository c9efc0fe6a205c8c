//! One rule of a limiter in this process.

use std::convert::Infallible;
use std::sync::Arc;

use thiserror::Error;
use tollway::Limiter;
use tollway_core::{KeyedRule, RuleDecision};

use super::{Admission, Admit, Answer, Asked, admission};

/// Asks a limiter by one of its configured rules. Each selector of the rule has the request's identifier for its value.
///
/// A reload of the limiter changes the rule. If it is gone then, nobody is limited.
#[derive(Clone)]
pub struct LocalRule {
    limiter: Arc<Limiter>,
    rule: Arc<str>,
}

/// There is no rule of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no rule `{name}`")]
pub struct UnknownRule {
    /// What was asked for.
    pub name: String,
}

impl LocalRule {
    /// Enters each request in the logs of this rule.
    pub fn new(limiter: impl Into<Arc<Limiter>>, rule: &str) -> Result<Self, UnknownRule> {
        let limiter = limiter.into();
        match limiter.policy().rule(rule) {
            Some(_) => Ok(Self { limiter, rule: rule.into() }),
            None => Err(UnknownRule { name: rule.to_owned() }),
        }
    }
}

impl Admit for LocalRule {
    fn ask(&self, identifier: &[u8]) -> Asked {
        if !self.limiter.waits() {
            let policy = self.limiter.policy();
            let Some(rule) = policy.rule(&self.rule) else {
                return Asked::Answered(Admission::Passed.into());
            };
            return Asked::Answered(answer(self.limiter.resolve(&bill(rule, identifier))));
        }
        let (this, identifier) = (self.clone(), identifier.to_vec());
        Asked::Awaiting(Box::pin(async move {
            let policy = this.limiter.policy();
            let Some(rule) = policy.rule(&this.rule) else { return Admission::Passed.into() };
            answer(this.limiter.resolve_async(&bill(rule, &identifier)).await)
        }))
    }
}

fn bill<'r>(rule: &'r KeyedRule, identifier: &[u8]) -> tollway_core::RuleBill<'r> {
    let Ok(bill) = rule.bill(|_selector| Ok::<_, Infallible>(Some(identifier)));
    bill
}

fn answer(ruling: RuleDecision) -> Answer {
    admission(ruling.verdict, ruling.retry_after).into()
}
