//! The delays that were published, for subscribers that come later.
//!
//! The stores cannot list them: memory keeps hashes, and a shared store is scanned at start only. A delay is kept until
//! its time has passed, if there is room. One that is not kept is published again with the client's next request.
//!
//! With a journal, a part also has the names of the delays that changed since the journal looked last. The journal's
//! thread takes them. Publishing adds the name to a list, under the lock it already holds.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
#[cfg(feature = "journal")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of parts: so many that going through one takes some tens of microseconds.
const SHARDS: usize = 256;
/// The number of bytes that an entry takes without its name.
const ENTRY: usize = 72;
/// The capacity up to which an emptied list of changes keeps its memory.
#[cfg(feature = "journal")]
const CHANGES_KEPT: usize = 4_096;

/// A delay that gatekeepers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct PublishedDelay<'a> {
    /// The name of the domain.
    pub domain: &'a [u8],
    /// The client whose next request is not allowed yet.
    pub identifier: &'a [u8],
    /// The time of the store from which it is allowed, in milliseconds since 1970.
    pub until_millis: u64,
}

/// The delays that a master has published and that are not over.
#[derive(Debug)]
pub struct KnownDelays {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// The number of bytes that all entries take.
    taken: AtomicUsize,
    max: AtomicUsize,
    /// True if a journal asks for what has changed.
    is_journaled: AtomicBool,
    /// True if something has changed since the journal looked last.
    has_changes: AtomicBool,
    /// The time for which everything was swept last, to make room for delays of a journal.
    #[cfg(feature = "journal")]
    swept_at: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// The delays by name, which is the domain, a NUL and the identifier.
    delays: HashMap<Box<[u8]>, KnownDelay>,
    changes: ChangedNames,
}

/// The names of delays that have changed, one behind the other.
#[derive(Debug, Default)]
struct ChangedNames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct KnownDelay {
    /// The time of the store at which it ends, in milliseconds since 1970.
    until: u64,
    /// The number of the publication that had it last.
    published: u64,
    /// True if it is in the list of changes.
    is_listed: bool,
}

impl KnownDelays {
    /// The bytes that the delays may take, unless another number is set: some hundred thousand delays fit.
    pub const BYTES_MAX: usize = 64 << 20;

