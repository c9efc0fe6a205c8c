//! Encodes the state of a bucket, and decodes it.
//!
//! Token buckets and quotas, of which there are millions, have numbers of a fixed length: they are encoded by a few
//! copies. The others have numbers in as few bytes as they need.

use tollway_core::algorithm::{
    Bucket, FixedWindowState, MovedState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState, TtlUnit,
};
use tollway_core::{Nanos, Timestamp};

/// The most entries of one log that are written, the newest ones: so that any log fits into a block. Only a rule with a
/// larger count, in a store of more than a hundred million buckets, has more.
const LOG_ENTRIES_MAX: usize = 1 << 22;

/// A type of bucket that can be in a journal.
pub(crate) trait JournalState: MovedState + Into<AnyState> {
    /// The byte that marks buckets of this type in a file. It never changes.
    const KIND: u8;

    /// Appends the state. Times are written as differences to `base`.
    fn encode(&self, base: Timestamp, out: &mut Vec<u8>);

    /// Takes a state off the front of the input, or returns `None` if there is none.
    fn decode(base: Timestamp, input: &mut Input<'_>) -> Option<Self>;
}

/// The bytes that are left to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// Takes bytes whose length is in front of them.
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let len = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl Input<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn fixed64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a number of one to ten bytes, seven bits in each, the lowest first.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    fn fixed_time(&mut self) -> Option<Timestamp> {
        self.fixed64().map(Timestamp::from_nanos)
    }

    fn time(&mut self, base: Timestamp) -> Option<Timestamp> {
        let folded = self.varint()?;
        let difference = (folded >> 1) ^ (folded & 1).wrapping_neg();
        Some(Timestamp::from_nanos(base.as_nanos().wrapping_add(difference)))
    }
}

/// Appends a number as [`Input::varint`] takes it.
pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Appends a time as [`Input::fixed_time`] takes it.
#[inline]
fn put_fixed_time(time: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&time.as_nanos().to_le_bytes());
}

/// Appends the difference of a time to `base`, its sign in the lowest bit: times shortly before and after `base` are
/// both short.
fn put_time(time: Timestamp, base: Timestamp, out: &mut Vec<u8>) {
    let difference = time.as_nanos().wrapping_sub(base.as_nanos()).cast_signed();
    put_varint((difference << 1 ^ difference >> 63).cast_unsigned(), out);
}

impl JournalState for TokenBucketState {
    const KIND: u8 = 0;

    #[inline]
    fn encode(&self, _: Timestamp, out: &mut Vec<u8>) {
        put_fixed_time(self.expires_at(), out);
    }

    #[inline]
    fn decode(_: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        input.fixed_time().map(Self::full_at)
    }
}

impl JournalState for SlidingLogState {
    const KIND: u8 = 1;

    fn encode(&self, base: Timestamp, out: &mut Vec<u8>) {
        put_time(self.expires_at(), base, out);
        put_varint(self.keep() as u64, out);
        let written = self.len().min(LOG_ENTRIES_MAX);
        put_varint(written as u64, out);
        let mut earlier = None;
        for entry in self.iter().skip(self.len() - written) {
            match earlier.replace(entry) {
                None => put_time(entry, base, out),
                Some(earlier) => put_varint(entry.since(earlier).get(), out),
            }
        }
    }

    fn decode(base: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        let (expires_at, keep, len) = (input.time(base)?, input.count()?, input.count()?);
        // Every entry takes a byte at least: no memory is taken for entries that are not there.
        if len > input.len() {
            return None;
        }
        let mut entries = Vec::with_capacity(len);
        for _ in 0..len {
            let entry = match entries.last() {
                None => input.time(base)?,
                Some(earlier) => *earlier + Nanos::new(input.varint()?),
            };
            entries.push(entry);
        }
        Some(Self::restored(&entries, keep, expires_at))
    }
}

impl JournalState for SmoothedRateState {
    const KIND: u8 = 2;

    fn encode(&self, _: Timestamp, out: &mut Vec<u8>) {
        let (last, rate) = self.last();
        put_fixed_time(last, out);
        put_time(self.expires_at(), last, out);
        out.extend_from_slice(&rate.to_bits().to_le_bytes());
    }

    fn decode(_: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        let last = input.fixed_time()?;
        let (expires_at, rate) = (input.time(last)?, f64::from_bits(input.fixed64()?));
        (rate.is_finite() && rate >= 0.0).then(|| Self::measured(last, rate, expires_at))
    }
}

impl JournalState for QuotaState {
    const KIND: u8 = 3;

