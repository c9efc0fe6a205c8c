//! Answers the commands that are not settled together with others.

use tollway::engine::VerbAnswer;
use tollway::limiter::LimiterError;
use tollway::store::StoreError;
use tollway_core::{Bill, ChargeRequest, Decider, Decision, ErrorChain, Nanos, RuleRequest, Verb};
use tollway_wire::audit::UNKNOWN;
use tollway_wire::resp::{self, Hello, ReplyWriter};

use super::collector::{Alone, HELLO_NO_AUTH, WRONG_USER, denied_text};
use super::{RespConnection, RespService};
use crate::caller::{AccessDenied, Caller};
use crate::service::{CountedPolicy, NO_STORE, ServiceError};

/// The reply of `TTL` for a key without a bucket.
const NO_KEY: i64 = -2;
/// The error of a command that asks for a bucket while the store is unreachable.
const NO_ANSWER: &str = "ERR the store gives no answer; try again later";

impl RespService {
    /// Answers one command, and counts it.
    pub(super) async fn answer_alone(
        &self,
        policy: &CountedPolicy,
        connection: &mut RespConnection,
        command: Alone<'_>,
        reply: &mut ReplyWriter<'_>,
    ) {
        let answered = match command {
            Alone::GiveBack(request, units) => {
                let charge = self.inline.refund(request.inline.algorithm(), request.key, units);
                let refund = self.service.refund_charge(policy, &charge).await;
                let caller = connection.caller(&self.auth);
                let outcome = refund.is_err().then_some(UNKNOWN);
                self.service.audit_refund(&caller, &charge, outcome);
                refund.map_err(|error| self.store_error(&caller, &error)).map(|refund| {
                    self.inline_counters.refunded();
                    request.put_refund(&refund, reply);
                })
            }
            Alone::Toll(verb, charges, rules) => {
                let caller = connection.caller(&self.auth);
                self.toll(&caller, policy, verb, &charges, &rules, reply).await
            }
            Alone::Del(keys) => {
                let caller = connection.caller(&self.auth);
                self.delete(&caller, policy, &keys).await.map(|deleted| reply.integer(deleted))
            }
            Alone::Ttl { key, millis } => self.time_left(&[key]).await.map(|left| {
                let left = left[0];
                reply.integer(if left == Nanos::ZERO { NO_KEY } else { time_to_live(left, millis) });
            }),
            Alone::Hello(hello) => self.greet(connection, &hello, reply),
            Alone::Reset => {
                connection.reset();
                reply.set_version(connection.version);
                reply.simple("RESET");
                Ok(())
            }
        };
        self.service.metrics.resp.commands.one();
        if let Err(error) = answered {
            self.service.metrics.resp.errors.one();
            reply.error(&error);
        }
    }

    async fn toll(
        &self,
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        verb: Verb,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), String> {
        let answer = self.service.perform(caller, policy, verb, charges, rules).await;
        let answer = answer.map_err(|error| match error {
            ServiceError::Denied(denied) => {
                self.service.count_denied(&denied);
                denied_text(&denied)
            }
            ServiceError::Limiter(LimiterError::Store(error)) => self.store_error(caller, &error),
            ServiceError::Limiter(LimiterError::Charge(error)) => chain(&caller.hide_other_limits(error)),
            ServiceError::Limiter(LimiterError::Rule(error)) => chain(&caller.hide_other_rules(error)),
            ServiceError::Limiter(error) => chain(&error),
        });
        match answer? {
            VerbAnswer::Decision(charges, decision) => match decision.decider(&charges) {
                Decider::Charge(charge) => resp::put_decision(charge, &decision, reply),
                Decider::Rule(index) => {
                    resp::put_rule_decision(rules[index].rule.text(), &decision.into(), reply);
                }
            },
            VerbAnswer::Refund(charges, refund) => resp::put_refund(&charges, &refund, reply),
            VerbAnswer::Reset(_) => resp::put_reset(reply),
        }
        Ok(())
    }

