//! Keeps the last denials of one worker.

use tollway_core::Nanos;

use super::sketch::{ShortId, Subject};

/// The number of denials that are kept on each worker, and shown of all.
pub(crate) const LAST: usize = 100;

/// One request that was denied.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    /// Milliseconds since the server started.
    pub(crate) at: u64,
    pub(crate) gate: &'static str,
    pub(crate) subject: Subject,
    pub(crate) cost: u64,
    /// The time after which it would have been allowed; `None` if that is not known.
    pub(crate) retry: Option<Nanos>,
    pub(crate) id: ShortId,
}

impl Denial {
    const EMPTY: Self =
        Self { at: 0, gate: "", subject: Subject(0), cost: 0, retry: None, id: ShortId::EMPTY };
}

/// A ring of the last denials.
#[derive(Debug, Default)]
pub(crate) struct LastDenials {
    ring: Vec<Denial>,
    /// The place of the next denial. In a full ring it has the oldest one.
    next: usize,
    /// The number of denials that were added in this tick.
    of_tick: usize,
}

impl LastDenials {
    /// The bytes that a full ring has.
    pub(crate) const SIZE: usize = LAST * size_of::<Denial>();

    /// Starts a tick. At most as many of its denials as fill the ring are kept: a server that denies a million a second
    /// would spend more on this list than on denying, and nobody could read it.
    pub(crate) const fn start_tick(&mut self) {
        self.of_tick = 0;
    }

    /// Returns whether no more denials of this tick are kept.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.of_tick == LAST
    }

    /// Adds a denial, instead of the oldest one if the ring is full. Ask [`is_full`](Self::is_full) before.
    ///
    /// It is written where it stays: most of a [`Denial`] is room for a long id, and all of it would be copied to build
    /// one and to move it here.
    pub(crate) fn push(
        &mut self,
        at: u64,
        gate: &'static str,
        subject: Subject,
        id: &[u8],
        cost: u64,
        retry: Option<Nanos>,
    ) {
        self.of_tick += 1;
        if self.next == self.ring.len() {
            self.add_place();
        }
        let denial = &mut self.ring[self.next];
        denial.at = at;
        denial.gate = gate;
        denial.subject = subject;
        denial.cost = cost;
        denial.retry = retry;
        denial.id.set(id);
        self.next = if self.next + 1 == LAST { 0 } else { self.next + 1 };
    }

    #[cold]
    fn add_place(&mut self) {
        self.ring.reserve_exact(LAST - self.ring.len());
        self.ring.push(Denial::EMPTY);
    }

    /// Returns the denials, newest first.
    pub(crate) fn to_vec(&self) -> Vec<Denial> {
        let (newer, older) = self.ring.split_at(self.next);
        newer.iter().rev().chain(older.iter().rev()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_are_kept() {
        let mut last = LastDenials::default();
        for at in 0..250 {
            let id = format!("{}{at}", "long".repeat(usize::try_from(at % 3).unwrap()));
            last.start_tick();
            last.push(at, "http", Subject::default(), id.as_bytes(), 1, None);
            let kept = last.to_vec();
            let times: Vec<_> = kept.iter().map(|denial| denial.at).collect();
            assert_eq!(times, ((at + 1).saturating_sub(100)..=at).rev().collect::<Vec<_>>());
            assert_eq!(kept[0].id.bytes(), id.as_bytes());
        }
        last.start_tick();
        while !last.is_full() {
            last.push(250, "http", Subject::default(), b"many", 1, None);
        }
        assert!(last.to_vec().iter().all(|denial| denial.at == 250));
        assert!(last.ring.capacity() * size_of::<Denial>() <= LastDenials::SIZE);
    }
}
