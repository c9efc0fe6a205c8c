//! Whom gatekeepers were told to delay, for those that were not there to hear it.
//!
//! The stores have no names to tell: memory keeps hashes, and looking through a shared store is for the start. What was
//! published is kept until its time has passed, as far as there is room; whoever finds none is told again at his next request.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollway_wire::smockron::ControlMessage;

/// As many parts, so that looking through one takes some tens of microseconds.
const SHARDS: usize = 256;
/// What an entry takes beside its name.
const ENTRY: usize = 64;

#[derive(Debug)]
pub(super) struct Delays {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Taken by all entries, in bytes.
    taken: AtomicUsize,
    max: usize,
}

/// By the domain, a NUL, and the identifier.
type Shard = HashMap<Box<[u8]>, Held>;

#[derive(Clone, Copy, Debug)]
struct Held {
    /// In milliseconds since 1970.
    until: u64,
    /// When it was last told, by the hub's count.
    told: u64,
}

impl Delays {
    pub(super) fn new(max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards, taken: AtomicUsize::new(0), max }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).len()).sum()
    }

    /// Remembers what is told. `false` if there is no room for another.
    pub(super) fn remember(&self, control: &ControlMessage<'_>, told: u64, name: &mut Vec<u8>) -> bool {
        let mut shard = self.find(control, name);
        if let Some(known) = shard.get_mut(&**name) {
            // Two workers may tell in the other order. Gatekeepers keep the latest time, and so do we.
            *known = Held { until: known.until.max(control.delay_until), told };
            return true;
        }
        let size = name.len() + ENTRY;
        let room = self.taken.fetch_add(size, Ordering::Relaxed) + size <= self.max;
        if room {
            shard.insert(name.as_slice().into(), Held { until: control.delay_until, told });
        } else {
            self.taken.fetch_sub(size, Ordering::Relaxed);
        }
        room
    }

    /// Is there one for whom this is?
    pub(super) fn has(&self, control: &ControlMessage<'_>) -> bool {
        let mut name = Vec::new();
        self.find(control, &mut name).contains_key(&*name)
    }

    /// The part in which it is, if it is remembered, by this name.
    fn find(&self, control: &ControlMessage<'_>, name: &mut Vec<u8>) -> MutexGuard<'_, Shard> {
        name.clear();
        name.extend_from_slice(control.domain);
        name.push(0);
        name.extend_from_slice(control.identifier);
        self.lock(shard_of(self.hasher.hash_one(&*name)))
    }

    /// Those of one part that hold at `now` and were last told by `told`; `false` if there is no such part.
    pub(super) fn look_through(
        &self,
        part: usize,
        told: u64,
        now: u64,
        mut tell: impl FnMut(ControlMessage<'_>),
    ) -> bool {
        if part >= SHARDS {
            return false;
        }
        let shard = self.lock(part);
        for (name, held) in shard.iter().filter(|(_, held)| held.until > now && held.told <= told) {
            let delay_until = held.until;
            let nul = name.iter().position(|byte| *byte == 0).expect("a NUL was written after the domain");
            tell(ControlMessage { domain: &name[..nul], identifier: &name[nul + 1..], delay_until });
        }
        true
    }

    /// Forgets those of one part that are over.
    pub(super) fn sweep(&self, part: usize, now: u64) {
        let mut shard = self.lock(part % SHARDS);
        let mut freed = 0;
        shard.retain(|name, held| {
            let holds = held.until > now;
            freed += if holds { 0 } else { name.len() + ENTRY };
            holds
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

    fn held(delays: &Delays, now: u64) -> Vec<(String, u64)> {
        let mut held = Vec::new();
        let mut part = 0;
        while delays.look_through(part, 1, now, |control| {
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
        let (delays, name) = (Delays::new(1_000), &mut Vec::new());
        for control in [delay("a", 5), delay("a", 9), delay("a", 8), delay("b", 7), delay("", 8)] {
            assert!(delays.remember(&control, 1, name));
        }
        assert!(delays.remember(&delay("told later", 9), 2, name));
        assert_eq!(held(&delays, 7), [(String::new(), 8), ("a".to_owned(), 9)]);
        (0..SHARDS).for_each(|part| delays.sweep(part, 8));
        assert_eq!((held(&delays, 0), delays.len()), (vec![("a".to_owned(), 9)], 2));
    }

    #[test]
    fn there_are_never_more_than_fit_and_those_that_are_over_make_room() {
        let (delays, name) = (Delays::new(3 * (ENTRY + 3)), &mut Vec::new());
        let remembered =
            ["a", "b", "c", "d", "a"].map(|identifier| delays.remember(&delay(identifier, 5), 1, name));
        assert_eq!(remembered, [true, true, true, false, true]);
        (0..SHARDS).for_each(|part| delays.sweep(part, 5));
        assert!(delays.remember(&delay("d", 6), 1, name));
        assert!(!delays.remember(&delay(&"long".repeat(100), 6), 1, name));
    }
}
