//! A store that is always away, until the scripts are here.

use std::io;

use tollgate_core::algorithm::{Measure, Order, Outcome};
use tollgate_core::{Bill, Charge, Decision, Limit, Refund, Timestamp};

use super::{Health, RedisUrl, StoreError};
use crate::keys::Knock;
use crate::store::Held;

/// The Redis store.
#[derive(Debug)]
pub struct Redis(());

/// Some of the buckets there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Their keys.
    pub buckets: Vec<String>,
    /// Where the next page starts, if there is one.
    pub next: Option<u64>,
}

type Answer<T> = Result<T, StoreError>;

fn away<T>() -> Answer<T> {
    Err(StoreError::Away { address: "nowhere".to_owned() })
}

fn all_away<A, T>(asked: &[A]) -> Vec<Answer<T>> {
    asked.iter().map(|_| away()).collect()
}

impl Redis {
    /// Opens it.
    pub fn open(_: &RedisUrl) -> io::Result<Self> {
        Ok(Self(()))
    }
    pub(crate) async fn settle(&self, bills: &[Bill<'_>], _: Option<Timestamp>) -> Vec<Answer<Decision>> {
        all_away(bills)
    }
    pub(crate) async fn check(&self, bills: &[Bill<'_>], _: Option<Timestamp>) -> Vec<Answer<Decision>> {
        all_away(bills)
    }
    pub(crate) async fn refund(&self, charges: &[Charge<'_>], _: Option<Timestamp>) -> Vec<Answer<Refund>> {
        all_away(charges)
    }
    pub(crate) async fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        away()
    }
    pub(crate) async fn knock(&self, knocks: &[Knock<'_>], _: Option<Timestamp>) -> Vec<Answer<Measure>> {
        all_away(knocks)
    }
    pub(crate) async fn execute(&self, orders: &[Order<'_>], _: Option<Timestamp>) -> Vec<Answer<Outcome>> {
        all_away(orders)
    }
    pub(crate) async fn size(&self) -> Answer<u64> {
        away()
    }
    pub(crate) async fn inspect(
        &self,
        _: &Charge<'_>,
        _: Option<Timestamp>,
    ) -> Answer<(Option<Held>, Timestamp)> {
        away()
    }
    pub(crate) async fn scan(&self, _: Option<&Limit>, _: u64, _: usize) -> Answer<Page> {
        away()
    }
    /// How it is.
    pub fn health(&self) -> Health {
        Health::default()
    }
}
