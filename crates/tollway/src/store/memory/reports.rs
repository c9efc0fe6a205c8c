//! What gatekeepers report, entered, and from when on the next request is next_allowed_at.

use std::sync::atomic::Ordering;

use tollway_core::Timestamp;
use tollway_core::algorithm::{SlidingLogState, TokenBucketState};
use tollway_core::domain::Logic;

use super::shard::Shards;
use super::{Memory, NoRoom};
use crate::hash::BucketHash;
use crate::reports::Report;

impl Memory {
    /// Enters each request, in order. Appends from when on the next of its identifier is next_allowed_at; `None` is now. An identifier
    /// that there is no room for is not delayed.
    pub fn record_reports(
        &self,
        reports: &[Report<'_>],
        now: Timestamp,
        next_allowed_at: &mut Vec<Option<Timestamp>>,
    ) {
        self.each_of(
            reports,
            |account| self.key.hash_of(account.domain.fingerprint(0), account.identifier),
            |account, hash| {
                next_allowed_at.push(match account.domain.logic() {
                    Logic::Window => self.account_in_log(account, hash, now),
                    Logic::Gcra => self.move_on(account, now),
                });
            },
            Shards::prefetch_bucket::<SlidingLogState>,
        );
    }

    fn account_in_log(&self, account: &Report<'_>, hash: BucketHash, now: Timestamp) -> Option<Timestamp> {
        let Report { domain, at, .. } = account;
        let entered = self.change(hash, now, |log: &mut SlidingLogState| domain.account(log, *at, now));
        entered.unwrap_or_else(|NoRoom| self.not_delayed())
    }

    fn move_on(&self, account: &Report<'_>, now: Timestamp) -> Option<Timestamp> {
        let Report { domain, identifier, at } = account;
        let at = domain.believed(*at, now);
        let rules = domain.rules().iter().enumerate();
        let next_allowed_at = rules.filter_map(|(index, rule)| {
            let hash = self.key.hash_of(domain.fingerprint(index), identifier);
            let moved = self.change(hash, now, |bucket: &mut TokenBucketState| rule.move_on(bucket, at, now));
            moved.unwrap_or_else(|NoRoom| self.not_delayed())
        });
        next_allowed_at.max()
    }

    fn not_delayed(&self) -> Option<Timestamp> {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        None
    }
}
