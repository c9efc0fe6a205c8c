//! Decides by one rule of a limiter in this process.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use tollway::AsyncLimiter;
use tollway_core::{KeyedRule, RuleBill, RuleDecision, RuleLookupError, RuleRef};

use super::on_failure::FailureHandler;
use super::{Admit, AdmitFuture, AdmitReply, OnFailure, outcome};

/// Decides by one configured rule of a limiter. Each selector of the rule has the request's client id as its value.
///
/// A reload of the limiter changes the rule. If the new policy lacks the rule, that is logged as an error, and
/// [`on_failure`](Self::on_failure) decides.
#[derive(Clone)]
pub struct LocalRule {
    limiter: AsyncLimiter,
    rule: Arc<str>,
    failure: FailureHandler,
}

impl LocalRule {
    /// Decides each request by the rule named `rule`.
    pub fn new(limiter: impl Into<AsyncLimiter>, rule: &str) -> Result<Self, RuleLookupError> {
        let limiter = limiter.into();
        limiter.policy().find_rule(&RuleRef::Named(rule.to_owned()), None)?;
        Ok(Self { limiter, rule: rule.into(), failure: FailureHandler::default() })
    }

    /// Sets what happens to requests after a reload removed the rule (default: they pass).
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.failure.on_failure = on_failure;
        self
    }

    fn missing(&self) -> AdmitReply {
        let name = self.rule.to_string();
        let error = RuleLookupError::UnknownRule { name, nearest: None, existing: Vec::new() };
        self.failure.misconfigured(&error)
    }
}

impl fmt::Debug for LocalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRule").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl Admit for LocalRule {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let engine = self.limiter.engine();
        let policy = engine.policy();
        let Some(rule) = policy.rule(&self.rule) else {
            return AdmitFuture::Ready(self.missing());
        };
        if let Some(decision) = engine.resolve_now(&bill(rule, id)) {
            return AdmitFuture::Ready(reply(decision));
        }
        let (this, id) = (self.clone(), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            let policy = this.limiter.policy();
            let Some(rule) = policy.rule(&this.rule) else { return this.missing() };
            reply(this.limiter.engine().resolve(&bill(rule, &id)).await)
        }))
    }
}

fn bill<'r>(rule: &'r KeyedRule, id: &[u8]) -> RuleBill<'r> {
    let Ok(bill) = rule.bill(|_selector| Ok::<_, Infallible>(Some(id)));
    bill
}

fn reply(decision: RuleDecision) -> AdmitReply {
    outcome(decision.verdict, decision.retry_nanos).into()
}
