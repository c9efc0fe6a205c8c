//! One rule of a limiter in this process.

use std::convert::Infallible;
use std::sync::Arc;

use thiserror::Error;
use tollway::AsyncLimiter;
use tollway_core::{KeyedRule, RuleDecision};

use super::{Admit, AdmitFuture, AdmitOutcome, AdmitReply, outcome};

/// Asks a limiter by one of its configured rules. Each selector of the rule has the request's id for its value.
///
/// A reload of the limiter changes the rule. If it is gone then, nobody is limited.
#[derive(Clone)]
pub struct LocalRule {
    limiter: AsyncLimiter,
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
    pub fn new(limiter: impl Into<AsyncLimiter>, rule: &str) -> Result<Self, UnknownRule> {
        let limiter = limiter.into();
        match limiter.policy().rule(rule) {
            Some(_) => Ok(Self { limiter, rule: rule.into() }),
            None => Err(UnknownRule { name: rule.to_owned() }),
        }
    }
}

impl Admit for LocalRule {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let engine = self.limiter.engine();
        let policy = engine.policy();
        let Some(rule) = policy.rule(&self.rule) else {
            return AdmitFuture::Ready(AdmitOutcome::Passed.into());
        };
        if let Some(decision) = engine.resolve_now(&bill(rule, id)) {
            return AdmitFuture::Ready(answer(decision));
        }
        let (this, id) = (self.clone(), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            let policy = this.limiter.policy();
            let Some(rule) = policy.rule(&this.rule) else { return AdmitOutcome::Passed.into() };
            answer(this.limiter.engine().resolve(&bill(rule, &id)).await)
        }))
    }
}

fn bill<'r>(rule: &'r KeyedRule, id: &[u8]) -> tollway_core::RuleBill<'r> {
    let Ok(bill) = rule.bill(|_selector| Ok::<_, Infallible>(Some(id)));
    bill
}

fn answer(ruling: RuleDecision) -> AdmitReply {
    outcome(ruling.verdict, ruling.retry_nanos).into()
}
