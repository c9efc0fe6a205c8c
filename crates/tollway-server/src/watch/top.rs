//! Merges the counts of all workers and generations, and sorts them.

use std::collections::HashMap;

use super::sketch::{Bounded, IdHash, SketchCounts, Subject};

/// The ids with the largest counts, merged.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The sum of everything that was counted, which is exact.
    pub(crate) total: u64,
    /// True if every bound is a single number.
    pub(crate) is_exact: bool,
    /// All ids that have a place, largest bound first.
    pub(crate) top: Vec<Entry>,
}

/// One id, and the bounds of its count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: IdHash,
    pub(crate) subject: Subject,
    pub(crate) bounds: Bounded,
}

/// Merges counts. Only subjects that `wanted` accepts are listed.
pub(crate) fn merge(counts: &[SketchCounts], wanted: impl Fn(Subject) -> bool) -> Merged {
    let held = counts.iter().flat_map(SketchCounts::held).filter(|(_, subject)| wanted(*subject));
    let ids: HashMap<IdHash, Subject> = held.collect();
    let mut top: Vec<Entry> = ids
        .into_iter()
        .map(|(hash, subject)| {
            // Each part has a bound of its own, also for an id that has no place there.
            let bounds = counts.iter().map(|counts| counts.bounds(hash));
            Entry { hash, subject, bounds: bounds.fold(Bounded::default(), Bounded::and) }
        })
        .collect();
    // The hash makes the order of equals the same each time.
    top.sort_unstable_by_key(|entry| {
        let Bounded { min, max } = entry.bounds;
        (std::cmp::Reverse((max, min)), entry.hash)
    });
    Merged {
        total: counts.iter().fold(0, |sum, counts| sum.saturating_add(counts.total())),
        is_exact: counts.iter().all(SketchCounts::is_exact),
        top,
    }
}
