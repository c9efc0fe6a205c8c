//! The state of a bucket that has a name, and its bytes.

use tollway_core::algorithm::{Bucket, ClockDifference, MovedState, TokenBucketState};
use tollway_core::{Nanos, Timestamp};

use crate::journal::{AnyState, Input, JournalState, put_varint, with_kind, with_state};
use crate::store::written_token_bucket::WrittenTokenBucket;

/// The byte that stands for the instants of a domain, where others have the kind of a bucket.
const INSTANTS: u8 = 0x40;
/// The most instants of one identifier: more than a domain can have rules.
const INSTANTS_MAX: usize = 1_024;

/// The state of a bucket, with what a reader needs who knows the bucket by its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NamedState {
    TokenBucket(WrittenTokenBucket),
    /// One moment for each rule of a domain: when a token bucket is full.
    Instants(Vec<Timestamp>),
    /// Any state but that of a token bucket.
    Other(AnyState),
}

impl NamedState {
    pub(crate) fn encode(&self, base: Timestamp, out: &mut Vec<u8>) {
        match self {
            Self::TokenBucket(WrittenTokenBucket { full_at, interval, overdrawn }) => {
                out.push(TokenBucketState::KIND);
                TokenBucketState::full_at(*full_at).encode(base, out);
                put_varint(interval.map_or(0, Nanos::get), out);
                out.push(u8::from(*overdrawn));
            }
            Self::Instants(instants) => {
                out.push(INSTANTS);
                put_varint(instants.len() as u64, out);
                for instant in instants {
                    TokenBucketState::full_at(*instant).encode(base, out);
                }
            }
            Self::Other(state) => with_state!(state, |state| put_state(state, base, out)),
        }
    }

    pub(crate) fn decode(base: Timestamp, input: &mut Input<'_>) -> Option<Self> {
        let kind = input.byte()?;
        if kind == INSTANTS {
            let count = input.count().filter(|count| *count <= INSTANTS_MAX)?;
            let instants = (0..count).map(|_| Some(TokenBucketState::decode(base, input)?.expires_at()));
            return Some(Self::Instants(instants.collect::<Option<_>>()?));
        }
        let state: AnyState = with_kind!(kind, |B| B::decode(base, input)?.into())?;
        let AnyState::TokenBucket(bucket) = state else { return Some(Self::Other(state)) };
        let interval = Some(Nanos::new(input.varint()?)).filter(|interval| interval.get() > 0);
        let overdrawn = input.byte()? != 0;
        Some(Self::TokenBucket(WrittenTokenBucket { full_at: bucket.expires_at(), interval, overdrawn }))
    }

    /// Returns the state by another clock.
    pub(crate) fn by_clock(&self, difference: ClockDifference) -> Self {
        match self {
            Self::TokenBucket(bucket) => {
                Self::TokenBucket(WrittenTokenBucket { full_at: difference.apply(bucket.full_at), ..*bucket })
            }
            Self::Instants(instants) => {
                Self::Instants(instants.iter().map(|instant| difference.apply(*instant)).collect())
            }
            Self::Other(state) => Self::Other(with_state!(state, |state| state.by_clock(difference).into())),
        }
    }

    /// Returns the moment from which the bucket is like one that was never used.
    pub(crate) fn expires_at(&self) -> Timestamp {
        match self {
            Self::TokenBucket(bucket) => bucket.full_at,
            Self::Instants(instants) => instants.iter().copied().max().unwrap_or_default(),
            Self::Other(state) => with_state!(state, |state| state.expires_at()),
        }
    }

    /// Returns a state as strict as both, or `None` if the other is of another kind: a store takes no notice of such.
    #[cfg(feature = "redis")]
    pub(crate) fn stricter_than(&self, other: &Self, is_pair: bool, now: Timestamp) -> Option<Self> {
        Some(match (self, other) {
            (Self::TokenBucket(one), Self::TokenBucket(other)) => Self::TokenBucket(join(one, other, now)),
            (Self::Instants(one), Self::Instants(other)) => {
                let nth = |index: usize| one.get(index).max(other.get(index)).copied().unwrap_or_default();
                Self::Instants((0..one.len().max(other.len())).map(nth).collect())
            }
            (Self::Other(AnyState::Quota(one)), Self::Other(AnyState::Quota(other))) if is_pair => {
                Self::Other(one.stricter_pair(other, now).into())
            }
            (Self::Other(one), Self::Other(other)) => Self::Other(one.stricter_than(other, now)?),
            _ => return None,
        })
    }
}

fn put_state<B: JournalState>(state: &B, base: Timestamp, out: &mut Vec<u8>) {
    out.push(B::KIND);
    state.encode(base, out);
}

/// Joins two token buckets. If they were written under different intervals, the first is converted: as many units are
/// used as before, and a part of one counts whole.
#[cfg(feature = "redis")]
fn join(one: &WrittenTokenBucket, other: &WrittenTokenBucket, now: Timestamp) -> WrittenTokenBucket {
    let (Some(from), Some(to)) = (one.interval, other.interval) else {
        return WrittenTokenBucket { full_at: one.full_at.max(other.full_at), ..*other };
    };
    let full_at = if from == to {
        one.full_at
    } else {
        now + to.saturating_mul(one.full_at.since(now).get().div_ceil(from.get().max(1)))
    };
    let overdrawn = one.overdrawn || other.overdrawn;
    WrittenTokenBucket { full_at: full_at.max(other.full_at), interval: other.interval, overdrawn }
}
