//! Lets old counts go: a sketch for each generation, of which the last few are shown.
//!
//! ```text
//! generation   4      5      6 (current)
//!           |──────|──────|───▌
//!           └ shown: from the start of the oldest generation until now, 40 to 60 seconds
//! ```
//!
//! The window that is shown starts where the oldest generation starts, so its bounds are sums of bounds, and they hold.
//! Halving all counts from time to time would need less memory, but then no number says which time it is about.

use super::decision_sampler::SampledUnits;
use super::sketch::{Added, Cells, IdHash, ShortId, Sketch, SketchCounts};

/// The number of generations that are kept, the current one included.
pub(crate) const KEPT: usize = 3;
/// The seconds that a generation lasts.
pub(crate) const SECONDS: u64 = 20;

/// Sketches of the last generations. Each is made when something is counted in it for the first time.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    kept: [Option<Generation>; KEPT],
    newest: Option<NewestCells>,
}

#[derive(Debug)]
struct Generation {
    number: u64,
    sketch: Sketch,
}

/// The cells of the newest generation. An older one, to which nothing is added, needs none.
#[derive(Debug)]
struct NewestCells {
    generation: u64,
    cells: Cells,
}

impl Generations {
    /// The bytes of the sketches and the cells.
    pub(crate) const SIZE: usize = KEPT * Sketch::SIZE + Cells::SIZE;

    /// Adds amounts to the counts of ids, in this generation.
    #[inline]
    pub(crate) fn add_all(&mut self, generation: u64, added: &[Added<'_>]) {
        let Self { kept, newest } = self;
        let place = place(generation);
        let newest = newest.get_or_insert_with(|| NewestCells { generation, cells: Cells::new() });
        let sketch = current(&mut kept[place], generation);
        if newest.generation < generation {
            newest.cells.clear();
            newest.generation = generation;
        }
        if newest.generation == generation {
            sketch.add_all(&mut newest.cells, added);
        } else {
            sketch.add_all_without_cells(added);
        }
    }

    /// Adds units that were not counted one by one, in this generation.
    #[inline(never)]
    pub(crate) fn add_units(&mut self, generation: u64, units: SampledUnits) {
        current(&mut self.kept[place(generation)], generation).add_units(units);
    }

    /// Starts to fetch what [`add_all`](Self::add_all) reads of an id first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IdHash) {
        if let Some(newest) = &self.newest {
            newest.cells.prefetch(hash);
        }
    }

    /// Returns the counts that are shown in this generation.
    pub(crate) fn counts(&self, generation: u64) -> impl Iterator<Item = SketchCounts> {
        self.shown(generation).map(Sketch::counts)
    }

    /// Returns the id that has this hash, if it has a place in what is shown.
    pub(crate) fn id(&self, generation: u64, hash: IdHash) -> Option<&ShortId> {
        self.shown(generation).find_map(|sketch| sketch.id(hash))
    }

    fn shown(&self, generation: u64) -> impl Iterator<Item = &Sketch> {
        let oldest = oldest_shown(generation);
        let shown = move |kept: &&Generation| (oldest..=generation).contains(&kept.number);
        self.kept.iter().flatten().filter(shown).map(|kept| &kept.sketch)
    }
}

/// Returns the sketch of a generation, emptied if it had another.
fn current(place: &mut Option<Generation>, number: u64) -> &mut Sketch {
    let generation = place.get_or_insert_with(|| Generation { number, sketch: Sketch::new() });
    if generation.number != number {
        generation.sketch.clear();
        generation.number = number;
    }
    &mut generation.sketch
}

/// Returns the number of the oldest generation that is shown.
pub(crate) const fn oldest_shown(generation: u64) -> u64 {
    generation.saturating_sub(KEPT as u64 - 1)
}

#[expect(clippy::cast_possible_truncation, reason = "less than KEPT")]
const fn place(number: u64) -> usize {
    (number % KEPT as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::sketch::{Bounded, SketchKey, Subject};
    use super::*;

    #[test]
    fn counts_are_shown_for_three_generations_and_then_gone() {
        let (key, mut generations) = (SketchKey::random(), Generations::default());
        let hash = key.hash(Subject(0), b"a");
        let id = &b"a"[..];
        let mut add = |generation, amount| {
            generations.add_all(generation, &[Added { hash, subject: Subject(0), id, amount }]);
        };
        add(0, 1);
        add(1, 10);
        add(2, 100);
        let shown = |generations: &Generations, now| {
            let counts: Vec<_> = generations.counts(now).collect();
            let bounds =
                counts.iter().map(|counts| counts.bounds(hash)).fold(Bounded::default(), Bounded::and);
            assert_eq!(bounds.min, bounds.max);
            (bounds.max, counts.iter().map(SketchCounts::total).sum::<u64>())
        };
        assert_eq!(shown(&generations, 2), (111, 111));
        assert_eq!(shown(&generations, 3), (110, 110));
        assert_eq!(shown(&generations, 4), (100, 100));
        assert_eq!(shown(&generations, 5), (0, 0));
        assert!(generations.id(4, hash).is_some() && generations.id(5, hash).is_none());
        generations.add_all(5, &[Added { hash, subject: Subject(0), id, amount: 1_000 }]);
        assert_eq!(shown(&generations, 5), (1_000, 1_000));
    }

    /// A worker that was held up may still record at the time before.
    #[test]
    fn counts_of_an_older_generation_are_added_to_it() {
        let (key, mut generations) = (SketchKey::random(), Generations::default());
        let ids: Vec<String> = (0..5_000).map(|id| format!("id-{id}")).collect();
        for generation in [5, 4, 5] {
            let added = ids.iter().map(String::as_bytes).map(|id| {
                let (hash, subject) = (key.hash(Subject(0), id), Subject(0));
                Added { hash, subject, id, amount: 1 }
            });
            generations.add_all(generation, &added.collect::<Vec<_>>());
        }
        let counts: Vec<_> = generations.counts(5).collect();
        assert_eq!(counts.iter().map(SketchCounts::total).sum::<u64>(), 15_000);
        for id in &ids {
            let hash = key.hash(Subject(0), id.as_bytes());
            let bounds =
                counts.iter().map(|counts| counts.bounds(hash)).fold(Bounded::default(), Bounded::and);
            assert!(bounds.min <= 3 && 3 <= bounds.max, "{id}: {bounds:?}");
        }
    }
}
