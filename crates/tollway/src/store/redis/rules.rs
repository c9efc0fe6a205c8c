//! Rules, resolved and logged by Redis.
//!
//! ```text
//! tollway:rule/shop:upload:user:vova     k10 60 0, 1700000000000000000, 1700000000250000000, …
//! ```
//!
//! A log is a list: how many entries are kept and for how many seconds and nanoseconds, and then the entries, the newest
//! last. A rule whose logs are in one slot is one call, and atomic. Where a Cluster has them in several, the request is
//! entered in all at once, and each answers what it found before. If by all that the rule limits, or one gave no answer,
//! the others are taken back: too much never gets through, but for as long as taking back takes, perhaps too little.

mod part;

use std::slice;

use redis::Value;
use tollway_core::{RuleBill, RuleDecision, Timestamp};

use self::part::{Found, Mode, Part};
use super::{Redis, StoreError};
use crate::engine::RuleInspection;

impl Redis {
    /// Is the rule's limit reached? If not, the request is entered in every log that has a name. The time is Redis's own
    /// unless it is given.
    pub async fn resolve(
        &self,
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleDecision, StoreError> {
        match &*Part::of(bill, &self.namespace, self.net.is_cluster()) {
            // Where nothing is remembered there is nothing to ask.
            [] => gather(bill, &[], &[]).map(|nothing| ruling(bill, &nothing)),
            [whole] => {
                let reply = self.send(vec![whole.call(Mode::Whole, now)]).await.pop();
                match reply.unwrap_or(Ok(Value::Nil))? {
                    Value::Nil => Ok(RuleDecision::ALLOW),
                    reply => gather(bill, slice::from_ref(whole), &[whole.read(reply)])
                        .map(|found| ruling(bill, &found)),
                }
            }
            parts => self.resolve_in(parts, bill, now).await,
        }
    }

    /// Until when each rate of the rule is reached, remembering nothing. The time is Redis's own unless it is given.
    pub async fn examine(
        &self,
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleInspection, StoreError> {
        let mut parts = Part::of(bill, &self.namespace, self.net.is_cluster());
        if parts.is_empty() {
            // Somebody has to say what time it is.
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
        let ruling = gather(bill, parts, &found).map(|all| ruling(bill, &all));
        if !ruling.as_ref().is_ok_and(RuleDecision::allowed) {
            let undo =
                parts.iter().zip(&found).filter_map(|(part, found)| part.undo(found.as_ref().ok()?, now));
            let undo: Vec<_> = undo.collect();
            if !undo.is_empty() {
                // The ruling stands, whatever comes of this. An entry that cannot be taken back is paid for by waiting.
                self.send(undo).await;
            }
        }
        ruling
    }
}

fn ruling(bill: &RuleBill<'_>, found: &RuleInspection) -> RuleDecision {
    RuleDecision::until(bill.limit().rule().limits_until_by(|rate| found.reached_until[rate]), found.at)
}

/// What all parts found together, by the clock of the first.
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

/// What is reached until a moment at a node where it is `now`, by a clock that says `at`.
fn by_clock(at: Timestamp, until: Timestamp, now: Timestamp) -> Timestamp {
    match until.as_nanos() {
        u64::MAX => until,
        _ if until <= now => Timestamp::EPOCH,
        _ => at + until.since(now),
    }
}