    /// Forgets the buckets of keys, and returns how many there were.
    async fn delete(
        &self,
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        keys: &[&[u8]],
    ) -> Result<i64, String> {
        let left = self.time_left(keys).await?;
        let charges: Vec<_> = keys.iter().map(|key| self.inline.bucket(key)).collect();
        let reset = self.service.reset_charges(policy, &charges).await;
        let outcome = reset.is_err().then_some(UNKNOWN);
        charges.iter().for_each(|charge| self.service.audit_reset(caller, charge, outcome));
        reset.map_err(|error| self.store_error(caller, &error))?;
        charges.iter().for_each(|_| self.inline_counters.reset());
        // A key that is named twice has one bucket.
        let is_first = |(index, key): &(usize, &&[u8])| !keys[..*index].contains(key);
        let deleted =
            keys.iter().enumerate().filter(is_first).filter(|(index, _)| left[*index] > Nanos::ZERO);
        Ok(i64::try_from(deleted.count()).unwrap_or(i64::MAX))
    }

    /// Returns the time until the bucket of each key is full: nothing for a key without a bucket.
    async fn time_left(&self, keys: &[&[u8]]) -> Result<Vec<Nanos>, String> {
        let looks: Vec<_> = keys.iter().map(|key| self.inline.bucket(key)).collect();
        let bills: Vec<_> = looks.iter().map(Bill::one).collect();
        let decisions = self.service.limiter.check_bills(&bills).await;
        // What is decided without the store says nothing about the bucket.
        let left = |decision: Decision| (!decision.degraded).then_some(decision.reset_nanos);
        decisions.into_iter().map(left).collect::<Option<_>>().ok_or_else(|| NO_ANSWER.to_owned())
    }

    /// Returns the error of a store that gave no answer. It has the address of a node, so only those who may know that
    /// get all of it.
    fn store_error(&self, caller: &Caller<'_>, error: &StoreError) -> String {
        if self.auth.shows_addresses_to(caller) { chain(error) } else { format!("ERR {NO_STORE}") }
    }

    /// Logs a client in with a token. Its user is the default one, or the name of the token.
    pub(super) fn log_in(
        &self,
        connection: &mut RespConnection,
        user: Option<&[u8]>,
        token: &[u8],
    ) -> Result<(), &'static str> {
        let Some(tokens) = self.auth.tokens() else { return Ok(()) };
        let mut found = None;
        let grant = tokens.grant(token, &mut found);
        let is_user = |name: &str| user.is_none_or(|user| user == b"default" || user == name.as_bytes());
        if !grant.is_some_and(|grant| is_user(&grant.name)) {
            self.service.count_denied(&AccessDenied::UnknownToken);
            return Err(WRONG_USER);
        }
        connection.token = found;
        Ok(())
    }

    fn greet(
        &self,
        connection: &mut RespConnection,
        hello: &Hello<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), String> {
        match hello.auth {
            Some((user, token)) if self.auth.tokens().is_some() => {
                self.log_in(connection, Some(user), token)?;
            }
            Some((user, _)) if user != b"default" => return Err(WRONG_USER.to_owned()),
            _ => {}
        }
        if self.auth.tokens().is_some() && connection.token.is_none() {
            self.service.count_denied(&AccessDenied::NoToken);
            return Err(HELLO_NO_AUTH.to_owned());
        }
        if let Some(name) = hello.name {
            connection.set_name(name);
        }
        connection.version = hello.version.unwrap_or(connection.version);
        reply.set_version(connection.version);
        resp::put_hello(connection.id, connection.version, reply);
        Ok(())
    }
}

/// Returns milliseconds, rounded up so that a bucket that exists has some, or the nearest seconds, as Redis has them.
fn time_to_live(left: Nanos, millis: bool) -> i64 {
    let left = left.get().div_ceil(1_000_000);
    let left = if millis { left } else { (left + 500) / 1_000 };
    i64::try_from(left).unwrap_or(i64::MAX)
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    format!("ERR {}", ErrorChain(error))
}
