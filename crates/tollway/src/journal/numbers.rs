//! The numbers of token buckets in a journal: those that each limit has, and had until it was changed.
//!
//! A token bucket is found by its interval. A process that is started with other numbers needs the old ones to find the
//! buckets that were written under them.
//!
//! ```text
//! numbers    limit, limit, …
//! limit      length of the name, name, count of versions, version, …     the oldest first, the last is that of the end
//! version    until u64, number of the start plus one or 0, fill time, has a default u8, bucket?,
//!            count of overrides, override, …
//! override   length of the id, id, bucket
//! bucket     burst, count, period
//! ```
//!
//! Numbers are varints, but for `until`. `until` of the last version is the time from which these numbers are in force:
//! a snapshot and the log beside it may both have some, and the newer ones count.

use std::collections::HashMap;

use tollway_core::algorithm::TokenBucket;
use tollway_core::{FormerNumbers, Nanos, Policy, Timestamp};

use super::state::{Input, put_varint};

/// The longest numbers that are kept, of some hundred thousand overrides: so that they fit into a block. With more,
/// the limits of a process that is started again have no former numbers.
const NUMBERS_MAX: usize = 16 << 20;

/// The versions of limits, by name.
pub(crate) type NumbersByLimit = HashMap<String, Vec<FormerNumbers>>;

/// Encodes the numbers of all limits, which are in force from this time on.
pub(crate) fn encode_numbers(policy: &Policy, since: Timestamp) -> Vec<u8> {
    let mut out = Vec::new();
    for limit in policy.limits() {
        put_bytes(limit.name().as_bytes(), &mut out);
        let versions = limit.numbers(since);
        put_varint(versions.len() as u64, &mut out);
        versions.iter().for_each(|version| put_version(version, &mut out));
    }
    if out.len() > NUMBERS_MAX { Vec::new() } else { out }
}

fn put_version(version: &FormerNumbers, out: &mut Vec<u8>) {
    let FormerNumbers { until, epoch, fill_time, default, overrides } = version;
    out.extend_from_slice(&until.as_nanos().to_le_bytes());
    put_varint(epoch.map_or(0, |epoch| epoch + 1), out);
    put_varint(fill_time.get(), out);
    out.push(u8::from(default.is_some()));
    default.iter().for_each(|numbers| put_bucket(numbers, out));
    put_varint(overrides.len() as u64, out);
    for (id, numbers) in overrides {
        put_bytes(id, out);
        put_bucket(numbers, out);
    }
}

fn put_bucket(numbers: &TokenBucket, out: &mut Vec<u8>) {
    for number in [numbers.burst(), numbers.count(), numbers.period().get()] {
        put_varint(number, out);
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes numbers, or returns `None` if these bytes are none.
pub(crate) fn decode_numbers(bytes: &[u8]) -> Option<NumbersByLimit> {
    let mut input = Input(bytes);
    let mut limits = NumbersByLimit::new();
    while !input.is_empty() {
        let name = String::from_utf8(input.prefixed()?.to_vec()).ok()?;
        let versions = (0..input.count()?).map(|_| take_version(&mut input)).collect::<Option<_>>()?;
        limits.insert(name, versions);
    }
    Some(limits)
}

/// Returns the time from which these numbers are in force; the epoch if there are none.
pub(crate) fn in_force_since(numbers: &NumbersByLimit) -> Timestamp {
    numbers.values().filter_map(|versions| versions.last()).map(|last| last.until).max().unwrap_or_default()
}

fn take_version(input: &mut Input<'_>) -> Option<FormerNumbers> {
    let until = Timestamp::from_nanos(input.fixed64()?);
    let (epoch, fill_time) = (input.varint()?.checked_sub(1), Nanos::new(input.varint()?));
    let default = match input.byte()? {
        0 => None,
        _ => Some(take_bucket(input)?),
    };
    let overrides = (0..input.count()?).map(|_| Some((input.prefixed()?.into(), take_bucket(input)?)));
    let overrides = overrides.collect::<Option<_>>()?;
    Some(FormerNumbers { until, epoch, fill_time, default, overrides })
}

fn take_bucket(input: &mut Input<'_>) -> Option<TokenBucket> {
    let [burst, count, period] = [input.varint()?, input.varint()?, input.varint()?];
    TokenBucket::new(burst, count, std::time::Duration::from_nanos(period)).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tollway_core::{Algorithm, Limit};

    use super::*;

    fn policy(burst: u64) -> Policy {
        let numbers = |count| TokenBucket::new(burst, count, Duration::from_secs(7)).unwrap();
        let mut limit = Limit::new("A").unwrap().with_default(Algorithm::TokenBucket(numbers(1)));
        limit.add_override(b"alice", Algorithm::TokenBucket(numbers(3))).unwrap();
        Policy::new(vec![limit, Limit::new("B").unwrap()]).unwrap()
    }

    #[test]
    fn numbers_are_read_as_they_were_written_and_never_partly() {
        let (then, now) = (Timestamp::EPOCH + Nanos::from_secs(5), Timestamp::EPOCH + Nanos::from_secs(9));
        let policy = policy(4).replacing(&policy(2), then);
        let bytes = encode_numbers(&policy, now);
        let decoded = decode_numbers(&bytes).unwrap();
        assert_eq!((decoded.len(), decoded["A"].len()), (2, 2));
        for limit in policy.limits() {
            assert_eq!(decoded[limit.name()], limit.numbers(now));
        }
        let whole =
            (0..bytes.len()).filter(|len| decode_numbers(&bytes[..*len]).is_some_and(|read| read.len() == 2));
        assert_eq!(whole.count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_numbers(&bytes);
        }
    }
}
