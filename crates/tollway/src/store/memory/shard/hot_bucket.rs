//! The bucket of a shard that is used again and again, kept beside the lock of the shard.
//!
//! Requests for one id then touch one cache line, and take no lock:
//!
//! ```text
//! read      version, tag, place and words; nothing is written, so threads that are denied share the line
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

/// The number of words that a hot bucket can have. Rates and quotas have three: requests for them come in batches,
/// which lock each shard anyway.
const WORDS: usize = 2;

/// The state of a bucket as words; those that it does not have are zero.
pub(crate) type HotWords = [u64; WORDS];

/// The place of a bucket: the number of its table, and the index of its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotPlace {
    pub(crate) table: usize,
    pub(crate) slot: usize,
}

impl HotPlace {
    /// The bits that tell the table.
    const TABLE_BITS: u32 = 3;
    /// The most tables that can be told apart.
    pub(crate) const TABLES_MAX: usize = 1 << Self::TABLE_BITS;

    fn to_number(self) -> usize {
        self.slot << Self::TABLE_BITS | self.table
    }

    fn from_number(number: usize) -> Self {
        Self { table: number % Self::TABLES_MAX, slot: number >> Self::TABLE_BITS }
    }
}

#[derive(Debug)]
pub(crate) struct HotBucket {
    version: AtomicU64,
    tag: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Its [`HotPlace`] as a number.
    place: AtomicUsize,
}

/// Words that were read, and the version that they are part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotState {
    version: u64,
    pub(crate) words: HotWords,
}

impl HotBucket {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (words, place) = ([zero(), zero()], AtomicUsize::new(0));
        Self { version: zero(), tag: AtomicU64::new(NONE), words, place }
    }

    /// Returns whether this bucket was here a moment ago.
    #[inline]
    pub(crate) fn is(&self, tag: u64) -> bool {
        self.tag.load(Ordering::Relaxed) == tag
    }

    /// Returns the words of a bucket of this table that has this many, if it is here. A limit that has got another
    /// algorithm has a bucket with the same tag in another table, and its words mean something else.
    #[inline]
    pub(crate) fn read(&self, tag: u64, table: usize, len: usize) -> Option<HotState> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let (there, words) = (self.tag.load(Ordering::Relaxed), self.words(len));
            let place = HotPlace::from_number(self.place.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return (there == tag && place.table == table).then_some(HotState { version, words });
            }
            relax();
        }
    }

    /// Stores this many other words in the place of those that were read. Returns false if anything has changed since
    /// then.
    #[inline]
    pub(crate) fn replace(&self, read: HotState, words: HotWords, len: usize) -> bool {
        let begun = self.begin(read.version);
        if begun {
            self.set_words(words, len);
            self.end(read.version);
        }
        begun
    }

    /// Puts a bucket here. The caller holds the lock of the shard, and has taken out what was here before.
    pub(crate) fn put(&self, tag: u64, words: HotWords, place: HotPlace) {
        self.change(|| {
            self.tag.store(tag, Ordering::Relaxed);
            self.set_words(words, WORDS);
            self.place.store(place.to_number(), Ordering::Relaxed);
        });
    }

    /// Takes out the bucket that is here, and returns its words and the place that it was put with. The caller holds
    /// the lock of the shard.
    #[inline]
    pub(crate) fn take(&self) -> Option<(HotWords, HotPlace)> {
        // Only holders of the lock write the tag.
        if self.is(NONE) { None } else { Some(self.take_out()) }
    }

    #[cold]
    fn take_out(&self) -> (HotWords, HotPlace) {
        self.change(|| {
            self.tag.store(NONE, Ordering::Relaxed);
            (self.words(WORDS), HotPlace::from_number(self.place.load(Ordering::Relaxed)))
        })
    }

    #[inline]
    fn words(&self, len: usize) -> HotWords {
        std::array::from_fn(|at| if at < len { self.words[at].load(Ordering::Relaxed) } else { 0 })
    }

    #[inline]
    fn set_words(&self, words: HotWords, len: usize) {
        for (stored, word) in self.words.iter().zip(words).take(len) {
            stored.store(word, Ordering::Relaxed);
        }
    }

    /// Runs `change` while nobody replaces the words.
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
