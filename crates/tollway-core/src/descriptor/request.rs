//! A request to Envoy's rate limit service, as all gates that take one decode it.

use std::borrow::Cow;

use thiserror::Error;

use super::RateUnit;
use crate::bill::CHARGES_MAX;

/// The most entries that a descriptor of a request may have: each is a step into the tree.
pub const ENTRIES_MAX: usize = 64;

/// A request that all its descriptors must allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitRequest<'a> {
    /// The domain in which the descriptors are looked for.
    pub domain: Cow<'a, str>,
    /// The descriptors, at least one.
    pub descriptors: Vec<RequestDescriptor<'a>>,
    /// The number of hits of each descriptor that has none of its own; 0 means 1.
    pub hits_addend: u32,
}

/// One descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestDescriptor<'a> {
    /// The keys and values that lead to the limit.
    pub entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The numbers that decide in place of those that are configured.
    pub limit: Option<LimitOverride>,
    /// The number of hits; 0 takes nothing, and the answer shows what is left.
    pub hits_addend: Option<u64>,
    /// True if the hits are given back.
    pub is_negative_hits: bool,
}

/// The numbers that a request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// The number of requests in a unit.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: RateUnit,
}

/// An error for a request that cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateLimitRequestError {
    /// The request has no domain.
    #[error("the domain must not be empty")]
    NoDomain,
    /// The request has no descriptor.
    #[error("the list of descriptors must not be empty")]
    NoDescriptors,
    /// The request has more descriptors than a bill can have charges.
    #[error("a request can have at most {CHARGES_MAX} descriptors")]
    TooManyDescriptors,
    /// A descriptor has too many entries.
    #[error("a descriptor can have at most {ENTRIES_MAX} entries")]
    TooManyEntries,
    /// A descriptor has numbers of its own, but no unit.
    #[error("the limit of a descriptor needs a unit")]
    NoUnit,
}

impl RateLimitRequest<'_> {
    /// Checks what the service requires of a request.
    pub(super) fn check(&self) -> Result<(), RateLimitRequestError> {
        if self.domain.is_empty() {
            return Err(RateLimitRequestError::NoDomain);
        }
        match self.descriptors.len() {
            0 => return Err(RateLimitRequestError::NoDescriptors),
            1..=CHARGES_MAX => {}
            _ => return Err(RateLimitRequestError::TooManyDescriptors),
        }
        if self.descriptors.iter().any(|descriptor| descriptor.entries.len() > ENTRIES_MAX) {
            return Err(RateLimitRequestError::TooManyEntries);
        }
        Ok(())
    }

    /// Returns the hits of one of its descriptors.
    pub(super) fn hits(&self, descriptor: &RequestDescriptor<'_>) -> u64 {
        descriptor.hits_addend.unwrap_or_else(|| u64::from(self.hits_addend.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_domain_and_not_too_many_descriptors_and_entries() {
        let request = |domain: &'static str, descriptors: usize, entries: usize| RateLimitRequest {
            domain: domain.into(),
            descriptors: vec![
                RequestDescriptor {
                    entries: vec![("key".into(), "value".into()); entries],
                    ..RequestDescriptor::default()
                };
                descriptors
            ],
            hits_addend: 0,
        };
        for (domain, descriptors, entries, expected) in [
            ("shop", 1, 1, Ok(())),
            ("shop", CHARGES_MAX, ENTRIES_MAX, Ok(())),
            ("", 1, 1, Err(RateLimitRequestError::NoDomain)),
            ("shop", 0, 0, Err(RateLimitRequestError::NoDescriptors)),
            ("shop", CHARGES_MAX + 1, 1, Err(RateLimitRequestError::TooManyDescriptors)),
            ("shop", 1, ENTRIES_MAX + 1, Err(RateLimitRequestError::TooManyEntries)),
        ] {
            assert_eq!(
                request(domain, descriptors, entries).check(),
                expected,
                "{domain} {descriptors} {entries}"
            );
        }
    }

    #[test]
    fn a_descriptor_has_its_own_hits_or_those_of_the_request_or_one() {
        for (own, of_all, expected) in [(None, 0, 1), (None, 5, 5), (Some(0), 5, 0), (Some(7), 5, 7)] {
            let request = RateLimitRequest { hits_addend: of_all, ..RateLimitRequest::default() };
            let descriptor = RequestDescriptor { hits_addend: own, ..RequestDescriptor::default() };
            assert_eq!(request.hits(&descriptor), expected, "{own:?} {of_all}");
        }
    }
}
