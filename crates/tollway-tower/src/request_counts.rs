//! What became of requests, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::admit::AdmitOutcome;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How many requests had which end, since the layer was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
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
    /// Passed at once.
    passed,
    /// Passed because nobody gave an answer.
    failed_open,
    /// Passed after a wait.
    delayed,
    /// Rejected: they came too soon.
    rejected,
    /// Rejected because nobody gave an answer.
    unavailable,
    /// Had no id. Whether they passed is the layer's setting.
    unidentified,
    /// Went by unseen: their path is one that is skipped.
    exempt,
    /// Went away while they waited for their turn or for an answer.
    abandoned,
}

impl RequestCounters {
    /// RequestCounts one more, and says whether it is the first of its kind.
    pub(crate) fn count(&self, outcome: &AdmitOutcome) -> bool {
        let counter = match outcome {
            AdmitOutcome::Passed => &self.passed,
            AdmitOutcome::FailedOpen => &self.failed_open,
            AdmitOutcome::Delayed { .. } => &self.delayed,
            AdmitOutcome::Rejected { .. } => &self.rejected,
            AdmitOutcome::Unavailable { .. } => &self.unavailable,
            AdmitOutcome::Unidentified => &self.unidentified,
        };
        counter.fetch_add(1, Ordering::Relaxed) == 0
    }
}

pub(crate) fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
