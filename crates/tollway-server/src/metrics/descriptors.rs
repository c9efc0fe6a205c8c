//! Counts the decisions of descriptors by the values of requests, for those that have `detailed_metric` or
//! `value_to_metric`.
//!
//! Clients choose the values, so their number has a bound: what comes after is counted under one name.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tollway_core::Decision;

use super::{Counter, OUTCOMES, outcome};

/// The most names of descriptors that one process counts by themselves. Each has a line for each outcome that occurred.
pub(crate) const DESCRIPTOR_SERIES_MAX: usize = 1_000;

/// The name under which everything beyond the bound is counted. No descriptor has it, because one has a `=`.
const OTHER: &str = "other";

/// The counters of one process: all workers share them, so that the bound holds for all together.
#[derive(Debug, Default)]
pub(crate) struct DescriptorSeries {
    /// The counters by limit, and by the name of a descriptor with its values.
    limits: RwLock<SeriesTable>,
    /// The decisions that were counted as [`OTHER`].
    pub(super) overflow: Counter,
}

#[derive(Debug, Default)]
struct SeriesTable {
    limits: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<OutcomeCounters>>>,
    /// The number of names, without [`OTHER`].
    names: usize,
}

type OutcomeCounters = [Counter; OUTCOMES.len()];

impl DescriptorSeries {
    /// Counts a decision of this limit about a descriptor.
    pub(crate) fn count(&self, limit: &str, descriptor: &str, decision: &Decision) {
        let known = self.limits.read().expect("nobody panics while counting").find(limit, descriptor);
        let (counters, is_other) = known.unwrap_or_else(|| {
            self.limits.write().expect("nobody panics while counting").find_or_add(limit, descriptor)
        });
        counters[outcome(decision.verdict)].one();
        self.overflow.add(u64::from(is_other));
    }

    /// Returns the number of names that are counted by themselves.
    pub(super) fn names(&self) -> usize {
        self.limits.read().expect("nobody panics while counting").names
    }

    /// Calls `each` with the limit, the descriptor, the outcome and the number of decisions.
    pub(super) fn for_each(&self, mut each: impl FnMut(&str, &str, &str, u64)) {
        for (limit, descriptor, counters) in self.series() {
            for ((_, outcome), counter) in OUTCOMES.into_iter().zip(&*counters) {
                if counter.get() > 0 {
                    each(&limit, &descriptor, outcome, counter.get());
                }
            }
        }
    }

    /// Returns all counters with their names. A scrape writes thousands of lines about them, and a worker that adds a
    /// name must not wait for that, so the lock is held only while they are cloned.
    fn series(&self) -> Vec<(Arc<str>, Arc<str>, Arc<OutcomeCounters>)> {
        let table = self.limits.read().expect("nobody panics while counting");
        let series = table.limits.iter().flat_map(|(limit, descriptors)| {
            descriptors.iter().map(|(descriptor, counters)| {
                (Arc::clone(limit), Arc::clone(descriptor), Arc::clone(counters))
            })
        });
        series.collect()
    }
}

impl SeriesTable {
    /// Returns the counters of a descriptor, and whether they are those of [`OTHER`]; `None` if they must be added.
    fn find(&self, limit: &str, descriptor: &str) -> Option<(Arc<OutcomeCounters>, bool)> {
        let descriptors = self.limits.get(limit)?;
        if let Some(counters) = descriptors.get(descriptor) {
            return Some((Arc::clone(counters), false));
        }
        let other = descriptors.get(OTHER).filter(|_| self.names >= DESCRIPTOR_SERIES_MAX)?;
        Some((Arc::clone(other), true))
    }

    /// Returns the counters of a descriptor as [`find`](Self::find) does, and adds them if they are missing.
    fn find_or_add(&mut self, limit: &str, descriptor: &str) -> (Arc<OutcomeCounters>, bool) {
        // Another worker may have added them in between.
        if let Some(found) = self.find(limit, descriptor) {
            return found;
        }
        let is_other = self.names >= DESCRIPTOR_SERIES_MAX;
        self.names += usize::from(!is_other);
        let name = if is_other { OTHER } else { descriptor };
        let descriptors = self.limits.entry(limit.into()).or_default();
        (Arc::clone(descriptors.entry(name.into()).or_default()), is_other)
    }
}
