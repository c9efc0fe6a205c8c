//! The oracle: what the promise says about every request, worked out without the product's code.
//!
//! [`Model`] answers bills from naive buckets, the ones that the tests of the core compare with. [`Ledger`] knows
//! nothing of buckets: it adds up what an id was granted, and compares it with `burst + rate * d`.

mod bucket;
mod ledger;
mod model;
#[path = "../../crates/tollway-core/tests/oracle/naive/mod.rs"]
mod naive;

pub(crate) use self::bucket::Sharing;
pub(crate) use self::ledger::Ledger;
pub(crate) use self::model::{AskedRule, Line, Model, RULE_PERIOD, same};
