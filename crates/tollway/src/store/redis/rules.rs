//! Decides by rules, with their logs in Redis.
//!
//! ```text
//! tollway:rule/shop:upload:user:vova     k10 60 0, 1700000000000000000, 1700000000250000000, …
//! ```
//!
//! A log is a list: the number of entries that are kept and their seconds and nanoseconds, and then the entries, the
//! newest last. A rule is decided as a bill that has no charges. If a Cluster has its logs in several slots, the
//! request is entered in all of them at once, and each call returns what it found before.

use std::slice;

use tollway_core::{Bill, RuleBill, RuleDecision, Timestamp};

use super::part::{Mode, Part};
use super::settle::rates;
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
        self.settle(&[Bill::rule(bill)], now).await.swap_remove(0).map(RuleDecision::from)
    }

    /// Returns the time until which each rate of the rule is reached. The time is that of Redis unless it is given.
    pub async fn examine(
        &self,
        rule: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<RuleInspection, StoreError> {
        let bill = Bill::rule(rule);
        let mut parts = Part::of(&bill, &self.namespace, self.net.is_cluster(), Mode::Check);
        if parts.is_empty() {
            // The time has to come from Redis all the same.
            parts.push(Part::new(slice::from_ref(rule), false, Mode::Check));
        }
        let calls = parts.iter().map(|part| part.call(now)).collect();
        let replies = self.send(calls).await.into_iter().zip(&parts);
        let found = replies.map(|(reply, part)| part.read(reply?, now)).collect::<Vec<_>>();
        let (at, reached_until) = rates(&bill, 0, &parts, &found)?;
        Ok(RuleInspection { at, reached_until })
    }
}
