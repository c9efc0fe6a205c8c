//! Defines the error that a call returns when the store gives no answer.

use std::time::Duration;

use thiserror::Error;

/// An error that a call returns when the store gives no answer. A denial is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no connection, and none could be made, or it ended while the answer was awaited.
    #[error("redis {address} is unreachable: {reason}")]
    Unreachable {
        /// The address of the node that is unreachable.
        address: String,
        /// The reason that the system gave.
        reason: String,
    },
    /// The answer did not come in time. What was asked for may have been done all the same.
    #[error("redis {address} did not answer within {waited:?}")]
    TimedOut {
        /// The address of the node that did not answer.
        address: String,
        /// The time that the call has waited.
        waited: Duration,
    },
    /// It failed a moment ago, and is not asked until a probe has found it well.
    #[error("redis {address} is unreachable; circuit open, probing")]
    Away {
        /// The address of the node that failed.
        address: String,
    },
    /// More was asked than may wait at once.
    #[error("{waiting} calls to redis are already pending; try again later")]
    Busy {
        /// The number of calls that wait already.
        waiting: usize,
    },
    /// It answered that it cannot: it is loading, is a replica, refuses the password, or has no such slot.
    #[error("redis {address} refused the call: {reason}")]
    Refused {
        /// The address of the node that refused.
        address: String,
        /// The reason that the node gave.
        reason: String,
    },
    /// It answered something that no answer is.
    #[error("redis sent an unexpected reply: {found}")]
    Nonsense {
        /// The answer that was received.
        found: String,
    },
}
