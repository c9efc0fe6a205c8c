//! Records the reports of gatekeepers in Redis.
//!
//! ```text
//! tollway:smockron/web/10.0.0.1     1700000000000000000, 1700000000250000000, …
//! ```
//!
//! Masters that share a Redis share the reports, and each of them knows who is delayed.

use redis::Value;
use tollway_core::domain::{DomainRule, Logic};
use tollway_core::{Domain, Timestamp};

use super::call::Call;
use super::net::Reply;
use super::reply::{ScriptReply, number};
use super::script::{self, CallBuilder};
use super::{Redis, StoreError};
use crate::reports::{Delay, Delays, Report};

impl Redis {
    /// Enters each request, in order, in one pipeline. Returns the time from which the identifier's next request is
    /// allowed; `None` is now. The time is that of Redis unless it is given.
    pub async fn record_reports(
        &self,
        reports: &[Report<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Option<Timestamp>, StoreError>> {
        let call = |report: &Report<'_>| {
            let key = self.namespace.of_identifier(report.domain, report.identifier);
            call(report.domain, &key, Some(report.at), now)
        };
        let replies = self.send(reports.iter().map(call).collect()).await;
        reports.iter().zip(replies).map(|(report, reply)| next_allowed_at(report.domain, reply)).collect()
    }

    /// Returns a page of a domain's identifiers that are delayed. A page begins at 0, or where the one before it
    /// ended, and comes from about `count` keys.
    pub async fn delays(
        &self,
        domain: &Domain,
        from: u64,
        count: usize,
        now: Option<Timestamp>,
    ) -> Result<Delays, StoreError> {
        let (keys, next) = self.scan_keys(self.namespace.identifier_pattern(domain), from, count).await?;
        let known = |key: Vec<u8>| Some((self.namespace.identifier(domain, &key)?, key));
        let known: Vec<_> = keys.into_iter().filter_map(known).collect();
        let calls = known.iter().map(|(_, key)| call(domain, key, None, now)).collect();
        let replies = self.send(calls).await.into_iter().zip(known);
        let delays = replies.filter_map(|(reply, (identifier, _))| {
            let until = next_allowed_at(domain, reply).transpose()?;
            Some(until.map(|until| Delay { identifier, until }))
        });
        Ok(Delays { delays: delays.collect::<Result<_, _>>()?, next })
    }
}

/// Returns the call that enters a time, or none, and reads the log.
fn call(domain: &Domain, key: &[u8], at: Option<Timestamp>, now: Option<Timestamp>) -> Call {
    let script = match domain.logic() {
        Logic::Window => &script::REPORT_WINDOW,
        Logic::Gcra => &script::REPORT_GCRA,
    };
    let draft = CallBuilder::new(script, &[key]).now(now).now(at).pair(domain.ahead_max().get());
    let rules = domain.rules().iter();
    match domain.logic() {
        Logic::Window => {
            let draft = draft.arg(domain.keep()).pair(domain.span().get() + 1);
            rules.fold(draft, |draft, rule| draft.arg(rule.limit().burst())).finish()
        }
        Logic::Gcra => {
            let interval = |rule: &DomainRule| rule.limit().emission_interval().get();
            rules.fold(draft, |draft, rule| draft.pair(interval(rule)).pair(rule.owed_max().get())).finish()
        }
    }
}

/// Parses the time from which the next request is allowed.
fn next_allowed_at(domain: &Domain, reply: Reply) -> Result<Option<Timestamp>, StoreError> {
    let mut answer = ScriptReply::new(reply?)?;
    let now = answer.now()?;
    let newest = match domain.logic() {
        Logic::Window => moment(&answer.value())?,
        Logic::Gcra => None,
    };
    let mut latest = None;
    for rule in domain.rules() {
        let found = moment(&answer.value())?;
        latest = latest.max(match (domain.logic(), found, newest) {
            (Logic::Window, Some(oldest), Some(newest)) => rule.next_allowed_by_log(oldest, newest, now),
            (Logic::Gcra, Some(full_at), _) => rule.next_allowed_by_full_at(full_at, now),
            _ => None,
        });
    }
    Ok(latest)
}

fn moment(value: &Value) -> Result<Option<Timestamp>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        digits => number(digits).map(|nanos| Some(Timestamp::from_nanos(nanos))),
    }
}
