//! Remembers the signed datagrams that were answered, so that none of them is answered twice.
//!
//! A datagram is answered if its time is within a window around the wall clock, and it has not come before. So it must
//! be remembered until its time has left the window, and no longer.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tollway_wire::text::Mac;

use super::authentication::Rejected;

/// The number of parts that are locked by themselves. Workers rarely meet in one of 64.
const SHARDS: usize = 64;
/// The number of generations: times within one window before and one window after now are in at most three windows.
const GENERATIONS: usize = 3;

/// The datagrams of one gate that were answered lately. All workers share it: the kernel chooses the worker by the
/// sender's address, and a copy may come from another address.
pub(super) struct ReplayMemory {
    /// The window, in milliseconds.
    window: u64,
    /// The time before which nothing is answered, in milliseconds since 1970: an earlier process may have answered it.
    started: u64,
    /// The number of datagrams that one shard remembers at most.
    shard_max: usize,
    shards: [Mutex<Shard>; SHARDS],
}

/// The datagrams whose MACs have the same remainder, by the windows of their times.
#[derive(Default)]
struct Shard {
    generations: [Generation; GENERATIONS],
}

/// The datagrams whose times are in one window.
#[derive(Default)]
struct Generation {
    /// The number of the window, counted from 1970.
    number: u64,
    seen: HashSet<u128>,
}

impl ReplayMemory {
    /// Creates a memory of at most `max` datagrams. `now` is the wall clock, in milliseconds.
    pub(super) fn new(window: u64, max: usize, now: u64) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { window: window.max(1), started: now, shard_max: max.div_ceil(SHARDS), shards }
    }

    /// Returns an error if a datagram with this time is too old, too new, or from before the start.
    pub(super) fn check_time(&self, signed_at: u64, now: u64) -> Result<(), Rejected> {
        let timely = signed_at.abs_diff(now) <= self.window && signed_at >= self.started;
        if timely { Ok(()) } else { Err(Rejected::Time) }
    }

    /// Remembers a datagram whose signature is good. Returns an error if it has come before, or if that cannot be
    /// known: when the memory is full, and when the wall clock was set back by so much that earlier datagrams are
    /// forgotten.
    pub(super) fn remember(&self, mac: &Mac, signed_at: u64) -> Result<(), Rejected> {
        let (number, id) = (signed_at / self.window, mac.number());
        let shard = &self.shards[usize::try_from(id % SHARDS as u128).unwrap_or(0)];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(number % GENERATIONS as u64).unwrap_or(0);
        let generation = &mut shard.generations[place];
        if generation.number > number {
            return Err(Rejected::Time);
        }
        if generation.number < number {
            // A new set, not an empty one: memory of a busy hour would otherwise be kept for good.
            *generation = Generation { number, seen: HashSet::new() };
        }
        if generation.seen.contains(&id) {
            return Err(Rejected::Replayed);
        }
        if shard.len() >= self.shard_max {
            return Err(Rejected::Full);
        }
        shard.generations[place].seen.insert(id);
        Ok(())
    }
}

