//! Decides by rules, with their logs in Redis.
//!
//! ```text
//! tollway:rule/shop:upload:user:vova     k10 60 0, 1700000000000000000, 1700000000250000000, …
//! ```
//!
//! A log is a list: the number of entries that are kept and their seconds and nanoseconds, and then the entries, the
//! newest last. A rule whose logs are in one slot is one call, and atomic. If a Cluster has them in several slots, the
//! request is entered in all logs at once, and each call returns what it found before. If the rule denies, or a call
//! got no answer, the other entries are removed. So too much never passes, but until then perhaps too little.

mod part;

use std::slice;

use redis::Value;
use tollway_core::{RuleBill, RuleDecision, Timestamp};

use self::part::{Found, Mode, Part};
use super::{Redis, StoreError};
use crate::engine::RuleInspection;

impl Redis {
    /// Decides by a rule. A request that is allowed is entered in each log that has a name. The time is that of Redis
    /// unless it is given.
    pub async fn resolve(
        &self,
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleDecision, StoreError> {
        match &*Part::of(bill, &self.namespace, self.net.is_cluster()) {
            // Without a log there is nothing to ask.
            [] => gather(bill, &[], &[]).map(|nothing| decision(bill, &nothing)),
            [whole] => {
                let reply = self.send(vec![whole.call(Mode::Whole, now)]).await.pop();
                match reply.unwrap_or(Ok(Value::Nil))? {
                    Value::Nil => Ok(RuleDecision::ALLOW),
                    reply => gather(bill, slice::from_ref(whole), &[whole.read(reply)])
                        .map(|found| decision(bill, &found)),
                }
            }
            parts => self.resolve_in(parts, bill, now).await,
        }
    }

    /// Returns the time until which each rate of the rule is reached. The time is that of Redis unless it is given.
    pub async fn examine(
        &self,
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleInspection, StoreError> {
        let mut parts = Part::of(bill, &self.namespace, self.net.is_cluster());
        if parts.is_empty() {
            // The time has to come from Redis all the same.
            parts.push(Part::new(bill.limit().rule(), false));
        }
        let calls = parts.iter().map(|part| part.call(Mode::Look, now)).collect();
        let replies = self.send(calls).await.into_iter().zip(&parts);
        let found = replies.map(|(reply, part)| part.read(reply?)).collect::<Vec<_>>();
        gather(bill, &parts, &found)
    }

    async fn resolve_in(
        &self,
        parts: &[Part<'_>],
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleDecision, StoreError> {
        let calls = parts.iter().map(|part| part.call(Mode::Part, now)).collect();
        let replies = self.send(calls).await.into_iter().zip(parts);
        let found: Vec<_> = replies.map(|(reply, part)| part.read(reply?)).collect();
        let ruled = gather(bill, parts, &found).map(|all| decision(bill, &all));
        if !ruled.as_ref().is_ok_and(RuleDecision::allowed) {
            let undo =
                parts.iter().zip(&found).filter_map(|(part, found)| part.undo(found.as_ref().ok()?, now));
            let undo: Vec<_> = undo.collect();
            if !undo.is_empty() {
                // The decision stands, even if this fails. An entry that stays makes its client wait.
                self.send(undo).await;
            }
        }
        ruled
    }
}

fn decision(bill: &RuleBill<'_>, found: &RuleInspection) -> RuleDecision {
    RuleDecision::until(bill.limit().rule().limits_until_by(|rate| found.reached_until[rate]), found.at)
}

/// Combines the readings of all parts, by the clock of the first.
fn gather(
    bill: &RuleBill<'_>,
    parts: &[Part<'_>],
    found: &[Result<Found, StoreError>],
) -> Result<RuleInspection, StoreError> {
    let (mut at, mut reached_until) = (None, vec![Timestamp::EPOCH; bill.limit().rule().rates().len()]);
    for (part, found) in parts.iter().zip(found) {
        let found = found.as_ref().map_err(Clone::clone)?;
        let at = *at.get_or_insert(found.now);
        for (rate, until) in part.rates().iter().zip(&found.reached_until) {
            reached_until[*rate] = by_clock(at, *until, found.now);
        }
    }
    Ok(RuleInspection { at: at.unwrap_or_default(), reached_until })
}

/// Converts a time of a node whose clock says `now` to a clock that says `at`.
fn by_clock(at: Timestamp, until: Timestamp, now: Timestamp) -> Timestamp {
    match until.as_nanos() {
        u64::MAX => until,
        _ if until <= now => Timestamp::EPOCH,
        _ => at + until.since(now),
    }
}
