//! A policy: everything that is configured, parsed and validated.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::algorithm::{Algorithm, TokenBucket};
//! use tollway_core::{Limit, Policy};
//!
//! let numbers = TokenBucket::new(300, 300, Duration::from_secs(180 * 60))?;
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
use crate::descriptor::DescriptorTree;
use crate::domain::Domain;
use crate::former_buckets::FormerBuckets;
use crate::inline_limit::InlineLimit;
use crate::keys::{KeyLimit, Keys};
use crate::limit::{FormerNumbers, Limit, LostBuckets};
use crate::nearest::nearest;
use crate::rule::{KeyedRule, NamedRule};
use crate::time::Timestamp;

/// The most limits, or rules, that the error about an unknown one lists.
pub(crate) const LISTED_MAX: usize = 8;

/// The limits, the rules and the domains by name, and what holds for keys.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    limits: Vec<Limit>,
    index: Index,
    inline_limit: InlineLimit,
    keys: Keys,
    rules: Vec<NamedRule>,
    rules_by_name: HashMap<Box<str>, usize, NameHash>,
    domains: Vec<Domain>,
    domains_by_name: HashMap<Box<[u8]>, usize, NameHash>,
    descriptors: DescriptorTree,
    /// The time from which it applies.
    since: Timestamp,
}

/// An error for limits that make no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Two limits with one name.
    #[error("two limits are named \"{name}\"; rename one")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two limits with one number, or, once in 2^64, names too alike to tell their buckets apart.
    #[error(
        "limits \"{one}\" and \"{other}\" would share their buckets; give one of them another number or name"
    )]
    SameBuckets {
        /// The name that came first.
        one: String,
        /// The name that came second.
        other: String,
    },
    /// A rule for keys that uses a limit there is not.
    #[error("key rule {rule} uses a limit that does not exist")]
    UnknownUse {
        /// The rule's place, counted from 0.
        rule: usize,
    },
    /// Two domains with one name.
    #[error("two domains are named \"{name}\"; rename one")]
    SameDomain {
        /// The name.
        name: String,
    },
    /// Two rules with one name.
    #[error("two rules are named \"{name}\"; rename one")]
    SameRuleName {
        /// The name.
        name: String,
    },
}

impl Policy {
    /// Makes a policy that has these limits, in this order.
    pub fn new(mut limits: Vec<Limit>) -> Result<Self, PolicyError> {
        limits.iter_mut().enumerate().for_each(|(index, limit)| limit.index = index);
        let index = Index::of(&limits).map_err(|name| PolicyError::SameName { name: name.to_owned() })?;
        let mut by_fingerprint: HashMap<u64, usize> = HashMap::with_capacity(limits.len());
        for (index, limit) in limits.iter().enumerate() {
            if let Some(earlier) = by_fingerprint.insert(limit.fingerprint(), index) {
                let (one, other) = (limits[earlier].name().to_owned(), limit.name().to_owned());
                return Err(PolicyError::SameBuckets { one, other });
            }
        }
        Ok(Self { limits, index, ..Self::default() })
    }

    /// Returns this policy as the one that replaces `old` at `now`: tokens that were used stay used under limits whose
    /// numbers are changed.
    pub fn replacing(mut self, old: &Self, now: Timestamp) -> Self {
        let before: HashMap<u64, &Limit> =
            old.limits.iter().map(|limit| (limit.fingerprint(), limit)).collect();
        for limit in &mut self.limits {
            if let Some(old) = before.get(&limit.fingerprint()) {
                limit.succeed(old, now);
            }
        }
        self.since = now.max(old.since);
        self.forget_former(now);
        self
    }

    /// Forgets the former versions of limits that no bucket is left of. That depends on all limits: a store does not
    /// know which bucket is of which limit, and keeps an expired one for the sake of another. If the numbers of its own
    /// limit came back, it would be found, in the place of the one that its id had since then.
    fn forget_former(&mut self, now: Timestamp) {
        let buckets = self.former_buckets();
        self.limits.iter_mut().for_each(|limit| limit.forget_former(&buckets, now));
    }

