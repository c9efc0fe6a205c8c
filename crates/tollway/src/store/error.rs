//! Defines the error that a call returns when the store gives no answer.

use std::time::Duration;

use thiserror::Error;

use crate::cause::Cause;

/// An error that a call returns when the store gives no answer. A denial is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No connection could be opened, or it ended while the call was pending.
    #[error("redis {address} is unreachable")]
    Unreachable {
        /// The address of the node that is unreachable.
        address: String,
        /// The error of the connection, or of the attempt to open one.
        source: Cause,
    },
    /// The answer did not come before the deadline. The call may have been executed all the same.
    #[error("redis {address} did not answer within {waited:?}")]
    TimedOut {
        /// The address of the node that did not answer.
        address: String,
        /// The time that the call has waited.
        waited: Duration,
    },
    /// The circuit breaker of the node is open: calls fail at once until a probe succeeds.
    #[error("redis {address} is unreachable; circuit open, probing")]
    CircuitOpen {
        /// The address of the node that failed.
        address: String,
    },
    /// Too many calls are pending, or the call waited too long to be sent. It was not executed.
    #[error("{waiting} calls to redis are already pending; try again later")]
    Busy {
        /// The number of calls that wait already.
        waiting: usize,
    },
    /// The node refused the call: it is loading, is a replica, refuses the password, or does not have the slot.
    #[error("redis {address} refused the call: {reason}")]
    Refused {
        /// The address of the node that refused.
        address: String,
        /// The reason that the node gave.
        reason: String,
    },
    /// The reply is not one that a script of ours returns.
    #[error("redis sent an unexpected reply: {found}")]
    UnexpectedReply {
        /// The answer that was received.
        found: String,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;

    use tollway_core::ErrorChain;

    use super::*;

    #[test]
    fn an_unreachable_store_names_its_cause_once_and_keeps_it() {
        let source = Cause::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = StoreError::Unreachable { address: "cache:6379".to_owned(), source };
        assert_eq!(error.to_string(), "redis cache:6379 is unreachable");
        assert_eq!(ErrorChain(&error).to_string(), "redis cache:6379 is unreachable: connection refused");
        let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(error.clone(), error);
    }
}
