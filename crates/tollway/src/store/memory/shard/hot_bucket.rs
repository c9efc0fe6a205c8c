//! The bucket of a shard that is used again and again, kept beside the lock of the shard.
//!
//! Requests for one id then touch one cache line, and take no lock:
//!
//! ```text
//! read      version, tag and value; nothing is written, so threads that are denied share the line
//! replace   if the version is still the same: one compare-and-swap
//! put, take only by the thread that holds the lock of the shard
//! ```
//!
//! While a bucket is here, its slot in the table is out of date. So whoever locks the shard takes the bucket out first,
//! and writes it to the table. The version is odd while somebody writes, and never the same again.
//!
//! `tests/interleaving.rs` includes this file with loom's atomics, and runs every order of its steps.

use super::atomic::{AtomicU64, AtomicUsize, Ordering, fence, relax};

/// The tag of no bucket.
const NONE: u64 = 0;

#[derive(Debug)]
pub(crate) struct HotBucket {
    version: AtomicU64,
    tag: AtomicU64,
    value: AtomicU64,
    /// The index of its slot in the table.
    slot: AtomicUsize,
}

/// A value that was read, and the version that it is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotValue {
    version: u64,
    pub(crate) value: u64,
}

impl HotBucket {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { version: zero(), tag: AtomicU64::new(NONE), value: zero(), slot: AtomicUsize::new(0) }
    }

    /// Returns whether this bucket was here a moment ago.
    #[inline]
    pub(crate) fn is(&self, tag: u64) -> bool {
        self.tag.load(Ordering::Relaxed) == tag
    }

    /// Returns the value of a bucket, if it is here.
    #[inline]
    pub(crate) fn read(&self, tag: u64) -> Option<HotValue> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let (there, value) = (self.tag.load(Ordering::Relaxed), self.value.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return (there == tag).then_some(HotValue { version, value });
            }
            relax();
        }
    }

    /// Stores another value in the place of one that was read. Returns false if anything has changed since then.
    #[inline]
    pub(crate) fn replace(&self, read: HotValue, value: u64) -> bool {
        let begun = self.begin(read.version);
        if begun {
            self.value.store(value, Ordering::Relaxed);
            self.end(read.version);
        }
        begun
    }

    /// Puts a bucket here. The caller holds the lock of the shard, and has taken out what was here before.
    pub(crate) fn put(&self, tag: u64, value: u64, slot: usize) {
        self.change(|| {
            self.tag.store(tag, Ordering::Relaxed);
            self.value.store(value, Ordering::Relaxed);
            self.slot.store(slot, Ordering::Relaxed);
        });
    }

    /// Takes out the bucket that is here, and returns its value and the index of its slot. The caller holds the lock of
    /// the shard.
    #[inline]
    pub(crate) fn take(&self) -> Option<(u64, usize)> {
        // Only holders of the lock write the tag.
        if self.is(NONE) { None } else { Some(self.take_out()) }
    }

    #[cold]
    fn take_out(&self) -> (u64, usize) {
        self.change(|| {
            self.tag.store(NONE, Ordering::Relaxed);
            (self.value.load(Ordering::Relaxed), self.slot.load(Ordering::Relaxed))
        })
    }

    /// Runs `change` while nobody replaces the value.
    fn change<T>(&self, change: impl Fn() -> T) -> T {
        loop {
            let version = self.version.load(Ordering::Relaxed);
            if version.is_multiple_of(2) && self.begin(version) {
                let outcome = change();
                self.end(version);
                return outcome;
            }
            relax();
        }
    }

    #[inline]
    fn begin(&self, version: u64) -> bool {
        let begun =
            self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A reader that sees what is written next also sees the odd version.
        fence(Ordering::Release);
        begun
    }

    #[inline]
    fn end(&self, version: u64) {
        self.version.store(version + 2, Ordering::Release);
    }
}
