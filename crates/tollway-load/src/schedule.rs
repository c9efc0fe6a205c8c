//! The schedule that says when the requests of an open loop are sent.
//!
//! In a closed loop the next batch of a connection leaves when the last is answered: the server sets the pace, and the
//! figures say how much it can take. In an open loop batches leave when the schedule says, whatever the answers do, and
//! a latency counts from the scheduled instant. A server that pauses then shows every request that the pause held up,
//! and not only the one that it happened to be working on.

use tollway_core::{Nanos, Timestamp};

/// The schedule of an open loop: batches leave at a constant rate, the connections in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) start: Timestamp,
    /// The number of requests per second, over all connections.
    pub(crate) rate: u64,
    pub(crate) connections: u64,
    /// The number of requests that leave at once.
    pub(crate) batch: u64,
}

const SECOND: u128 = 1_000_000_000;

impl Schedule {
    /// Returns how many batches of all connections are due by `now`. The first is due at the start.
    pub(crate) fn due(&self, now: Timestamp) -> u64 {
        let elapsed = u128::from(now.since(self.start).get());
        let whole = elapsed * u128::from(self.rate) / (SECOND * u128::from(self.batch));
        u64::try_from(whole).unwrap_or(u64::MAX - 1) + 1
    }

    /// Returns when the n-th batch of all leaves: the first instant at which [`due`](Self::due) counts it.
    pub(crate) fn at(&self, batch: u64) -> Timestamp {
        let nanos = (u128::from(batch) * u128::from(self.batch) * SECOND).div_ceil(u128::from(self.rate));
        self.start + Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns when the n-th request of one connection leaves.
    pub(crate) fn request_at(&self, request: u64, connection: u64) -> Timestamp {
        self.at(request / self.batch * self.connections + connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn a_batch_is_due_at_its_instant_and_not_before() {
        for (rate, batch) in [(1, 1), (3, 1), (1_000_000, 64), (7_777_777, 16), (10, 1_000)] {
            let schedule = Schedule { start: nanos(5_000), rate, connections: 3, batch };
            assert_eq!(schedule.at(0), nanos(5_000));
            for n in [1, 2, 3, 64, 1_000_003] {
                let at = schedule.at(n);
                assert_eq!(
                    (schedule.due(at), schedule.due(at - Nanos::new(1))),
                    (n + 1, n),
                    "{rate}/{batch}: {n}"
                );
            }
        }
    }

    #[test]
    fn in_the_long_run_the_rate_is_kept() {
        let schedule = Schedule { start: nanos(0), rate: 1_500_000, connections: 50, batch: 64 };
        let day = Nanos::from_secs(86_400);
        let sent = (schedule.due(Timestamp::EPOCH + day) - 1) * 64;
        assert!((86_400 * 1_500_000 - 64..=86_400 * 1_500_000).contains(&sent), "{sent}");
    }

    #[test]
    fn connections_take_turns() {
        let schedule = Schedule { start: nanos(0), rate: 1_000, connections: 3, batch: 2 };
        // Requests 0 and 1 of connection 1 are the second batch of all, 2 and 3 the fifth.
        for (request, batch) in [(0, 1), (1, 1), (2, 4), (3, 4), (4, 7)] {
            assert_eq!(schedule.request_at(request, 1), schedule.at(batch));
        }
    }
}
