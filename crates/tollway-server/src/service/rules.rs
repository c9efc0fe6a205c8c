//! Resolves and explains rules.

use std::iter;

use tollway::limiter::LimiterError;
use tollway_core::rule::{RuleDecision, RuleLog};
use tollway_core::{Nanos, Policy, RuleRef, RuleRequest, Timestamp};
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
        let id = self.rule_id(policy.policy(), &asked.rule, asked.key.as_deref(), |selector| {
            let given = asked.selectors.iter().find(|(name, _)| name == selector);
            given.and_then(|(_, value)| value.as_deref().map(str::as_bytes))
        });
        let mut decided =
            self.decided(caller.gate, policy).with_spans(self.span_recorder(began, caller.trace));
        decided.rule(&asked.rule, asked.key.as_deref(), &id, &decision);
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

    /// Returns the [`rule_id`] of a request, or an empty one if nothing records it.
    pub(super) fn id_of_request(&self, policy: &Policy, request: &RuleRequest<'_>) -> Vec<u8> {
        self.rule_id(policy, request.rule.text(), request.key.as_deref(), |selector| {
            request.selectors.iter().find(|(name, _)| name == selector).map(|(_, value)| &**value)
        })
    }

    /// Returns the [`rule_id`], or an empty one if nothing records it: it is built for every request.
    fn rule_id<'v>(
        &self,
        policy: &Policy,
        name: &str,
        key: Option<&str>,
        value: impl Fn(&str) -> Option<&'v [u8]>,
    ) -> Vec<u8> {
        let is_recorded = self.watch.settings().is_on || self.spans.is_some();
        if is_recorded { rule_id(policy, name, key, value) } else { Vec::new() }
    }
}

/// Returns the id under which the requests of a rule are listed: the values of its selectors, and before them the key
/// if it is not the rule's own.
///
/// ```text
/// user=vova                       upload: "user:1/m", asked with user=vova
/// cats user=vova apikey="a b"     with the key "cats", and another selector, whose value has a space
/// ```
///
/// Quotes keep two requests from having the same id: a value could contain what looks like the next selector.
fn rule_id<'v>(
    policy: &Policy,
    name: &str,
    key: Option<&str>,
    value: impl Fn(&str) -> Option<&'v [u8]>,
) -> Vec<u8> {
    let mut id = Vec::new();
    if let Some(key) = key.filter(|key| *key != name) {
        push_quoted(&mut id, key.as_bytes(), b" \"=");
    }
    let logs = policy.rule(name).map_or(&[][..], |rule| rule.limit().rule().logs());
    for selector in logs.iter().filter_map(RuleLog::selector) {
        let Some(value) = value(selector).filter(|value| !value.is_empty()) else { continue };
        if !id.is_empty() {
            id.push(b' ');
        }
        id.extend_from_slice(selector.as_bytes());
        id.push(b'=');
        push_quoted(&mut id, value, b" \"");
    }
    id
}

/// Appends a word, in quotes if it is empty or has one of these characters. A quote inside of it is written twice.
fn push_quoted(id: &mut Vec<u8>, word: &[u8], special: &[u8]) {
    if !word.is_empty() && !word.iter().any(|byte| special.contains(byte)) {
        return id.extend_from_slice(word);
    }
    id.push(b'"');
    for &byte in word {
        id.extend(iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
    }
    id.push(b'"');
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
