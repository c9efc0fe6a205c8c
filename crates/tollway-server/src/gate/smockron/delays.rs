//! The delays that were published, for subscribers that come later.
//!
//! The stores cannot list them: memory keeps hashes, and a shared store is scanned at start only. A delay is kept until
//! its time has passed, if there is room. One that is not kept is published again with the client's next request.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollway_wire::smockron::ControlMessage;

/// The number of parts: so many that going through one takes some tens of microseconds.
const SHARDS: usize = 256;
/// The number of bytes that an entry takes without its name.
const ENTRY: usize = 64;

#[derive(Debug)]
pub(super) struct KnownDelays {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// The number of bytes that all entries take.
    taken: AtomicUsize,
    max: usize,
}

/// Maps a name, which is the domain, a NUL and the identifier, to its delay.
type Shard = HashMap<Box<[u8]>, KnownDelay>;

#[derive(Clone, Copy, Debug)]
struct KnownDelay {
    /// The time of the store at which it ends, in milliseconds since 1970.
    until: u64,
    /// The number of the publication that had it last.
    published: u64,
}

impl KnownDelays {
    pub(super) fn new(max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards, taken: AtomicUsize::new(0), max }
    }

    /// Returns the number of delays.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).len()).sum()
    }

    /// Keeps a delay. Returns false if there is no room for another.
    pub(super) fn keep(&self, control: &ControlMessage<'_>, published: u64, name: &mut Vec<u8>) -> bool {
        let mut shard = self.find(control, name);
        if let Some(known) = shard.get_mut(&**name) {
            // Two workers may publish in the other order. Gatekeepers keep the latest time, and so do we.
            *known = KnownDelay { until: known.until.max(control.delay_until), published };
            return true;
        }
        let size = name.len() + ENTRY;
        let room = self.taken.fetch_add(size, Ordering::Relaxed) + size <= self.max;
        if room {
            shard.insert(name.as_slice().into(), KnownDelay { until: control.delay_until, published });
        } else {
            self.taken.fetch_sub(size, Ordering::Relaxed);
        }
        room
    }

    /// Returns whether a delay of this identifier is kept.
    pub(super) fn has(&self, control: &ControlMessage<'_>) -> bool {
        let mut name = Vec::new();
        self.find(control, &mut name).contains_key(&*name)
    }

    /// Locks the part of this identifier, and writes the name that it has there.
    fn find(&self, control: &ControlMessage<'_>, name: &mut Vec<u8>) -> MutexGuard<'_, Shard> {
        name.clear();
        name.extend_from_slice(control.domain);
        name.push(0);
        name.extend_from_slice(control.identifier);
        self.lock(shard_of(self.hasher.hash_one(&*name)))
    }

    /// Passes on the delays of one part that are in force at `now` and were last published by then. Returns false if
    /// there is no such part.
    pub(super) fn for_each_in(
        &self,
        part: usize,
        published: u64,
        now: u64,
        mut on_delay: impl FnMut(ControlMessage<'_>),
    ) -> bool {
        if part >= SHARDS {
            return false;
        }
        let shard = self.lock(part);
        for (name, known) in
            shard.iter().filter(|(_, known)| known.until > now && known.published <= published)
        {
            let delay_until = known.until;
            let nul = name.iter().position(|byte| *byte == 0).expect("a NUL was written after the domain");
            on_delay(ControlMessage { domain: &name[..nul], identifier: &name[nul + 1..], delay_until });
        }
        true
    }

    /// Drops the delays of one part that are over.
    pub(super) fn sweep(&self, part: usize, now: u64) {
        let mut shard = self.lock(part % SHARDS);
        let mut freed = 0;
        shard.retain(|name, known| {
            let is_in_force = known.until > now;
            freed += if is_in_force { 0 } else { name.len() + ENTRY };
            is_in_force
        });
        if shard.capacity() > 4 * shard.len().max(16) {
            shard.shrink_to_fit();
        }
        self.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shard_of(hash: u64) -> usize {
    usize::from(hash.to_le_bytes()[0]) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(identifier: &str, delay_until: u64) -> ControlMessage<'_> {
        ControlMessage { domain: b"d", identifier: identifier.as_bytes(), delay_until }
    }

    fn held(delays: &KnownDelays, now: u64) -> Vec<(String, u64)> {
        let mut held = Vec::new();
        let mut part = 0;
        while delays.for_each_in(part, 1, now, |control| {
            assert_eq!(control.domain, b"d");
            held.push((String::from_utf8(control.identifier.into()).unwrap(), control.delay_until));
        }) {
            part += 1;
        }
        held.sort();
        held
    }

    #[test]
    fn the_latest_of_each_is_kept_until_it_is_over() {
        let (delays, name) = (KnownDelays::new(1_000), &mut Vec::new());
        for control in [delay("a", 5), delay("a", 9), delay("a", 8), delay("b", 7), delay("", 8)] {
            assert!(delays.keep(&control, 1, name));
        }
        assert!(delays.keep(&delay("published later", 9), 2, name));
        assert_eq!(held(&delays, 7), [(String::new(), 8), ("a".to_owned(), 9)]);
        (0..SHARDS).for_each(|part| delays.sweep(part, 8));
        assert_eq!((held(&delays, 0), delays.len()), (vec![("a".to_owned(), 9)], 2));
    }

    #[test]
    fn there_are_never_more_than_fit_and_those_that_are_over_make_room() {
        let (delays, name) = (KnownDelays::new(3 * (ENTRY + 3)), &mut Vec::new());
        let kept = ["a", "b", "c", "d", "a"].map(|identifier| delays.keep(&delay(identifier, 5), 1, name));
        assert_eq!(kept, [true, true, true, false, true]);
        (0..SHARDS).for_each(|part| delays.sweep(part, 5));
        assert!(delays.keep(&delay("d", 6), 1, name));
        assert!(!delays.keep(&delay(&"long".repeat(100), 6), 1, name));
    }
}