    /// Creates a table for delays that take so many bytes.
    pub fn new(max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            hasher: RandomState::new(),
            shards,
            taken: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            is_journaled: AtomicBool::new(false),
            has_changes: AtomicBool::new(false),
            #[cfg(feature = "journal")]
            swept_at: AtomicU64::new(0),
        }
    }

    /// Sets the bytes that the delays may take. Delays that are there stay.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns the number of delays.
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).delays.len()).sum()
    }

    /// Returns whether there is no delay.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a delay of the publication with this number. Returns false if there is no room for another. `name` is
    /// memory for the name, which callers use again.
    pub fn keep(&self, delay: &PublishedDelay<'_>, published: u64, name: &mut Vec<u8>) -> bool {
        let mut shard = self.find(delay, name);
        let Shard { delays, changes } = &mut *shard;
        let until = delay.until_millis;
        let known = match delays.get_mut(&**name) {
            Some(known) => {
                // Two workers may publish in the other order. Gatekeepers keep the latest time, and so do we.
                let is_later = until > known.until;
                *known = KnownDelay { until: known.until.max(until), published, ..*known };
                if !is_later {
                    return true;
                }
                known
            }
            None => {
                let size = name.len() + ENTRY;
                if self.taken.fetch_add(size, Ordering::Relaxed) + size > self.max.load(Ordering::Relaxed) {
                    self.taken.fetch_sub(size, Ordering::Relaxed);
                    return false;
                }
                let new = KnownDelay { until, published, is_listed: false };
                delays.entry(name.as_slice().into()).or_insert(new)
            }
        };
        if self.is_journaled.load(Ordering::Relaxed) && !known.is_listed {
            known.is_listed = true;
            changes.push(name);
            // Under the lock: a journal that has taken this flag looks at this part afterwards.
            self.has_changes.store(true, Ordering::Release);
        }
        true
    }

    /// Returns whether a delay of this identifier is kept.
    pub fn has(&self, delay: &PublishedDelay<'_>) -> bool {
        let mut name = Vec::new();
        self.find(delay, &mut name).delays.contains_key(&*name)
    }

    /// Locks the part of this identifier, and writes the name that it has there.
    fn find(&self, delay: &PublishedDelay<'_>, name: &mut Vec<u8>) -> MutexGuard<'_, Shard> {
        name.clear();
        name.extend_from_slice(delay.domain);
        name.push(0);
        name.extend_from_slice(delay.identifier);
        self.lock(shard_of(self.hasher.hash_one(&*name)))
    }

    /// Passes on the delays of one part that are in force at `now` and were last published by then. Returns false if
    /// there is no such part.
    pub fn for_each_in(
        &self,
        part: usize,
        published: u64,
        now: u64,
        mut on_delay: impl FnMut(PublishedDelay<'_>),
    ) -> bool {
        if part >= SHARDS {
            return false;
        }
        let shard = self.lock(part);
        for (name, known) in
            shard.delays.iter().filter(|(_, known)| known.until > now && known.published <= published)
        {
            on_delay(named(name, known.until));
        }
        true
    }

    /// Drops the delays of one part that are over.
    pub fn sweep(&self, part: usize, now: u64) {
        self.retain_in(part % SHARDS, |_, until| until > now);
    }

    fn retain_in(&self, part: usize, mut is_kept: impl FnMut(&[u8], u64) -> bool) {
        let Shard { delays, .. } = &mut *self.lock(part);
        let mut freed = 0;
        delays.retain(|name, known| {
            let is_kept = is_kept(name, known.until);
            freed += if is_kept { 0 } else { name.len() + ENTRY };
            is_kept
        });
        if delays.capacity() > 4 * delays.len().max(16) {
            delays.shrink_to_fit();
        }
        self.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for KnownDelays {
    fn default() -> Self {
        Self::new(Self::BYTES_MAX)
    }
}

#[cfg(feature = "journal")]
impl KnownDelays {
    /// Begins to list changes, or ends it.
    pub(crate) fn set_journaled(&self, journaled: bool) {
        self.is_journaled.store(journaled, Ordering::Relaxed);
        if !journaled {
            self.take_changes(|_| ());
        }
    }

    /// Passes on the delays that have changed since the last call.
    pub(crate) fn take_changes(&self, mut on_delay: impl FnMut(PublishedDelay<'_>)) {
        // Before the parts are locked: a change that comes meanwhile is found now, or sets it again.
        if !self.has_changes.swap(false, Ordering::AcqRel) {
            return;
        }
        for part in 0..SHARDS {
            let Shard { delays, changes } = &mut *self.lock(part);
            let mut start = 0;
            for end in &changes.ends {
                // One that was swept is over.
                let name = &changes.bytes[start..*end];
                if let Some(known) = delays.get_mut(name) {
                    known.is_listed = false;
                    on_delay(named(name, known.until));
                }
                start = *end;
            }
            changes.clear();
        }
    }

    /// Keeps a delay that a journal has, which was written at `now`. Those that were over by then make room if there is
    /// none. Returns false if there is still none.
    pub(crate) fn restore(&self, delay: &PublishedDelay<'_>, now: u64, name: &mut Vec<u8>) -> bool {
        if delay.until_millis <= now || self.keep(delay, 0, name) {
            return true;
        }
        // A second sweep for the same time finds nothing: each delay that comes to a full table would cost one.
        if self.swept_at.swap(now, Ordering::Relaxed) == now {
            return false;
        }
        (0..SHARDS).for_each(|part| self.sweep(part, now));
        self.keep(delay, 0, name)
    }

    /// Drops the delays that are over at `now`, and those whose domain is not wanted.
    pub(crate) fn retain(&self, now: u64, mut is_wanted: impl FnMut(&[u8]) -> bool) {
        for part in 0..SHARDS {
            self.retain_in(part, |name, until| until > now && is_wanted(named(name, until).domain));
        }
    }
}

impl ChangedNames {
    fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
    }

    #[cfg(feature = "journal")]
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(CHANGES_KEPT);
        self.ends.clear();
        self.ends.shrink_to(CHANGES_KEPT / 16);
    }
}

/// Returns the delay that has this name in a table.
fn named(name: &[u8], until_millis: u64) -> PublishedDelay<'_> {
    let nul = name.iter().position(|byte| *byte == 0).expect("a NUL was written after the domain");
    PublishedDelay { domain: &name[..nul], identifier: &name[nul + 1..], until_millis }
}

fn shard_of(hash: u64) -> usize {
    usize::from(hash.to_le_bytes()[0]) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(identifier: &str, until_millis: u64) -> PublishedDelay<'_> {
        PublishedDelay { domain: b"d", identifier: identifier.as_bytes(), until_millis }
    }

    fn held(delays: &KnownDelays, now: u64) -> Vec<(String, u64)> {
        let mut held = Vec::new();
        let mut part = 0;
        while delays.for_each_in(part, 1, now, |delay| {
            assert_eq!(delay.domain, b"d");
            held.push((String::from_utf8(delay.identifier.into()).unwrap(), delay.until_millis));
        }) {
            part += 1;
        }
        held.sort();
        held
    }

    #[test]
    fn the_latest_of_each_is_kept_until_it_is_over() {
        let (delays, name) = (KnownDelays::new(1_000), &mut Vec::new());
        for delay in [delay("a", 5), delay("a", 9), delay("a", 8), delay("b", 7), delay("", 8)] {
            assert!(delays.keep(&delay, 1, name));
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

    #[cfg(feature = "journal")]
    fn changed(delays: &KnownDelays) -> Vec<(String, u64)> {
        let mut changed = Vec::new();
        delays.take_changes(|delay| {
            changed.push((String::from_utf8(delay.identifier.into()).unwrap(), delay.until_millis));
        });
        changed.sort();
        changed
    }

    #[cfg(feature = "journal")]
    #[test]
    fn a_journal_gets_each_change_once_and_nothing_that_is_over() {
        let (delays, name) = (KnownDelays::new(1_000), &mut Vec::new());
        assert!(delays.keep(&delay("before", 5), 1, name));
        delays.set_journaled(true);
        assert_eq!(changed(&delays), []);
        for delay in [delay("a", 5), delay("a", 9), delay("a", 8), delay("b", 7)] {
            assert!(delays.keep(&delay, 1, name));
        }
        (0..SHARDS).for_each(|part| delays.sweep(part, 7));
        assert_eq!(changed(&delays), [("a".to_owned(), 9)]);
        // The same time again is no change.
        assert!(delays.keep(&delay("a", 9), 2, name));
        assert_eq!(changed(&delays), []);
        assert!(delays.keep(&delay("a", 10), 2, name));
        delays.set_journaled(false);
        assert_eq!(changed(&delays), []);
    }

    #[cfg(feature = "journal")]
    #[test]
    fn a_full_table_is_swept_once_for_each_time() {
        let (delays, name) = (KnownDelays::new(2 * (ENTRY + 3)), &mut Vec::new());
        for identifier in ["a", "b"] {
            assert!(delays.restore(&delay(identifier, 9), 1, name));
        }
        assert!(!delays.restore(&delay("c", 9), 5, name), "nothing is over");
        // What is published is not compared with the time of a journal.
        delays.retain(5, |_| false);
        assert!(delays.keep(&delay("d", 4), 1, name) && delays.keep(&delay("e", 4), 1, name));
        assert!(!delays.restore(&delay("f", 9), 5, name), "it is not looked for again");
        assert!(delays.restore(&delay("f", 9), 6, name));
    }

    #[cfg(feature = "journal")]
    #[test]
    fn delays_that_were_over_when_others_were_written_make_room_for_them() {
        let (delays, name) = (KnownDelays::new(3 * (ENTRY + 3)), &mut Vec::new());
        for (identifier, until, now) in [("a", 5, 1), ("b", 8, 2), ("c", 5, 3), ("over", 3, 3), ("d", 9, 6)] {
            assert!(delays.restore(&delay(identifier, until), now, name));
        }
        assert_eq!(held(&delays, 0), [("b".to_owned(), 8), ("d".to_owned(), 9)]);
        assert!(delays.restore(&delay("e", 9), 6, name) && !delays.restore(&delay("f", 9), 6, name));
        delays.retain(8, |domain| domain == b"d");
        assert_eq!(held(&delays, 0).len(), 2);
        delays.retain(8, |domain| domain == b"other");
        assert!(delays.is_empty());
    }
}
