//! What became of requests, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::admit::Admission;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How many requests had which end, since the layer was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Passed at once.
    passed,
    /// Passed because nobody gave an answer.
    passed_unasked,
    /// Passed after a wait.
    delayed,
    /// Rejected: they came too soon.
    rejected,
    /// Rejected because nobody gave an answer.
    unavailable,
    /// Had no identifier. Whether they passed is the layer's setting.
    unidentified,
    /// Went by unseen: their path is one that is skipped.
    skipped,
    /// Went away while they waited for their turn or for an answer.
    abandoned,
}

impl Counters {
    /// Counts one more, and says whether it is the first of its kind.
    pub(crate) fn count(&self, admission: &Admission) -> bool {
        let counter = match admission {
            Admission::Passed => &self.passed,
            Admission::PassedUnasked => &self.passed_unasked,
            Admission::Delayed { .. } => &self.delayed,
            Admission::Rejected { .. } => &self.rejected,
            Admission::Unavailable { .. } => &self.unavailable,
            Admission::Unidentified => &self.unidentified,
        };
        counter.fetch_add(1, Ordering::Relaxed) == 0
    }
}

pub(crate) fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