    /// Returns this policy as the one of a process that was started again at `now`: tokens that were used stay used
    /// under limits whose numbers were changed meanwhile. `numbers` returns those that a limit had in the process
    /// before.
    pub fn following(
        mut self,
        mut numbers: impl FnMut(&str) -> Option<Vec<FormerNumbers>>,
        now: Timestamp,
    ) -> Self {
        self.since = now;
        for limit in &mut self.limits {
            if let Some(numbers) = numbers(limit.name()) {
                // Not before those that it follows: a clock that was set back must not make it the older one.
                self.since = self.since.max(numbers.last().map_or(now, |last| last.until));
                limit.follow(numbers, now);
            }
        }
        self.forget_former(now);
        self
    }

    /// Returns which token buckets may still be needed by limits whose numbers were changed.
    pub fn former_buckets(&self) -> FormerBuckets {
        self.limits.iter().flat_map(Limit::former_buckets).collect()
    }

    /// Returns this policy after a start at which buckets may have been lost.
    pub fn after_loss(mut self, lost: LostBuckets) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.set_lost(lost));
        self
    }

    /// Returns the time at which it [replaced](Self::replacing) another, or [followed](Self::following) that of a
    /// process before; the epoch if it did neither.
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// Sets the rules for keys. A rule that uses a limit that does not exist is an error.
    pub fn with_keys(mut self, keys: Keys) -> Result<Self, PolicyError> {
        let missing = |limit: usize| limit >= self.limits.len();
        let unknown = keys
            .rules()
            .iter()
            .position(|rule| matches!(rule.limit, KeyLimit::Use { limit } if missing(limit)));
        if let Some(rule) = unknown {
            return Err(PolicyError::UnknownUse { rule });
        }
        self.keys = keys;
        Ok(self)
    }

    /// Sets the rules, in this order.
    pub fn with_rules(mut self, rules: Vec<NamedRule>) -> Result<Self, PolicyError> {
        self.rules_by_name = HashMap::with_capacity_and_hasher(rules.len(), NameHash::default());
        for (index, rule) in rules.iter().enumerate() {
            if self.rules_by_name.insert(rule.name().into(), index).is_some() {
                return Err(PolicyError::SameRuleName { name: rule.name().to_owned() });
            }
        }
        self.rules = rules;
        Ok(self)
    }

    /// Returns the rules for keys.
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the limits in the order in which they were configured.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns the inline limit, whose numbers come with each request.
    pub const fn inline_limit(&self) -> &InlineLimit {
        &self.inline_limit
    }

    /// Returns the limit that has this name.
    #[inline]
    pub fn limit(&self, name: &str) -> Option<&Limit> {
        self.index.place(&self.limits, name).ok()
    }

    /// Sets the domains, in this order.
    pub fn with_domains(mut self, domains: Vec<Domain>) -> Result<Self, PolicyError> {
        self.domains_by_name = HashMap::with_capacity_and_hasher(domains.len(), NameHash::default());
        for (index, domain) in domains.iter().enumerate() {
            if self.domains_by_name.insert(domain.name().as_bytes().into(), index).is_some() {
                return Err(PolicyError::SameDomain { name: domain.name().to_owned() });
            }
        }
        self.domains = domains;
        Ok(self)
    }

    /// Sets the descriptors of Envoy's rate limit service. Their limits become limits of the policy, after the others.
    pub fn with_descriptors(mut self, mut descriptors: DescriptorTree) -> Result<Self, PolicyError> {
        let mut limits = std::mem::take(&mut self.limits);
        descriptors.move_limits_to(&mut limits);
        let Self { limits, index, .. } = Self::new(limits)?;
        Ok(Self { limits, index, descriptors, ..self })
    }

    /// Returns the descriptors of Envoy's rate limit service.
    pub const fn descriptors(&self) -> &DescriptorTree {
        &self.descriptors
    }

    /// Returns the domains in the order in which they were configured.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// Returns the domain that has this name, as a gatekeeper spells it.
    pub fn domain(&self, name: &[u8]) -> Option<&Domain> {
        self.domain_index(name).map(|index| &self.domains[index])
    }

    /// Returns the place in [`domains`](Self::domains) of the domain that has this name, as a gatekeeper spells it.
    #[inline]
    pub fn domain_index(&self, name: &[u8]) -> Option<usize> {
        self.domains_by_name.get(name).copied()
    }

    /// Returns the rules in the order in which they were configured.
    pub fn rules(&self) -> &[NamedRule] {
        &self.rules
    }

    /// Returns the rule that has this name.
    #[inline]
    pub fn rule(&self, name: &str) -> Option<&KeyedRule> {
        self.rule_index(name).map(|index| self.rules[index].keyed())
    }

    /// Returns the place in [`rules`](Self::rules) of the rule that has this name.
    #[inline]
    pub fn rule_index(&self, name: &str) -> Option<usize> {
        self.rules_by_name.get(name).copied()
    }

    /// Returns the charge of `cost` to the bucket of `id` under the limit `name`, or why it cannot be made.
    #[inline]
    pub fn charge<'a>(&'a self, name: &str, id: &'a [u8], cost: u64) -> Result<Charge<'a>, ChargeError> {
        match self.limit(name) {
            Some(limit) => Charge::new(limit, id, cost),
            None => Err(self.unknown_limit(name)),
        }
    }

    /// Returns the limit whose buckets have this name: one of the policy, or the inline limit.
    pub fn bucket_limit(&self, name: &str) -> Result<&Limit, ChargeError> {
        match name {
            InlineLimit::NAME => Ok(self.inline_limit.limit()),
            name => self.limit(name).ok_or_else(|| self.unknown_limit(name)),
        }
    }

    /// Returns a charge of nothing that finds the bucket of `id` under the limit `name`, to look at it or to forget it.
    pub fn bucket<'a>(&'a self, name: &str, id: &'a [u8]) -> Result<Charge<'a>, ChargeError> {
        match self.bucket_limit(name)? {
            limit if limit.is_inline() => Ok(self.inline_limit.bucket(id)),
            limit => Charge::new(limit, id, 0),
        }
    }

    /// Returns the error for a limit that does not exist, with the name that was probably meant or the names there are,
    /// or for the inline limit if its numbers are missing.
    #[cold]
    pub fn unknown_limit(&self, name: &str) -> ChargeError {
        if name == InlineLimit::NAME {
            return ChargeError::NoNumbers { limit: name.to_owned() };
        }
        let nearest = nearest(name, self.limits.iter().map(Limit::name)).map(str::to_owned);
        let is_listed = nearest.is_none() && self.limits.len() <= LISTED_MAX;
        let existing = self.limits.iter().filter(|_| is_listed).map(|limit| limit.name().to_owned());
        ChargeError::UnknownLimit { name: shown_name(name), nearest, existing: existing.collect() }
    }
}

