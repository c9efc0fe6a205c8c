//! Why a store gave no answer.

use std::time::Duration;

use thiserror::Error;

/// Why a store gave no answer. Being over the limit is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no connection, and none could be made, or it ended while the answer was awaited.
    #[error("store at {address} cannot be reached: {reason}")]
    Unreachable {
        /// Which node.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// The answer did not come in time. What was asked for may have been done all the same.
    #[error("store at {address} gave no answer within {waited:?}")]
    TimedOut {
        /// Which node.
        address: String,
        /// For how long it was waited.
        waited: Duration,
    },
    /// It failed a moment ago, and is not asked until a probe has found it well.
    #[error("store at {address} is away, and is asked again when a probe has found it")]
    Away {
        /// Which node.
        address: String,
    },
    /// More was asked than may wait at once.
    #[error("{waiting} calls wait for the store already")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// It answered that it cannot: it is loading, is a replica, refuses the password, or has no such slot.
    #[error("store at {address} refused: {reason}")]
    Refused {
        /// Which node.
        address: String,
        /// What it said.
        reason: String,
    },
    /// It answered something that no answer is.
    #[error("store answered what makes no sense: {found}")]
    Nonsense {
        /// What it answered.
        found: String,
    },
}
