//! The busiest ids of a stream of any length, in bounded memory.
//!
//! This is the Space-Saving sketch: a fixed number of counters, and an id that has none takes over the lowest with what
//! it has. A count is therefore never too low; it is too high by at most what was taken over; and an id that makes up
//! more than one part in [`COUNTERS`] of the stream is certainly counted.

use std::collections::HashMap;
use std::rc::Rc;

/// The number of ids that are counted at once, for each limit.
const COUNTERS: usize = 256;

/// Counts the busiest ids.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    places: HashMap<Rc<[u8]>, usize>,
    ids: Vec<Rc<[u8]>>,
    counts: Vec<u64>,
    taken_over: Vec<u64>,
    /// No count is lower, and none before the cursor is as low: counts only grow.
    lowest: u64,
    cursor: usize,
}

/// One of the busiest: it came at least and at most so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy<'a> {
    pub(super) id: &'a [u8],
    pub(super) at_least: u64,
    pub(super) at_most: u64,
}

impl Busiest {
    /// Counts `id` once more.
    pub(super) fn count(&mut self, id: &[u8]) {
        if let Some(&place) = self.places.get(id) {
            self.counts[place] += 1;
        } else if self.ids.len() < COUNTERS {
            self.ids.push(id.into());
            self.counts.push(1);
            self.taken_over.push(0);
            self.settle(self.ids.len() - 1);
        } else {
            self.take_over(id);
        }
    }

    /// Returns the `n` busiest ids, the busiest first; equals in the order of their ids.
    pub(super) fn top(&self, n: usize) -> Vec<Busy<'_>> {
        let busy = |place: usize| Busy {
            id: &self.ids[place],
            at_least: self.counts[place] - self.taken_over[place],
            at_most: self.counts[place],
        };
        let mut all: Vec<_> = (0..self.ids.len()).map(busy).collect();
        all.sort_by(|a, b| (b.at_most, b.at_least, a.id).cmp(&(a.at_most, a.at_least, b.id)));
        all.truncate(n);
        all
    }

    fn take_over(&mut self, id: &[u8]) {
        let place = self.lowest_place();
        self.places.remove(&self.ids[place]);
        self.ids[place] = id.into();
        self.taken_over[place] = self.lowest;
        self.counts[place] = self.lowest + 1;
        self.settle(place);
    }

    fn lowest_place(&mut self) -> usize {
        loop {
            let rest = &self.counts[self.cursor..];
            if let Some(further) = rest.iter().position(|count| *count == self.lowest) {
                self.cursor += further;
                return self.cursor;
            }
            self.lowest = self.counts.iter().copied().min().unwrap_or_default();
            self.cursor = 0;
        }
    }

    fn settle(&mut self, place: usize) {
        self.places.insert(Rc::clone(&self.ids[place]), place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ids_are_counted_exactly() {
        let mut busiest = Busiest::default();
        for id in ["a", "b", "c", "b", "c", "c"] {
            busiest.count(id.as_bytes());
        }
        let exactly = |id: &'static str, n| Busy { id: id.as_bytes(), at_least: n, at_most: n };
        assert_eq!(busiest.top(9), [exactly("c", 3), exactly("b", 2), exactly("a", 1)]);
        assert_eq!(busiest.top(1), [exactly("c", 3)]);
    }

    #[test]
    fn among_many_ids_the_busy_are_found_and_their_counts_are_bounds() {
        let mut busiest = Busiest::default();
        let mut true_counts = HashMap::<Vec<u8>, u64>::new();
        for n in 0..200_000_u64 {
            // Five in a hundred are `hot`, two are `warm`; the rest come once each.
            let id = match n % 100 {
                0..5 => "hot".to_owned(),
                5..7 => "warm".to_owned(),
                _ => format!("once-{n}"),
            };
            busiest.count(id.as_bytes());
            *true_counts.entry(id.into_bytes()).or_default() += 1;
        }
        let top = busiest.top(COUNTERS);
        assert_eq!((top[0].id, top[1].id), (&b"hot"[..], &b"warm"[..]));
        for busy in &top {
            let truth = true_counts[busy.id];
            assert!(busy.at_least <= truth && truth <= busy.at_most, "{busy:?} came {truth} times");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut busiest = Busiest::default();
        (0..10_000_u32).for_each(|n| busiest.count(&n.to_le_bytes()));
        assert_eq!((busiest.ids.len(), busiest.places.len()), (COUNTERS, COUNTERS));
    }
}
