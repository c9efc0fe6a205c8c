//! Tracks which datagrams of a socket are still awaited. Replies may be lost, late, doubled or out of order.

/// The most recent requests of one socket, by number, each awaited or not.
#[derive(Debug)]
pub(crate) struct Awaited {
    slots: Vec<bool>,
}

impl Awaited {
    /// Remembers the last `most` requests, or more: a power of two is found without dividing.
    pub(crate) fn new(most: usize) -> Self {
        Self { slots: vec![false; most.next_power_of_two()] }
    }

    /// Awaits a reply to the request with this number. Returns whether the slot's former request was still awaited;
    /// its reply is never counted any more.
    #[inline]
    pub(crate) fn send(&mut self, number: u64) -> bool {
        let slot = self.slot(number);
        std::mem::replace(&mut self.slots[slot], true)
    }

    /// Returns the number of the request that a reply with this number modulo `numbers` answers, the first time it
    /// does. `sent` requests were sent.
    #[inline]
    pub(crate) fn answer(&mut self, reply: u64, numbers: u64, sent: u64) -> Option<u64> {
        // The latest request with this number: how many were sent since, itself included.
        let back = (sent % numbers + numbers - reply % numbers + numbers - 1) % numbers + 1;
        let number = sent.checked_sub(back)?;
        if back > self.slots.len() as u64 {
            return None;
        }
        let slot = self.slot(number);
        std::mem::take(&mut self.slots[slot]).then_some(number)
    }

    /// Awaits nothing any more.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(false);
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: u64 = 1_000;

    #[test]
    fn a_reply_counts_once_and_in_any_order() {
        let mut awaited = Awaited::new(4);
        assert_eq!([0, 1, 2].map(|number| awaited.send(number)), [false; 3]);
        let replies = [2, 0, 2, 3, 9].map(|reply| awaited.answer(reply, NUMBERS, 3));
        assert_eq!(replies, [Some(2), Some(0), None, None, None]);
        awaited.clear();
        assert_eq!(awaited.answer(1, NUMBERS, 3), None);
    }

    #[test]
    fn a_displaced_request_is_not_awaited() {
        let mut awaited = Awaited::new(2);
        assert_eq!([0, 1, 2].map(|number| awaited.send(number)), [false, false, true]);
        let replies = [0, 1, 2].map(|reply| awaited.answer(reply, NUMBERS, 3));
        assert_eq!(replies, [None, Some(1), Some(2)]);
    }

    #[test]
    fn numbers_start_again() {
        let mut awaited = Awaited::new(4);
        let last = 3 * NUMBERS - 1;
        awaited.send(last);
        awaited.send(last + 1);
        let replies = [0, NUMBERS - 1].map(|reply| awaited.answer(reply, NUMBERS, last + 2));
        assert_eq!(replies, [Some(last + 1), Some(last)]);
    }
}
