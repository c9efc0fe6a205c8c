//! Everything configured, in hand and valid.
//!
//! ```
//! use tollgate_core::algorithm::{Algorithm, TokenBucketLimit};
//! use tollgate_core::{Limit, Policy};
//!
//! let numbers = TokenBucketLimit::new(300, 300, "180m".parse()?)?;
//! let orders = Limit::new("NewOrdersPerAccount")?.with_default(Algorithm::TokenBucket(numbers));
//! let policy = Policy::new(vec![orders])?;
//! assert_eq!(policy.charge("NewOrdersPerAccount", b"12345678", 1)?.id(), b"12345678");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A policy never changes. A reload makes another and swaps the whole.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use thiserror::Error;

use crate::charge::{Charge, ChargeError};
use crate::limit::Limit;

/// The limits by name.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    limits: Vec<Limit>,
    by_name: HashMap<Box<str>, usize, NameHash>,
}

/// Why limits make no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Two limits with one name.
    #[error("there are two limits named `{name}`")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two limits with one number, or, once in 2^64, names too alike to tell their buckets apart.
    #[error("limits `{one}` and `{other}` would share their buckets: give one another number or name")]
    SameBuckets {
        /// The one.
        one: String,
        /// The other.
        other: String,
    },
}

impl Policy {
    /// A policy of these limits, in this order.
    pub fn new(limits: Vec<Limit>) -> Result<Self, PolicyError> {
        let mut by_name = HashMap::with_capacity_and_hasher(limits.len(), NameHash::default());
        let mut by_fingerprint: HashMap<u64, usize> = HashMap::with_capacity(limits.len());
        for (index, limit) in limits.iter().enumerate() {
            if by_name.insert(limit.name().into(), index).is_some() {
                return Err(PolicyError::SameName { name: limit.name().to_owned() });
            }
            if let Some(earlier) = by_fingerprint.insert(limit.fingerprint(), index) {
                let (one, other) = (limits[earlier].name().to_owned(), limit.name().to_owned());
                return Err(PolicyError::SameBuckets { one, other });
            }
        }
        Ok(Self { limits, by_name })
    }

    /// The limits in the order they were configured.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The limit of this name.
    pub fn limit(&self, name: &str) -> Option<&Limit> {
        self.by_name.get(name).map(|index| &self.limits[*index])
    }

    /// What a request of `cost` would take from the bucket of `id` under the limit `name`.
    pub fn charge<'a>(&'a self, name: &str, id: &'a [u8], cost: u64) -> Result<Charge<'a>, ChargeError> {
        match self.limit(name) {
            Some(limit) => Charge::new(limit, id, cost),
            None => Err(ChargeError::UnknownLimit { name: name.to_owned() }),
        }
    }
}

/// Hashes what the configuration names. Quick rather than keyed: only its author chooses what these tables hold.
pub(crate) type NameHash = BuildHasherDefault<NameHasher>;

/// The same bytes give the same number in every process.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = NameHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[derive(Default)]
pub(crate) struct NameHasher {
    state: u64,
}

impl NameHasher {
    fn mix(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn finish(&self) -> u64 {
        let mixed = (self.state ^ (self.state >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}