impl Shard {
    fn len(&self) -> usize {
        self.generations.iter().map(|generation| generation.seen.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};

    use tollway_wire::text::SigningKey;

    use super::*;

    const WINDOW: u64 = 1_000;
    const START: u64 = 1_784_000_000_123;

    /// Returns the MAC of a request that no other number and time have.
    fn mac(number: u64, signed_at: u64) -> Mac {
        let key = SigningKey::new("web", &[7; 32]).expect("a key");
        key.sign_request(signed_at, &mut format!("{number} ping").into_bytes())
    }

    /// Checks the time of a datagram whose signature is good, and remembers it, as the gate does.
    fn receive(memory: &ReplayMemory, number: u64, signed_at: u64, now: u64) -> Result<(), Rejected> {
        memory.check_time(signed_at, now)?;
        memory.remember(&mac(number, signed_at), signed_at)
    }

    #[test]
    fn a_datagram_is_answered_once_within_the_window() {
        let memory = ReplayMemory::new(WINDOW, 1_000, START);
        let now = START + 5 * WINDOW;
        for (signed_at, expected) in [
            (now, Ok(())),
            (now, Err(Rejected::Replayed)),
            (now - WINDOW, Ok(())),
            (now - WINDOW, Err(Rejected::Replayed)),
            (now - WINDOW - 1, Err(Rejected::Time)),
            (now + WINDOW, Ok(())),
            (now + WINDOW, Err(Rejected::Replayed)),
            (now + WINDOW + 1, Err(Rejected::Time)),
            (0, Err(Rejected::Time)),
            (u64::MAX, Err(Rejected::Time)),
        ] {
            assert_eq!(receive(&memory, 7, signed_at, now), expected, "{signed_at}");
        }
        // As long as its time is good, it is known: two windows for one from the future.
        let from_the_future = now + WINDOW;
        let last = from_the_future + WINDOW;
        assert_eq!(receive(&memory, 7, from_the_future, last), Err(Rejected::Replayed));
        assert_eq!(receive(&memory, 7, from_the_future, last + 1), Err(Rejected::Time));
    }

    #[test]
    fn what_an_earlier_process_may_have_answered_is_not_answered() {
        let memory = ReplayMemory::new(WINDOW, 1_000, START);
        assert_eq!(receive(&memory, 7, START - 1, START), Err(Rejected::Time));
        assert_eq!(receive(&memory, 7, START, START), Ok(()));
    }

    #[test]
    fn a_full_memory_answers_nothing_new_and_is_free_again_when_times_have_passed() {
        let memory = ReplayMemory::new(WINDOW, SHARDS, START);
        let answered = (0..2_000).filter(|number| receive(&memory, *number, START, START).is_ok()).count();
        assert_eq!(answered, SHARDS, "one for each shard");
        assert_eq!(receive(&memory, 9_999, START + 1, START), Err(Rejected::Full));
        let later = START + 3 * WINDOW;
        let answered = (0..2_000).filter(|number| receive(&memory, *number, later, later).is_ok()).count();
        assert_eq!(answered, SHARDS);
    }

    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let memory = ReplayMemory::new(WINDOW, 100_000, START);
        let now = START + 10 * WINDOW;
        assert_eq!(receive(&memory, 7, now, now), Ok(()));
        let later = now + 3 * WINDOW;
        // So many that every shard has some of them.
        (8..2_000).for_each(|number| assert_eq!(receive(&memory, number, later, later), Ok(())));
        assert_eq!(receive(&memory, 7, now, now), Err(Rejected::Time), "its generation is forgotten");
    }

    /// Compares with a memory that forgets nothing, while the clock runs forward and sometimes back.
    #[test]
    fn random_histories_agree_with_a_memory_that_forgets_nothing() {
        let random = RandomState::new();
        let memory = ReplayMemory::new(WINDOW, usize::MAX, START);
        let (mut now, mut newest) = (START + 2 * WINDOW, START + 2 * WINDOW);
        let mut answered: HashMap<(u64, u64), u64> = HashMap::new();
        for step in 0..20_000_u64 {
            let draw = random.hash_one(step);
            now = if draw % 500 == 0 { now - draw / 500 % WINDOW } else { now + draw / 500 % 50 };
            newest = newest.max(now);
            let signed_at = now + draw / 7 % (2 * WINDOW + 100) - WINDOW - 50;
            let id = (draw / 11 % 3, signed_at / 20 * 20);
            let received = receive(&memory, id.0, id.1, now);
            if received.is_ok() {
                assert!(answered.insert(id, now).is_none(), "{id:?} was answered twice");
                assert!(id.1.abs_diff(now) <= WINDOW);
            } else if now == newest && id.1.abs_diff(now) <= WINDOW && id.1 >= START {
                assert_eq!(received, Err(Rejected::Replayed), "a new one in time is answered");
                assert!(answered.contains_key(&id), "{id:?} never came before");
            }
        }
        assert!(answered.len() > 1_000);
    }
}
