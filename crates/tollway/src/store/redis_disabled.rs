//! The Redis store where the feature `redis` is off: a type without values, so that no call can reach it.
//!
//! It has the calls of the real one, so that the engine is the same code with the feature and without.

use tollway_core::algorithm::{QuotaCommand, QuotaOutcome, RateReading};
use tollway_core::{Bill, Charge, Decision, Domain, Limit, Refund, RuleBill, RuleDecision, Timestamp};

use super::{BucketPage, BucketReading, Health, StoreError};
use crate::engine::RuleInspection;
use crate::rates::RateUpdate;
use crate::reports::{Delays, Report};

type Answer<T> = Result<T, StoreError>;

/// The Redis store, which only a build with the feature `redis` can open.
#[derive(Clone, Debug)]
pub enum Redis {}

#[expect(clippy::unused_async, reason = "the real calls are awaited")]
impl Redis {
    pub(crate) fn for_blocking_callers(&self) -> Self {
        match *self {}
    }

    pub(crate) fn health(&self) -> Health {
        match *self {}
    }

    pub(crate) async fn settle(&self, _: &[Bill<'_>], _: Option<Timestamp>) -> Vec<Answer<Decision>> {
        match *self {}
    }

    pub(crate) async fn settle_each(
        &self,
        _: &Bill<'_>,
        _: Option<Timestamp>,
    ) -> Answer<(Decision, Vec<Decision>)> {
        match *self {}
    }

    pub(crate) async fn check(&self, _: &[Bill<'_>], _: Option<Timestamp>) -> Vec<Answer<Decision>> {
        match *self {}
    }

    pub(crate) async fn update_rates(
        &self,
        _: &[RateUpdate<'_>],
        _: Option<Timestamp>,
    ) -> Vec<Answer<RateReading>> {
        match *self {}
    }

    pub(crate) async fn run_quota_commands(
        &self,
        _: &[QuotaCommand<'_>],
        _: Option<Timestamp>,
    ) -> Vec<Answer<QuotaOutcome>> {
        match *self {}
    }

    pub(crate) async fn resolve(&self, _: &RuleBill<'_>, _: Option<Timestamp>) -> Answer<RuleDecision> {
        match *self {}
    }

    pub(crate) async fn examine(&self, _: &RuleBill<'_>, _: Option<Timestamp>) -> Answer<RuleInspection> {
        match *self {}
    }

    pub(crate) async fn record_reports(
        &self,
        _: &[Report<'_>],
        _: Option<Timestamp>,
    ) -> Vec<Answer<Option<Timestamp>>> {
        match *self {}
    }

    pub(crate) async fn delays(&self, _: &Domain, _: u64, _: usize, _: Option<Timestamp>) -> Answer<Delays> {
        match *self {}
    }

    pub(crate) async fn refund(&self, _: &[Charge<'_>], _: Option<Timestamp>) -> Vec<Answer<Refund>> {
        match *self {}
    }

    pub(crate) async fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        match *self {}
    }

    pub(crate) async fn inspect(&self, _: &Charge<'_>, _: Option<Timestamp>) -> Answer<BucketReading> {
        match *self {}
    }

    pub(crate) async fn scan(&self, _: Option<&Limit>, _: u64, _: usize) -> Answer<BucketPage> {
        match *self {}
    }

    pub(crate) async fn size(&self) -> Answer<u64> {
        match *self {}
    }
}
