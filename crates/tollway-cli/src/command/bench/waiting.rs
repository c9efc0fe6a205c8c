//! Which datagrams of a socket are still awaited. Answers may be lost, late, doubled or out of order.

/// Ids have this many digits, and then come around: far more than are ever awaited at once.
pub(super) const ID_DIGITS: usize = 7;
const IDS: u64 = 10_000_000;

/// The most recent requests of one socket, by number.
#[derive(Debug)]
pub(super) struct Waiting {
    awaited: Vec<bool>,
    sent: u64,
    open: u64,
}

impl Waiting {
    /// Remembers the last `most` requests or some more: a power of two is found without dividing.
    pub(super) fn new(most: usize) -> Self {
        Self { awaited: vec![false; most.next_power_of_two()], sent: 0, open: 0 }
    }

    /// How many are awaited.
    pub(super) const fn open(&self) -> u64 {
        self.open
    }

    /// One more leaves. Returns its id, and whether the one that it displaces will never be answered.
    #[inline]
    pub(super) fn send(&mut self) -> (u64, bool) {
        let (id, slot) = (self.sent % IDS, self.slot(self.sent));
        let displaced = std::mem::replace(&mut self.awaited[slot], true);
        self.sent += 1;
        self.open += u64::from(!displaced);
        (id, displaced)
    }

    /// The number of the request that `id` answers, the first time it does.
    #[inline]
    pub(super) fn answer(&mut self, id: u64) -> Option<u64> {
        // The latest with this id: how far back, from 1 on.
        let back = (self.sent % IDS + IDS - id % IDS + IDS - 1) % IDS + 1;
        let number = self.sent.checked_sub(back)?;
        if back > self.awaited.len() as u64 {
            return None;
        }
        let slot = self.slot(number);
        let awaited = std::mem::take(&mut self.awaited[slot]);
        self.open -= u64::from(awaited);
        awaited.then_some(number)
    }

    /// Awaits nothing any more. Returns how many were.
    pub(super) fn give_up(&mut self) -> u64 {
        self.awaited.fill(false);
        std::mem::take(&mut self.open)
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.awaited.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_in_any_order() {
        let mut waiting = Waiting::new(4);
        assert_eq!([(); 3].map(|()| waiting.send()), [(0, false), (1, false), (2, false)]);
        assert_eq!([2, 0, 2, 3, 9].map(|id| waiting.answer(id)), [Some(2), Some(0), None, None, None]);
        assert_eq!((waiting.open(), waiting.give_up(), waiting.open()), (1, 1, 0));
        assert_eq!(waiting.answer(1), None);
    }

    #[test]
    fn what_is_displaced_is_lost() {
        let mut waiting = Waiting::new(2);
        assert_eq!([(); 3].map(|()| waiting.send().1), [false, false, true]);
        assert_eq!(
            (waiting.open(), waiting.answer(0), waiting.answer(1), waiting.answer(2)),
            (2, None, Some(1), Some(2))
        );
    }

    #[test]
    fn ids_come_around() {
        let mut waiting = Waiting::new(4);
        waiting.sent = 3 * IDS - 1;
        assert_eq!([waiting.send().0, waiting.send().0], [IDS - 1, 0]);
        assert_eq!([waiting.answer(0), waiting.answer(IDS - 1)], [Some(3 * IDS), Some(3 * IDS - 1)]);
    }
}
