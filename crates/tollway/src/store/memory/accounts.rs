//! What gatekeepers report, entered, and from when on the next request is welcome.

use std::sync::atomic::Ordering;

use tollway_core::Timestamp;
use tollway_core::algorithm::{SlidingLog, TokenBucket};
use tollway_core::domain::Logic;

use super::shard::Shards;
use super::{Memory, NoRoom};
use crate::domains::Account;
use crate::hash::BucketHash;

impl Memory {
    /// Enters each request, in order. Appends from when on the next of its identifier is welcome; `None` is now. An identifier
    /// that there is no room for is not delayed.
    pub fn account(&self, accounts: &[Account<'_>], now: Timestamp, welcome: &mut Vec<Option<Timestamp>>) {
        self.each_of(
            accounts,
            |account| self.key.hash_of(account.domain.fingerprint(0), account.identifier),
            |account, hash| {
                welcome.push(match account.domain.logic() {
                    Logic::Window => self.account_in_log(account, hash, now),
                    Logic::Gcra => self.move_on(account, now),
                });
            },
            Shards::prefetch_bucket::<SlidingLog>,
        );
    }

    fn account_in_log(&self, account: &Account<'_>, hash: BucketHash, now: Timestamp) -> Option<Timestamp> {
        let Account { domain, at, .. } = account;
        let entered = self.change(hash, now, |log: &mut SlidingLog| domain.account(log, *at, now));
        entered.unwrap_or_else(|NoRoom| self.not_delayed())
    }

    fn move_on(&self, account: &Account<'_>, now: Timestamp) -> Option<Timestamp> {
        let Account { domain, identifier, at } = account;
        let at = domain.believed(*at, now);
        let rules = domain.rules().iter().enumerate();
        let welcome = rules.filter_map(|(index, rule)| {
            let hash = self.key.hash_of(domain.fingerprint(index), identifier);
            let moved = self.change(hash, now, |bucket: &mut TokenBucket| rule.move_on(bucket, at, now));
            moved.unwrap_or_else(|NoRoom| self.not_delayed())
        });
        welcome.max()
    }

    fn not_delayed(&self) -> Option<Timestamp> {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        None
    }
}
