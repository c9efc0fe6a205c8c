//! Records the reports of gatekeepers in the memory store, and finds the clients to delay.

use std::sync::atomic::Ordering;

use tollway_core::Timestamp;
use tollway_core::algorithm::{SlidingLogState, TokenBucketState};
use tollway_core::domain::Logic;

use super::{Memory, StoreFull, no_entries};
use crate::hash::BucketHash;
use crate::reports::Report;

impl Memory {
    /// Records each report in order, and appends the time from which the client's next request is allowed (`None`:
    /// now). A new client for which the store has no room is not delayed.
    pub fn record_reports(
        &self,
        reports: &[Report<'_>],
        now: Timestamp,
        next_allowed_at: &mut Vec<Option<Timestamp>>,
    ) {
        self.for_each_prefetched(
            reports,
            |report| self.key.hash_of(report.domain.fingerprint(0), report.identifier),
            |report, hash| {
                next_allowed_at.push(match report.domain.logic() {
                    Logic::Window => self.record_in_log(report, hash, now),
                    Logic::Gcra => self.record_in_token_buckets(report, now),
                });
            },
            |_, hash| self.shards.prefetch_bucket::<SlidingLogState>(hash),
        );
    }

    fn record_in_log(&self, report: &Report<'_>, hash: BucketHash, now: Timestamp) -> Option<Timestamp> {
        let Report { domain, at, .. } = report;
        let account = |log: &mut SlidingLogState| domain.account(log, *at, now);
        let entered = self.change(hash, |log| domain.len_after(log), now, account);
        entered.unwrap_or_else(|StoreFull| self.no_delay_when_full())
    }

    fn record_in_token_buckets(&self, report: &Report<'_>, now: Timestamp) -> Option<Timestamp> {
        let Report { domain, identifier, at } = report;
        let at = domain.believed(*at, now);
        let rules = domain.rules().iter().enumerate();
        let next_allowed_at = rules.filter_map(|(index, rule)| {
            let hash = self.key.hash_of(domain.fingerprint(index), identifier);
            let moved = self
                .change(hash, no_entries, now, |bucket: &mut TokenBucketState| rule.move_on(bucket, at, now));
            moved.unwrap_or_else(|StoreFull| self.no_delay_when_full())
        });
        next_allowed_at.max()
    }

    fn no_delay_when_full(&self) -> Option<Timestamp> {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        None
    }
}
