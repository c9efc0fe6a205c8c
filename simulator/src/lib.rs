//! A simulator that tries to break what the limits promise.
//!
//! ```
//! let history = tollway_simulator::simulate(7, 1_000, None);
//! assert!(history.violations().is_empty());
//! assert_eq!(history.hash(), tollway_simulator::simulate(7, 1_000, None).hash());
//! ```
//!
//! One seed decides everything: what clients ask and when, which limits are raised and lowered, what fails. The limiter
//! and its stores are those of the product. Everything around them is simulated, under one virtual clock and in one
//! thread, so the same seed always gives the same history.
//!
//! Two oracles judge every decision, and neither uses the product's code: a model that answers by definition, and a
//! ledger that compares what every id was granted with `burst + rate * d`.

mod fleet;
mod history;
mod memory;
mod oracle;
mod plant;
mod redis;
mod requests;
mod schedule;
mod world;

pub use history::{Entry, History, Violation};
pub use plant::Plant;
pub use world::simulate;
