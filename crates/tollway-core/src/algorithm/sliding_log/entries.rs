//! The entries of a log. One entry is kept in the log itself: most logs have no more, and memory of its own would take
//! more than the entry.

use std::collections::VecDeque;

use crate::time::Timestamp;

/// The number of entries that a log reserves memory for when it gets its second one, if it will keep as many.
const ROOM_MIN: usize = 4;

/// Timestamps in ascending order, and the most of them that any reader wanted kept.
#[derive(Clone, Debug)]
pub(super) enum Entries {
    /// No entry, and no memory.
    Empty {
        keep: u32,
    },
    /// One entry, and no memory.
    One {
        keep: u32,
        at: Timestamp,
    },
    Many(Box<LogMemory>),
}

/// The entries of a log that has had more than one.
#[derive(Clone, Debug)]
pub(super) struct LogMemory {
    entries: VecDeque<Timestamp>,
    keep: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self::Empty { keep: 0 }
    }
}

/// Two logs are equal if they have the same entries, wherever they keep them.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        let all = |entries: &Self| (0..entries.len()).map(|index| entries.get(index)).collect::<Vec<_>>();
        self.keep() == other.keep() && all(self) == all(other)
    }
}

impl Eq for Entries {}

impl Entries {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty { .. } => 0,
            Self::One { .. } => 1,
            Self::Many(memory) => memory.entries.len(),
        }
    }

    /// Returns the entry at this index, the oldest being the first.
    pub(super) fn get(&self, index: usize) -> Option<Timestamp> {
        match self {
            Self::Empty { .. } => None,
            Self::One { at, .. } => (index == 0).then_some(*at),
            Self::Many(memory) => memory.entries.get(index).copied(),
        }
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns the number of oldest entries that `is_before` returns true for.
    pub(super) fn partition_point(&self, is_before: impl Fn(Timestamp) -> bool) -> usize {
        match self {
            Self::Empty { .. } => 0,
            Self::One { at, .. } => usize::from(is_before(*at)),
            Self::Many(memory) => memory.entries.partition_point(|entry| is_before(*entry)),
        }
    }

    /// Returns the most entries that any reader wanted kept.
    pub(super) fn keep(&self) -> usize {
        let (Self::Empty { keep } | Self::One { keep, .. }) = self else {
            let Self::Many(memory) = self else { return 0 };
            return memory.keep as usize;
        };
        *keep as usize
    }

    /// Keeps this number of entries from now on, or the former one if that was larger. Returns it.
    pub(super) fn keep_at_least(&mut self, wanted: usize) -> usize {
        let keep = match self {
            Self::Empty { keep } | Self::One { keep, .. } => keep,
            Self::Many(memory) => &mut memory.keep,
        };
        // No store gives one log more memory than this.
        *keep = (*keep).max(u32::try_from(wanted).unwrap_or(u32::MAX));
        *keep as usize
    }

    /// Returns the number of entries that there is memory for.
    pub(super) fn room(&self) -> usize {
        match self {
            Self::Empty { .. } | Self::One { .. } => 1,
            Self::Many(memory) => memory.entries.capacity(),
        }
    }

    /// Reserves memory for `more` entries by doubling, but never for more than `keep`: an entry takes eight bytes.
    pub(super) fn make_room(&mut self, more: u64, keep: u64) {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (len, more, keep) = (self.len(), number(more), number(keep));
        if len.saturating_add(more) > self.room() {
            let doubled = if len < ROOM_MIN { ROOM_MIN - len } else { len };
            self.memory().reserve_exact(doubled.min(keep.saturating_sub(len)).max(more));
        }
    }

    /// Adds an entry in the order of time.
    pub(super) fn insert(&mut self, at: Timestamp) {
        if let Self::Empty { keep } = *self {
            *self = Self::One { keep, at };
            return;
        }
        let entries = self.memory();
        let place = entries.partition_point(|entry| *entry <= at);
        entries.insert(place, at);
    }

    /// Adds `count` entries at a time that no entry is later than.
    pub(super) fn append(&mut self, at: Timestamp, count: u64) {
        match *self {
            Self::Empty { keep } if count == 1 => *self = Self::One { keep, at },
            _ => self.memory().extend((0..count).map(|_| at)),
        }
    }

    pub(super) fn drop_oldest(&mut self, count: usize) {
        match self {
            Self::One { keep, .. } if count > 0 => *self = Self::Empty { keep: *keep },
            Self::Empty { .. } | Self::One { .. } => {}
            Self::Many(memory) => drop(memory.entries.drain(..count)),
        }
    }

    /// Keeps the oldest `len` entries.
    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::Many(memory) => memory.entries.truncate(len),
            _ => self.drop_oldest(usize::from(len == 0)),
        }
    }

    /// Moves entries that are later than `now` to `now`.
    pub(super) fn pull_back_to(&mut self, now: Timestamp) {
        match self {
            Self::Empty { .. } => {}
            Self::One { at, .. } => *at = (*at).min(now),
            Self::Many(memory) => {
                memory
                    .entries
                    .iter_mut()
                    .rev()
                    .take_while(|entry| **entry > now)
                    .for_each(|entry| *entry = now);
            }
        }
    }

    /// Forgets everything, but keeps the memory.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Many(memory) => {
                memory.entries.clear();
                memory.keep = 0;
            }
            _ => *self = Self::default(),
        }
    }

    /// Returns the entries in memory of their own, which they get if they have none.
    fn memory(&mut self) -> &mut VecDeque<Timestamp> {
        if !matches!(self, Self::Many(_)) {
            let (entries, keep) = match *self {
                Self::One { keep, at } => (VecDeque::from([at]), keep),
                Self::Empty { keep } => (VecDeque::new(), keep),
                Self::Many(_) => (VecDeque::new(), 0),
            };
            *self = Self::Many(Box::new(LogMemory { entries, keep }));
        }
        match self {
            Self::Many(memory) => &mut memory.entries,
            _ => unreachable!("it was given memory above"),
        }
    }
}
