//! Merges the counts of all workers and generations, and sorts them.

use std::collections::HashMap;

use super::decision_sampler::SampledUnits;
use super::sketch::{Bounded, IdHash, PlacedId, SETS, SketchCounts, Subject};

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

/// The sums of the bounds of what was counted of an id, over all workers and generations. They have 128 bits, because
/// several counts of 64 bits are added.
struct Sums {
    subject: Subject,
    min: u128,
    max: u128,
}

/// Merges counts. Only subjects that `wanted` accepts are listed.
///
/// The bounds of an id are the sums of its bounds in all parts. A part in which it has no place has a bound of its own,
/// which is the same for all ids of a set. So the sums of those are the start for each id, and only the parts in which
/// it has a place are corrected. Asking every part about every id would take the square of the number of workers.
///
/// They are bounds of what was counted. What an id used is within the bounds that are widened by what was left out: of
/// the sums, because the more samples, the smaller is the share that chance can change.
pub(crate) fn merge(counts: &[SketchCounts], wanted: impl Fn(Subject) -> bool) -> Merged {
    let units = counts.iter().map(SketchCounts::units).fold(SampledUnits::default(), SampledUnits::and);
    let mut without_place = [0_u128; SETS];
    for part in counts {
        without_place.iter_mut().zip(part.max_without_place()).for_each(|(sum, max)| *sum += u128::from(max));
    }
    let mut ids: HashMap<IdHash, Sums> = HashMap::new();
    let placed = counts.iter().flat_map(SketchCounts::placed_ids).filter(|placed| wanted(placed.subject));
    for PlacedId { hash, subject, bounds, max_without_place } in placed {
        let start = || Sums { subject, min: 0, max: without_place[hash.set()] };
        let sums = ids.entry(hash).or_insert_with(start);
        sums.min += u128::from(bounds.min);
        // In this order: with a place it may have used less than others without one.
        sums.max = sums.max + u128::from(bounds.max) - u128::from(max_without_place);
    }
    let count = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    let entry = |(hash, Sums { subject, min, max })| {
        let bounds = units.widen(Bounded { min: count(min), max: count(max) });
        Entry { hash, subject, bounds }
    };
    let mut top: Vec<Entry> = ids.into_iter().map(entry).collect();
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