/// The most characters of an unknown name that an error repeats: a client may send a megabyte.
const NAME_SHOWN_MAX: usize = 128;

/// Returns the part of an unknown name that an error repeats.
pub(crate) fn shown_name(name: &str) -> String {
    name.chars().take(NAME_SHOWN_MAX).collect()
}

/// Hashes what the configuration names. Quick rather than keyed: only its author chooses what these tables hold.
pub(crate) type NameHash = BuildHasherDefault<NameHasher>;

/// The same bytes give the same number in every process.
#[inline]
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
    #[inline]
    fn mix(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.state ^= bytes.len() as u64;
        // The last word of each kind overlaps the one before it: cheaper than a loop over odd bytes.
        if let Some(last) = bytes.last_chunk::<8>() {
            for word in bytes.as_chunks::<8>().0 {
                self.mix(u64::from_le_bytes(*word));
            }
            self.mix(u64::from_le_bytes(*last));
        } else if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            self.mix((u64::from(u32::from_le_bytes(*first)) << 32) | u64::from(u32::from_le_bytes(*last)));
        } else {
            self.mix(bytes.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mixed = (self.state ^ (self.state >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

/// Finds a limit by its name: a sparse table of their numbers, by fingerprint.
#[derive(Clone, Debug)]
struct Index {
    /// At least four times as many as there are names, and a power of two; 0 is nobody, else the number plus one.
    slots: Vec<u32>,
}

impl Default for Index {
    fn default() -> Self {
        Self { slots: vec![0] }
    }
}

impl Index {
    /// Fails with a name that two of them have.
    fn of(limits: &[Limit]) -> Result<Self, &str> {
        let slots = vec![0; (limits.len() * 4).next_power_of_two()];
        let mut index = Self { slots };
        for (number, limit) in (1..).zip(limits) {
            match index.place(limits, limit.name()) {
                Ok(_) => return Err(limit.name()),
                Err(vacant) => index.slots[vacant] = number,
            }
        }
        Ok(index)
    }

    /// The limit of this name, or the slot where it would be.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of slots")]
    fn place<'a>(&self, limits: &'a [Limit], name: &str) -> Result<&'a Limit, usize> {
        let mask = self.slots.len() - 1;
        let mut at = fingerprint(name.as_bytes()) as usize & mask;
        loop {
            match self.slots[at] {
                0 => return Err(at),
                number => {
                    let limit = &limits[number as usize - 1];
                    if same(limit.name().as_bytes(), name.as_bytes()) {
                        return Ok(limit);
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }
}

/// Equality of short texts, in words: a call to compare them would cost more than comparing them.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_last), Some(b_last)) => {
            a_last == b_last && a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).all(|(a, b)| a == b)
        }
        _ => match (a.first_chunk::<4>(), a.last_chunk::<4>()) {
            (Some(first), Some(last)) => b.first_chunk() == Some(first) && b.last_chunk() == Some(last),
            _ => a == b,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::domain::Logic;
    use crate::id::IdFormat;
    use crate::keys::{KeyMatcher, KeyRule};
    use crate::limit::AfterCrash;
    use crate::rule::RuleLimit;

    #[test]
    fn a_rule_is_found_by_its_name() {
        let rule = |name: &str| NamedRule::new(name, RuleLimit::new("1/s".parse().unwrap())).unwrap();
        let policy = Policy::default().with_rules(vec![rule("upload"), rule("login")]).unwrap();
        assert_eq!(policy.rules().iter().map(NamedRule::name).collect::<Vec<_>>(), ["upload", "login"]);
        assert_eq!(policy.rule("login"), Some(policy.rules()[1].keyed()));
        assert_eq!(policy.rule("Login"), None);
        let twice = Policy::default().with_rules(vec![rule("a"), rule("b"), rule("a")]);
        assert_eq!(twice.err(), Some(PolicyError::SameRuleName { name: "a".into() }));
    }

    #[test]
    fn a_name_has_the_same_number_in_every_version() {
        // Buckets that were written to a file or to Redis are found by it.
        for (name, number) in [
            ("a", 0x7a1e_86d4_ece9_b6a2),
            ("All", 0x3628_d582_eec3_f38e),
            ("Login", 0xd2e9_0916_8915_73db),
            ("NewOrders", 0xa14c_c425_b866_c4ea),
            ("NewOrdersPerAccount", 0xd8ec_d5bb_4d91_16ac),
        ] {
            assert_eq!(Limit::new(name).unwrap().fingerprint(), number, "{name}");
        }
        let strict = Limit::new("All").unwrap().with_after_crash(AfterCrash::Strict);
        let policy = Policy::new(vec![strict]).unwrap();
        let policy = policy.after_loss(LostBuckets { epoch: 2, at: Timestamp::EPOCH });
        assert_eq!(policy.limits()[0].bucket_base(), 0x9bf9_28f2_2270_08a8);
        let domain = Domain::new("web", Vec::new(), Logic::Gcra).unwrap();
        assert_eq!(
            [0, 3].map(|rule| domain.fingerprint(rule)),
            [0x6745_ea5c_9f3f_b26b, 0xbde3_8770_e2e0_c654]
        );
    }

    #[test]
    fn every_limit_is_found_by_its_name_and_no_other() {
        // Names of all lengths that are compared in different ways, each with others that differ at either end.
        let words = (1..=20).map(|length| "x".repeat(length));
        let names: Vec<_> = words
            .flat_map(|word| [format!("{word}a"), format!("a{word}"), format!("{word}-{word}")])
            .collect();
        let policy = Policy::new(names.iter().map(|name| Limit::new(name).unwrap()).collect()).unwrap();
        for (index, name) in names.iter().enumerate() {
            assert_eq!(policy.limit(name).map(Limit::index), Some(index), "{name}");
            for other in
                [format!("{name}b"), format!("b{name}"), name.replace('a', "b"), name.replace('-', "_")]
            {
                assert!(names.contains(&other) || policy.limit(&other).is_none(), "{other}");
            }
        }
        assert!(policy.limit("").is_none() && Policy::default().limit("xa").is_none());
    }

    #[test]
    fn texts_are_the_same_if_every_byte_is() {
        for length in 0..=20 {
            let text = vec![b'a'; length];
            assert!(same(&text, &text.clone()) && !same(&text, &vec![b'a'; length + 1]), "{length}");
            for at in 0..length {
                let mut other = text.clone();
                other[at] = b'b';
                assert!(!same(&text, &other), "{length} {at}");
            }
        }
    }

    #[test]
    fn limits_that_fall_on_one_place_of_the_index_are_told_apart() {
        for place in 0..8 {
            let names = (0_u32..).map(|number| format!("a{number}"));
            let falls_there = |name: &String| fingerprint(name.as_bytes()) % 8 == place;
            let names: Vec<_> = names.filter(falls_there).take(3).collect();
            let limits = names[..2].iter().map(|name| Limit::new(name).unwrap()).collect();
            let policy = Policy::new(limits).unwrap();
            assert_eq!(policy.index.slots.len(), 8);
            let found = names.iter().map(|name| policy.limit(name).map(Limit::index));
            assert_eq!(found.collect::<Vec<_>>(), [Some(0), Some(1), None]);
        }
    }

    #[test]
    fn a_bucket_is_found_without_numbers() {
        let limit = Limit::new("Login").unwrap().with_ids(IdFormat::RegId);
        let policy = Policy::new(vec![limit]).unwrap();
        let bucket = policy.bucket("Login", b"007").unwrap();
        assert_eq!((bucket.limit().name(), bucket.id(), bucket.cost()), ("Login", &b"7"[..], 0));
        let inline = policy.bucket(InlineLimit::NAME, b"").unwrap();
        assert_eq!((inline.limit().name(), inline.id(), inline.cost()), (InlineLimit::NAME, &b""[..], 0));
        assert!(policy.bucket("Login", b"").is_err() && policy.bucket("nope", b"7").is_err());
    }

    #[test]
    fn a_domain_is_found_by_its_name() {
        let domain = |name: &str| Domain::new(name, Vec::new(), Logic::Window).unwrap();
        let policy = Policy::default().with_domains(vec![domain("web"), domain("api")]).unwrap();
        assert_eq!(policy.domains().iter().map(Domain::name).collect::<Vec<_>>(), ["web", "api"]);
        assert_eq!(policy.domain(b"api").map(Domain::name), Some("api"));
        assert_eq!(
            [&b"web"[..], b"api", b"Web"].map(|name| policy.domain_index(name)),
            [Some(0), Some(1), None]
        );
        let twice = Policy::default().with_domains(vec![domain("a"), domain("b"), domain("a")]);
        assert_eq!(twice.err(), Some(PolicyError::SameDomain { name: "a".into() }));
    }

    #[test]
    fn a_rule_for_keys_uses_a_limit_that_there_is() {
        let with_keys = |limits: &[usize]| {
            let rule = |limit: &usize| KeyRule { limit: KeyLimit::Use { limit: *limit }, stats: false };
            let keys = Keys::new(Arc::new(NoKeys), limits.iter().map(rule).collect());
            let limits = ["A", "B"].map(|name| Limit::new(name).unwrap());
            Policy::new(limits.to_vec()).unwrap().with_keys(keys).map(|policy| policy.keys().rules().len())
        };
        assert_eq!(with_keys(&[0, 1, 1]), Ok(3));
        assert_eq!(with_keys(&[1, 2]), Err(PolicyError::UnknownUse { rule: 1 }));
        assert_eq!(with_keys(&[9]), Err(PolicyError::UnknownUse { rule: 0 }));
    }

    #[derive(Debug)]
    struct NoKeys;

    impl KeyMatcher for NoKeys {
        fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
            Cow::Borrowed(key)
        }

        fn first_match(&self, _: &[u8]) -> Option<usize> {
            None
        }
    }

    #[test]
    fn an_unknown_limit_comes_with_the_one_that_was_meant_or_the_few_that_there_are() {
        let names = |count| (0..count).map(|number| format!("limit{number}")).collect::<Vec<_>>();
        let error = |count, name: &str| {
            let limits = names(count).iter().map(|name| Limit::new(name).unwrap()).collect();
            match Policy::new(limits).unwrap().charge(name, b"a", 1).unwrap_err() {
                ChargeError::UnknownLimit { nearest, existing, .. } => (nearest, existing),
                other => panic!("{other}"),
            }
        };
        assert_eq!(error(3, "limti2"), (Some("limit2".into()), Vec::new()));
        assert_eq!(error(LISTED_MAX, "other"), (None, names(LISTED_MAX)));
        assert_eq!(error(LISTED_MAX + 1, "other"), (None, Vec::new()));
    }
}