    #[inline]
    fn encode(&self, _: Timestamp, out: &mut Vec<u8>) {
        let mut bytes = [self.unit().0; 17];
        bytes[..8].copy_from_slice(&self.expires_at().as_nanos().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.counter().to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    fn decode(_: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        Some(Self::until(input.fixed_time()?, input.fixed64()?, TtlUnit(input.byte()?)))
    }
}

impl JournalState for FixedWindowState {
    const KIND: u8 = 4;

    fn encode(&self, _: Timestamp, out: &mut Vec<u8>) {
        put_fixed_time(self.ends_at(), out);
        put_varint(self.used(), out);
    }

    fn decode(_: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        Some(Self::until(input.fixed_time()?, input.varint()?))
    }
}

impl JournalState for SlidingWindowState {
    const KIND: u8 = 5;

    fn encode(&self, _: Timestamp, out: &mut Vec<u8>) {
        put_fixed_time(self.ends_at(), out);
        put_varint(self.current(), out);
        put_varint(self.previous(), out);
        put_varint(self.kept_after_end().get(), out);
    }

    fn decode(_: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        let (ends_at, current, previous) = (input.fixed_time()?, input.varint()?, input.varint()?);
        Some(Self::until(ends_at, current, previous, Nanos::new(input.varint()?)))
    }
}

/// A state of any type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnyState {
    TokenBucket(TokenBucketState),
    SlidingLog(SlidingLogState),
    SmoothedRate(SmoothedRateState),
    Quota(QuotaState),
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
}

macro_rules! any_state {
    ($($state:ident $variant:ident),*) => {
        $(impl From<$state> for AnyState {
            fn from(state: $state) -> Self {
                Self::$variant(state)
            }
        })*
    };
}
any_state!(TokenBucketState TokenBucket, SlidingLogState SlidingLog, SmoothedRateState SmoothedRate);
any_state!(QuotaState Quota, FixedWindowState FixedWindow, SlidingWindowState SlidingWindow);

/// Runs an expression with the state of any type.
macro_rules! with_state {
    ($any:expr, |$state:ident| $body:expr) => {
        match $any {
            $crate::journal::AnyState::TokenBucket($state) => $body,
            $crate::journal::AnyState::SlidingLog($state) => $body,
            $crate::journal::AnyState::SmoothedRate($state) => $body,
            $crate::journal::AnyState::Quota($state) => $body,
            $crate::journal::AnyState::FixedWindow($state) => $body,
            $crate::journal::AnyState::SlidingWindow($state) => $body,
        }
    };
}
pub(crate) use with_state;

impl AnyState {
    /// Returns the byte that marks buckets of its type in a file.
    pub(crate) fn kind(&self) -> u8 {
        fn of<B: JournalState>(_: &B) -> u8 {
            B::KIND
        }
        with_state!(self, |state| of(state))
    }

    /// Returns a state as strict as both, or `None` if the other is of another type.
    pub(crate) fn stricter_than(&self, other: &Self, now: Timestamp) -> Option<Self> {
        macro_rules! of_one_type {
            ($($variant:ident),*) => {
                match (self, other) {
                    $((Self::$variant(one), Self::$variant(other)) => one.stricter_than(other, now).into(),)*
                    _ => return None,
                }
            };
        }
        Some(of_one_type!(TokenBucket, SlidingLog, SmoothedRate, Quota, FixedWindow, SlidingWindow))
    }
}

/// Runs an expression with the type of bucket that a kind stands for, or returns `None` for any other byte.
macro_rules! with_kind {
    ($kind:expr, |$bucket:ident| $body:expr) => {
        with_kind! { @match $kind, $bucket, $body;
            TokenBucketState, SlidingLogState, SmoothedRateState, QuotaState, FixedWindowState, SlidingWindowState
        }
    };
    (@match $kind:expr, $bucket:ident, $body:expr; $($state:ident),*) => {
        match $kind {
            $(<tollway_core::algorithm::$state as $crate::journal::JournalState>::KIND => {
                type $bucket = tollway_core::algorithm::$state;
                Some($body)
            })*
            _ => None,
        }
    };
}
pub(crate) use with_kind;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    fn there_and_back<S: JournalState + PartialEq + Debug>(state: &S, base: Timestamp) {
        let mut bytes = Vec::new();
        state.encode(base, &mut bytes);
        let mut input = Input(&bytes);
        assert_eq!(S::decode(base, &mut input).as_ref(), Some(state));
        assert!(input.is_empty());
        for len in 0..bytes.len() {
            assert!(S::decode(base, &mut Input(&bytes[..len])).is_none(), "{len} of {bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_state_is_read_as_it_was_written(
            base: u64,
            times: [u64; 2],
            numbers: [u64; 3],
            rate in 0.0..1e300,
            unit: u8,
            log in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let (base, [first, second], [one, two, three]) = (at(base), times.map(at), numbers);
            there_and_back(&TokenBucketState::full_at(first), base);
            there_and_back(&SmoothedRateState::measured(first, rate, second), base);
            there_and_back(&QuotaState::until(first, one, TtlUnit(unit)), base);
            there_and_back(&FixedWindowState::until(first, one), base);
            there_and_back(&SlidingWindowState::until(first, one, two, Nanos::new(three)), base);
            let mut entries: Vec<_> = log.into_iter().map(at).collect();
            entries.sort();
            let keep = usize::try_from(one >> 32).unwrap();
            there_and_back(&SlidingLogState::restored(&entries, keep, second), base);
        }

        #[test]
        fn bytes_that_are_no_state_are_refused_without_a_panic(
            kind in 0_u8..8,
            base: u64,
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            with_kind!(kind, |B| B::decode(at(base), &mut Input(&bytes)).is_some());
        }
    }

    #[test]
    fn a_bucket_takes_at_most_32_bytes_with_its_tag() {
        fn len<S: JournalState>(state: &S) -> usize {
            let mut bytes = 0_u64.to_le_bytes().to_vec();
            state.encode(at(0), &mut bytes);
            bytes.len()
        }
        let (hour, day) = (at(3_600_000_000_000), Nanos::from_secs(86_400));
        assert_eq!(len(&TokenBucketState::full_at(hour)), 16);
        assert!(len(&FixedWindowState::until(hour, 1_000_000)) <= 20);
        assert!(len(&SlidingWindowState::until(hour, 1_000_000, 1_000_000, day)) <= 30);
        assert_eq!(len(&QuotaState::until(hour, 1_000_000, TtlUnit(3))), 25);
        assert!(len(&SmoothedRateState::measured(hour, 0.5, hour + day)) <= 32);
    }

    #[test]
    fn a_log_that_announces_more_entries_than_it_has_takes_no_memory() {
        let mut bytes = vec![0, 0];
        put_varint(u64::MAX >> 1, &mut bytes);
        assert!(SlidingLogState::decode(at(0), &mut Input(&bytes)).is_none());
    }
}
