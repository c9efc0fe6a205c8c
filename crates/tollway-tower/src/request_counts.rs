//! Counts requests by their outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::admit::AdmitOutcome;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The number of requests that had each outcome since the layer was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        #[must_use]
        pub struct RequestCounts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct RequestCounters { $(pub(crate) $name: AtomicU64,)* }

        impl RequestCounters {
            pub(crate) fn read(&self) -> RequestCounts {
                RequestCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// The requests that passed without a wait.
    passed,
    /// The requests that passed because nothing could decide: the server or the store was unreachable, or the policy
    /// lacks the limit.
    failed_open,
    /// The requests that passed after a wait.
    delayed,
    /// The requests that were rejected because they were over their limit.
    rejected,
    /// The requests that were rejected for the same reasons.
    unavailable,
    /// The requests that had no client id. They are rejected or pass, as the layer is set.
    unidentified,
    /// The requests that were not counted because their path is exempt.
    exempt,
    /// The requests that ended because their client disconnected while they waited for their turn or for a reply.
    abandoned,
}

impl RequestCounters {
    /// Counts one more request by its outcome.
    pub(crate) fn count(&self, outcome: &AdmitOutcome) {
        let counter = match outcome {
            AdmitOutcome::Passed => &self.passed,
            AdmitOutcome::FailedOpen => &self.failed_open,
            AdmitOutcome::Delayed { .. } => &self.delayed,
            AdmitOutcome::Rejected { .. } => &self.rejected,
            AdmitOutcome::Unavailable { .. } => &self.unavailable,
            AdmitOutcome::Unidentified(_) => &self.unidentified,
        };
        one_more(counter);
    }
}

pub(crate) fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
