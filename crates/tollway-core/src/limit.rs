//! A named limit: an algorithm and its numbers, by default and for particular ids.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::algorithm::{Algorithm, TokenBucket};
use crate::descriptor::limit_name;
use crate::former_buckets::{FormerBuckets, KeptExpiries};
use crate::id::{IdError, IdFormat};
use crate::local_share::LocalShare;
use crate::policy::{NameHash, fingerprint};
use crate::time::{Nanos, Timestamp};

/// The most former versions of a limit that are remembered. A bucket that was not used during as many changes of its
/// limit starts anew.
const FORMER_MAX: usize = 8;

/// A named limit: an algorithm with its numbers, and overrides for particular ids.
#[derive(Clone, Debug)]
pub struct Limit {
    name: Box<str>,
    /// True if its numbers come with each request, so that it is in no policy.
    inline: bool,
    /// The place in its policy, which [`Policy::new`](crate::Policy::new) sets.
    pub(crate) index: usize,
    number: Option<u64>,
    ids: IdFormat,
    default: Option<Algorithm>,
    overrides: HashMap<Box<[u8]>, Algorithm, NameHash>,
    /// True if an override is for everything of one account.
    account_overrides: bool,
    on_full: OnFull,
    on_store_failure: OnStoreFailure,
    after_crash: AfterCrash,
    fingerprint: u64,
    /// The fingerprint together with the number of the start that `lost` is about.
    bucket_base: u64,
    /// The start after which its buckets may be missing.
    lost: Option<LostBuckets>,
    /// The versions with other numbers that buckets may still be left from, the newest last.
    former: Vec<FormerLimit>,
}

/// A limit as it was until its numbers were changed.
#[derive(Clone, Debug)]
struct FormerLimit {
    limit: Arc<Limit>,
    until: Timestamp,
    /// The longest time that one of its buckets counts after its last use.
    fill_time: Nanos,
}

/// The token buckets that a limit had until a moment. A process that is started again gets them from the one before, so
/// that it finds the buckets that were written under them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerNumbers {
    /// The moment until which the limit had them.
    pub until: Timestamp,
    /// The number of the start that its buckets count from, if it was [strict](AfterCrash::Strict) about crashes.
    pub epoch: Option<u64>,
    /// The longest time that one of its buckets counts after its last use, of any algorithm.
    pub fill_time: Nanos,
    /// The numbers of ids without an override.
    pub default: Option<TokenBucket>,
    /// The numbers of other ids, or accounts.
    pub overrides: Vec<(Box<[u8]>, TokenBucket)>,
}

/// The answer to a new id when the store has no room to remember it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFull {
    /// Deny: nobody gets more than the limit by filling the store.
    #[default]
    Deny,
    /// Allow: nobody is turned away for want of memory.
    Allow,
}

/// The answer when the store gives none. The memory store always gives one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Allow: the limiter never takes the site down.
    #[default]
    Allow,
    /// Deny: nobody gets more than the limit by breaking the store.
    Deny,
    /// Decide from this process's own memory until the store is back, and grant no more than this share of the limit.
    Local(LocalShare),
}

/// The state in which ids start whose bucket may have been lost, because a process ended without a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterCrash {
    /// The last state that is known, or a full bucket: an id may get up to a burst too much, once a crash.
    #[default]
    Lenient,
    /// An empty bucket: over any time, across the crash too, no id gets more than the limit.
    Strict,
}

/// A start after which buckets may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBuckets {
    /// The number of such starts. Buckets from before this one are not found under limits that are
    /// [strict](AfterCrash::Strict).
    pub epoch: u64,
    /// The time of the start.
    pub at: Timestamp,
}

/// An error for a limit that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Empty, all digits, or with a character that would blur where the name ends.
    #[error(
        "\"{name}\" cannot be the name of a limit; use letters, digits, \"_\", \"-\" and \".\", but not only digits"
    )]
    Name {
        /// The name that was given.
        name: String,
    },
    /// The id of an override does not have the limit's format.
    #[error(transparent)]
    Id(#[from] IdError),
    /// One id has two overrides, perhaps in two spellings.
    #[error("id \"{id}\" already has an override")]
    OverriddenTwice {
        /// The id in its canonical spelling.
        id: String,
    },
}

/// Returns true if this can be the name of a limit or a rule.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    // Digits alone are kept for numbers, so that `3:alice` has one meaning. An empty name is digits alone, too.
    name.bytes().all(fits) && !name.bytes().all(|byte| byte.is_ascii_digit())
}

impl Limit {
    /// Makes a limit without numbers: every id is unlimited until there is a default or an override.
    pub fn new(name: &str) -> Result<Self, LimitError> {
        if is_name(name) { Ok(Self::named(name)) } else { Err(LimitError::Name { name: name.to_owned() }) }
    }

    /// Makes the limit of an [`InlineLimit`](crate::InlineLimit), whose name has a slash.
    pub(crate) fn inline(name: &str) -> Self {
        Self { inline: true, ..Self::named(name) }
    }

    /// Makes the limit, without numbers, of a descriptor at a place in the tree of Envoy's descriptors.
    pub fn of_descriptor(domain: &str, path: &[(&str, &str)]) -> Self {
        Self::named(&limit_name(domain, path))
    }

    fn named(name: &str) -> Self {
        Self {
            fingerprint: fingerprint(name.as_bytes()),
            bucket_base: fingerprint(name.as_bytes()),
            name: name.into(),
            inline: false,
            index: 0,
            number: None,
            ids: IdFormat::Any,
            default: None,
            overrides: HashMap::default(),
            account_overrides: false,
            on_full: OnFull::default(),
            on_store_failure: OnStoreFailure::default(),
            after_crash: AfterCrash::default(),
            lost: None,
            former: Vec::new(),
        }
    }

    /// Sets a number that replaces the name in bucket keys.
    pub fn with_number(mut self, number: u64) -> Self {
        self.number = Some(number);
        self.fingerprint = fingerprint(number.to_string().as_bytes());
        self.bucket_base = self.fingerprint;
        self
    }

    /// Sets the format of ids (default: any). Call it before overrides are added: it spells their ids.
    pub fn with_ids(mut self, ids: IdFormat) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the algorithm that applies to every id without an override.
    pub fn with_default(mut self, algorithm: Algorithm) -> Self {
        self.default = Some(algorithm);
        self
    }

    /// Sets the answer to new ids when the store has no room for them (default: deny).
    pub fn with_on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Sets the answer to every id when the store gives none (default: allow).
    pub fn with_on_store_failure(mut self, on_store_failure: OnStoreFailure) -> Self {
        self.on_store_failure = on_store_failure;
        self
    }

    /// Sets the state in which ids start whose bucket may have been lost (default: the last one that is known).
    pub fn with_after_crash(mut self, after_crash: AfterCrash) -> Self {
        self.after_crash = after_crash;
        self
    }

    /// Tells the limit that buckets may be missing. It matters if the limit is [strict](AfterCrash::Strict).
    pub(crate) fn set_lost(&mut self, lost: LostBuckets) {
        self.lost = (self.after_crash == AfterCrash::Strict).then_some(lost);
        let epoch = self.lost.map_or(0, |lost| lost.epoch);
        // An odd factor: no two starts give the same number.
        self.bucket_base = self.fingerprint ^ epoch.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    /// Gives one id numbers of its own. Where ids begin with an account, the account alone stands for all its ids that
    /// have no override of their own.
    pub fn add_override(&mut self, id: &[u8], algorithm: Algorithm) -> Result<(), LimitError> {
        let id = self.ids.canonical_override(id)?;
        if self.overrides.contains_key(&*id) {
            return Err(LimitError::OverriddenTwice { id: id.escape_ascii().to_string() });
        }
        self.account_overrides |= self.ids.has_account() && !id.contains(&b':');
        self.overrides.insert(id.into(), algorithm);
        Ok(())
    }

    /// Returns its place in [`Policy::limits`](crate::Policy::limits), by which counters and the like find it.
    #[inline]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the name that requests use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if its numbers come with each request. Then it is in no policy, and clients make its buckets.
    pub const fn is_inline(&self) -> bool {
        self.inline
    }

    /// Returns the number that replaces the name in bucket keys, if it has one.
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the format that its ids have.
    pub const fn ids(&self) -> IdFormat {
        self.ids
    }

    /// Returns the algorithm that applies to an id without an override.
    pub const fn default_algorithm(&self) -> Option<&Algorithm> {
        self.default.as_ref()
    }

    /// Returns the ids that have overrides, in no order.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = (&[u8], &Algorithm)> {
        self.overrides.iter().map(|(id, algorithm)| (&**id, algorithm))
    }

    /// Returns the answer to a new id when the store has no room for it.
    pub const fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// Returns the answer that replaces the store's when it gives none.
    pub const fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }

    /// Returns the state in which ids start whose bucket may have been lost.
    pub const fn after_crash(&self) -> AfterCrash {
        self.after_crash
    }

    /// Returns the time of a start from which ids that have no bucket have to be empty: their bucket may have been
    /// lost. It is `None` when all buckets from before have filled again, and for limits that are not
    /// [strict](AfterCrash::Strict).
    pub fn empty_since(&self, algorithm: &Algorithm, now: Timestamp) -> Option<Timestamp> {
        let LostBuckets { at, .. } = self.lost?;
        (now < at + algorithm.window()).then_some(at)
    }

    /// Returns the number that buckets are found by: its fingerprint, and the start since which they count.
    #[inline]
    pub const fn bucket_base(&self) -> u64 {
        self.bucket_base
    }

    /// Returns a number that identifies this limit in its policy, the same in every process and after every reload.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the algorithm that applies to a canonical id; `None` means no limit.
    #[inline]
    pub fn algorithm_for(&self, canonical: &[u8]) -> Option<&Algorithm> {
        if !self.overrides.is_empty()
            && let Some(algorithm) = self.overrides.get(canonical).or_else(|| self.of_account(canonical))
        {
            return Some(algorithm);
        }
        self.default.as_ref()
    }

    /// Returns the algorithm that applies to every id, if ids are any bytes and none has an override.
    #[inline]
    pub fn same_for_all_ids(&self) -> Option<&Algorithm> {
        if self.overrides.is_empty() && self.ids == IdFormat::Any { self.default.as_ref() } else { None }
    }

    /// Returns the number that its token buckets of these numbers are found by, together with the id.
    #[inline]
    pub const fn bucket_fingerprint(&self, numbers: &TokenBucket) -> u64 {
        self.bucket_base ^ numbers.interval_fingerprint()
    }

    /// Returns the override of the account that a canonical id begins with.
    fn of_account(&self, canonical: &[u8]) -> Option<&Algorithm> {
        if !self.account_overrides {
            return None;
        }
        self.overrides.get(canonical.split(|byte| *byte == b':').next()?)
    }

    /// Remembers the numbers that `old` had until `now`, for the buckets that were written under them.
    pub(crate) fn succeed(&mut self, old: &Self, now: Timestamp) {
        let is_same = (&self.default, &self.overrides, self.bucket_base)
            == (&old.default, &old.overrides, old.bucket_base);
        self.remember(old, old.fill_time_max(), is_same, now);
    }

    /// Remembers the former versions of `old`, and `old` itself unless it has the same buckets.
    fn remember(&mut self, old: &Self, fill_time: Nanos, is_same: bool, now: Timestamp) {
        self.former.clone_from(&old.former);
        if !is_same {
            let limit = Arc::new(Self { former: Vec::new(), ..old.clone() });
            self.former.push(FormerLimit { limit, until: now, fill_time });
        }
        let surplus = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..surplus);
    }

    /// Returns the token buckets of this limit, which it has until `now`, and of its former versions, the oldest first.
    pub fn numbers(&self, now: Timestamp) -> Vec<FormerNumbers> {
        let former = self.former.iter().map(|former| {
            let numbers = former.limit.numbers_until(former.until);
            FormerNumbers { fill_time: former.fill_time, ..numbers }
        });
        former.chain([self.numbers_until(now)]).collect()
    }

    fn numbers_until(&self, until: Timestamp) -> FormerNumbers {
        let token_bucket = |algorithm: &Algorithm| match algorithm {
            Algorithm::TokenBucket(numbers) => Some(*numbers),
            _ => None,
        };
        let mut overrides: Vec<_> = self
            .overrides
            .iter()
            .filter_map(|(id, algorithm)| Some((id.clone(), token_bucket(algorithm)?)))
            .collect();
        overrides.sort_by(|one, other| one.0.cmp(&other.0));
        let epoch = self.lost.map(|lost| lost.epoch);
        let default = self.default.as_ref().and_then(token_bucket);
        FormerNumbers { until, epoch, fill_time: self.fill_time_max(), default, overrides }
    }

    /// Remembers the numbers that the limit had in the process before, the newest last. It had those until `now`, since
    /// nobody has decided meanwhile.
    pub(crate) fn follow(&mut self, mut numbers: Vec<FormerNumbers>, now: Timestamp) {
        let Some(last) = numbers.pop() else { return };
        let last = FormerNumbers { until: now, ..last };
        let (is_same, fill_time) = (last == self.numbers_until(now), last.fill_time);
        let mut old = self.with_numbers(last);
        let former = numbers.into_iter().map(|numbers| {
            let (until, fill_time) = (numbers.until.min(now), numbers.fill_time);
            FormerLimit { limit: Arc::new(self.with_numbers(numbers)), until, fill_time }
        });
        old.former = former.collect();
        self.remember(&old, fill_time, is_same, now);
    }

    /// Returns a limit of this name that has other numbers.
    fn with_numbers(&self, numbers: FormerNumbers) -> Self {
        let FormerNumbers { epoch, default, overrides, .. } = numbers;
        let mut limit = Self {
            fingerprint: self.fingerprint,
            bucket_base: self.fingerprint,
            ids: self.ids,
            default: default.map(Algorithm::TokenBucket),
            ..Self::named(&self.name)
        };
        if let Some(epoch) = epoch {
            limit.after_crash = AfterCrash::Strict;
            limit.set_lost(LostBuckets { epoch, at: Timestamp::EPOCH });
        }
        for (id, numbers) in overrides {
            limit.account_overrides |= limit.ids.has_account() && !id.contains(&b':');
            limit.overrides.insert(id, Algorithm::TokenBucket(numbers));
        }
        limit
    }

    /// Returns true if an id without a bucket may not be one that was never used: its bucket may have been written
    /// under former numbers, or lost.
    #[inline]
    pub fn looks_further(&self) -> bool {
        !self.former.is_empty() || self.lost.is_some()
    }

    /// Returns the token buckets that applied to a canonical id before, each with the number that they are found by and
    /// the moment until which they did, the oldest first.
    pub(crate) fn former_token_buckets(&self, canonical: &[u8]) -> Vec<(&TokenBucket, u64, Timestamp)> {
        let former =
            self.counting_versions().filter_map(|former| match former.limit.algorithm_for(canonical)? {
                Algorithm::TokenBucket(limit) => {
                    Some((limit, former.limit.bucket_fingerprint(limit), former.until))
                }
                _ => None,
            });
        former.collect()
    }

    /// Returns the numbers that its buckets were found by before it became strict about crashes or lenient, the newest
    /// first.
    pub fn former_bases(&self) -> impl Iterator<Item = u64> {
        let bases = self.counting_versions().rev().map(|former| former.limit.bucket_base);
        bases.filter(|base| *base != self.bucket_base)
    }

    /// Returns the former versions whose buckets count. Under a limit that is strict, what was written before a crash
    /// does not.
    fn counting_versions(&self) -> impl DoubleEndedIterator<Item = &FormerLimit> {
        self.former.iter().filter(|former| self.lost.is_none_or(|lost| former.until > lost.at))
    }

    /// Forgets the former versions of which a store that keeps `buckets` has none left at `now`.
    pub(crate) fn forget_former(&mut self, buckets: &FormerBuckets, now: Timestamp) {
        self.former.retain(|former| buckets.kept_until(former.until + former.fill_time) > now);
    }

    /// Returns which buckets may be left from each former version and until when they count, the oldest first.
    pub(crate) fn former_buckets(&self) -> Vec<KeptExpiries> {
        self.former_until(self.fill_time_max())
    }

    /// Returns the same for a limit whose own buckets count for so long after their last use.
    fn former_until(&self, fill_time: Nanos) -> Vec<KeptExpiries> {
        let fill_times = || self.former.iter().map(|former| former.fill_time).chain([fill_time]);
        // What is left of a bucket after a change is at most what the numbers before or after it hold.
        let fill_times: Vec<_> =
            fill_times().zip(fill_times().skip(1)).map(|(old, new)| old.max(new)).collect();
        let changes: Vec<_> = self.former.iter().map(|former| former.until).zip(fill_times).collect();
        let kept = self.former.iter().enumerate().map(|(index, former)| {
            let to = former.until + former.fill_time;
            // A bucket that was full at a change has nothing to say after it.
            let counts_until = |end: Timestamp, (change, fill_time): &(Timestamp, Nanos)| {
                if end > *change { end.max(*change + *fill_time) } else { end }
            };
            KeptExpiries { after: former.until, to, until: changes[index..].iter().fold(to, counts_until) }
        });
        kept.collect()
    }

    /// Returns the longest time that one of its buckets counts after its last use.
    fn fill_time_max(&self) -> Nanos {
        let windows = self.overrides.values().chain(&self.default).map(Algorithm::window);
        windows.max().unwrap_or(Nanos::ZERO)
    }

    /// Returns the readable key of a bucket: `NewOrdersPerAccount:12345678`, or `3:12345678` with a number.
    pub fn bucket_key<'a>(&'a self, canonical: &'a [u8]) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            match self.number {
                Some(number) => write!(f, "{number}:"),
                None => write!(f, "{}:", self.name),
            }?;
            write!(f, "{}", canonical.escape_ascii())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Bucket, Quota, TokenBucketState};
    use crate::policy::Policy;

    fn at(secs: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_secs(secs)
    }

    /// A token bucket that gains one every so many seconds.
    fn one_every(secs: u64, burst: u64) -> Algorithm {
        Algorithm::TokenBucket(TokenBucket::new(burst, 1, Duration::from_secs(secs)).unwrap())
    }

    fn limit(secs: u64, burst: u64) -> Limit {
        Limit::new("A").unwrap().with_number(3).with_default(one_every(secs, burst))
    }

    fn policy(limit: Limit) -> Policy {
        Policy::new(vec![limit]).unwrap()
    }

    /// The buckets of one id, as a store keeps them: by the numbers that they are found by.
    #[derive(Default)]
    struct Buckets(HashMap<u64, TokenBucketState>);

    impl Buckets {
        /// Returns what is left, or `None` if the cost does not fit.
        fn spend(&mut self, policy: &Policy, cost: u64, now: Timestamp) -> Option<u64> {
            let charge = policy.charge("A", b"7:x", cost).unwrap();
            let Some(Algorithm::TokenBucket(numbers)) = charge.algorithm() else { panic!("a token bucket") };
            let found = self.0.remove(&charge.bucket_fingerprint());
            let former = || charge.take_former(|fingerprint| self.0.remove(&fingerprint));
            let mut bucket = found.or_else(former).unwrap_or_else(|| {
                let mut bucket = TokenBucketState::default();
                if let Some(since) = charge.limit().empty_since(charge.algorithm().unwrap(), now) {
                    let _ = bucket.charge(numbers, numbers.burst(), since);
                }
                bucket
            });
            let decision = bucket.charge(numbers, cost, now);
            self.0.insert(charge.bucket_fingerprint(), bucket);
            decision.allowed().then_some(decision.remaining)
        }
    }

    #[test]
    fn an_override_of_an_account_holds_for_all_its_ids_without_one_of_their_own() {
        let numbers = |burst| one_every(1, burst);
        let overridden = |format, ids: [&str; 3]| {
            let mut limit = limit(1, 1).with_ids(format);
            for (id, burst) in ids.into_iter().zip(10..) {
                limit.add_override(id.as_bytes(), numbers(burst)).unwrap();
            }
            ["7:a.com", "7:b.com", "8:b.com", "9:b.com", "7"]
                .map(|id| limit.algorithm_for(id.as_bytes()).unwrap().cost_max())
        };
        assert_eq!(overridden(IdFormat::RegIdDomain, ["7", "8", "9"]), [10, 10, 11, 12, 10]);
        assert_eq!(overridden(IdFormat::RegIdDomain, ["7", "8", "7:b.com"]), [10, 12, 11, 1, 10]);
        assert_eq!(overridden(IdFormat::RegIdDomain, ["7:a.com", "7:b.com", "7"]), [10, 11, 1, 1, 12]);
        assert_eq!(overridden(IdFormat::Any, ["7", "8", "7:b.com"]), [1, 12, 1, 1, 10]);
    }

    #[test]
    fn numbers_that_hold_for_every_id_are_found_without_the_id() {
        let plain = limit(1, 3);
        assert_eq!(plain.same_for_all_ids(), Some(&one_every(1, 3)));
        assert_eq!(plain.clone().with_ids(IdFormat::RegId).same_for_all_ids(), None);
        let mut overridden = plain;
        overridden.add_override(b"7", one_every(1, 9)).unwrap();
        assert_eq!(overridden.same_for_all_ids(), None);
    }

    #[test]
    fn tokens_that_were_used_stay_used_through_every_change_of_the_numbers() {
        let mut buckets = Buckets::default();
        let first = policy(limit(1, 10));
        assert_eq!(buckets.spend(&first, 6, at(100)), Some(4));
        // Two come back before the first change and two before the second, and nobody asks in between.
        let second = policy(limit(10, 10)).replacing(&first, at(102));
        let third = policy(limit(2, 10)).replacing(&second, at(122));
        assert_eq!((second.since(), third.since()), (at(102), at(122)));
        assert_eq!(buckets.spend(&third, 1, at(122)), Some(7));
        assert_eq!(buckets.0.len(), 1, "it is found under the new numbers alone");
        assert_eq!(buckets.spend(&third, 1, at(122)), Some(6));
    }

    #[test]
    fn a_change_of_the_burst_alone_is_a_change_and_the_same_numbers_are_none() {
        let first = policy(limit(1, 10));
        assert!(!policy(limit(1, 10)).replacing(&first, at(1)).limits()[0].looks_further());
        assert!(policy(limit(1, 5)).replacing(&first, at(1)).limits()[0].looks_further());
        let mut overridden = limit(1, 10);
        overridden.add_override(b"x", one_every(1, 3)).unwrap();
        let overridden = policy(overridden).replacing(&first, at(1));
        let [former, own] = &overridden.limits()[0].numbers(at(2))[..] else { panic!("two versions") };
        assert_eq!((former.until, former.overrides.len()), (at(1), 0));
        assert_eq!((own.until, own.overrides.len()), (at(2), 1));
        let other = policy(Limit::new("B").unwrap().with_default(one_every(2, 10)));
        assert!(!other.replacing(&first, at(1)).limits()[0].looks_further(), "another limit");
    }

    #[test]
    fn a_former_version_is_forgotten_when_no_bucket_is_left_of_it() {
        let first = policy(limit(1, 10));
        let second = policy(limit(10, 10)).replacing(&first, at(102));
        // What was spent by the change is full again when the slower numbers have filled a bucket.
        for (now, versions) in [(at(202) - Nanos::new(1), 2), (at(202), 1)] {
            for (secs, changes) in [(10, 0), (5, 1)] {
                let third = policy(limit(secs, 10)).replacing(&second, now);
                assert_eq!(third.limits()[0].numbers(now).len(), versions + changes, "{now} {secs}");
            }
        }
        let kept = second.former_buckets();
        for (expires_at, dropped_at) in [(102, 102), (103, 202), (112, 202), (113, 113)] {
            assert_eq!(kept.dropped_at(at(expires_at)), at(dropped_at), "{expires_at}");
        }
    }

    #[test]
    fn of_many_changes_the_newest_are_remembered() {
        let change =
            |policy: Policy, secs: u64| self::policy(limit(secs, 1_000)).replacing(&policy, at(secs));
        let changed = (2..=12).fold(policy(limit(1, 1_000)), change);
        let versions = changed.limits()[0].numbers(at(20));
        let until: Vec<_> = versions.iter().map(|version| version.until).collect();
        assert_eq!(until, [5, 6, 7, 8, 9, 10, 11, 12, 20].map(at));
        let versions = &changed.limits()[0].former;
        assert!(versions.iter().all(|version| version.limit.former.is_empty()), "none keeps those before it");
    }

    #[test]
    fn a_process_that_starts_with_other_numbers_finds_the_buckets_of_the_one_before() {
        // Under the override one of the four that were used came back until the process started, else two.
        for (format, left) in [(IdFormat::RegIdDomain, 6), (IdFormat::Any, 7)] {
            let mut buckets = Buckets::default();
            let first = policy(limit(1, 10).with_ids(format));
            let mut changed = limit(10, 10).with_ids(format);
            changed.add_override(b"7", one_every(20, 10)).unwrap();
            let second = policy(changed).replacing(&first, at(102));
            assert_eq!(buckets.spend(&first, 6, at(100)), Some(4));
            let numbers = second.limits()[0].numbers(second.since());
            let limit = limit(2, 10).with_ids(format);
            let third = policy(limit).following(|name| (name == "A").then(|| numbers.clone()), at(122));
            assert_eq!(buckets.spend(&third, 1, at(122)), Some(left), "{format:?}");
        }
    }

    #[test]
    fn the_newest_former_numbers_are_those_of_the_process_before_unless_they_are_the_same() {
        let second = policy(limit(10, 10)).replacing(&policy(limit(1, 10)), at(102));
        let numbers = second.limits()[0].numbers(second.since());
        let follow = |secs, now| policy(limit(secs, 10)).following(|_| Some(numbers.clone()), now);
        let until = |policy: &Policy| {
            let versions = policy.limits()[0].numbers(at(130));
            versions.iter().map(|version| version.until).collect::<Vec<_>>()
        };
        assert_eq!(until(&follow(2, at(122))), [102, 122, 130].map(at));
        assert_eq!(until(&follow(10, at(122))), [102, 130].map(at));
        assert_eq!(follow(2, at(122)).since(), at(122));
        let early = follow(2, at(90));
        assert_eq!(
            (early.since(), until(&early)),
            (at(102), [90, 90, 130].map(at).to_vec()),
            "a clock set back"
        );
        let unknown = policy(limit(2, 10)).following(|_| None, at(122));
        assert!(!unknown.limits()[0].looks_further());
    }

    #[test]
    fn after_a_crash_an_id_under_a_strict_limit_starts_empty_until_it_would_be_full() {
        let (lenient, lost) = (limit(1, 10), LostBuckets { epoch: 1, at: at(100) });
        let strict = || limit(1, 10).with_after_crash(AfterCrash::Strict);
        let [lenient_after, strict_after] =
            [lenient.clone(), strict()].map(|limit| policy(limit).after_loss(lost));
        assert_eq!(Buckets::default().spend(&lenient_after, 1, at(100)), Some(9));
        for (now, left) in [(at(100), None), (at(103), Some(2)), (at(109), Some(8)), (at(110), Some(9))] {
            assert_eq!(Buckets::default().spend(&strict_after, 1, now), left, "{now}");
        }
        let empty_since = |policy: &Policy, now| policy.limits()[0].empty_since(&one_every(1, 10), now);
        assert_eq!(empty_since(&strict_after, at(110) - Nanos::new(1)), Some(at(100)));
        assert_eq!(empty_since(&strict_after, at(110)), None);
        assert_eq!(empty_since(&lenient_after, at(100)), None);
        // What was written before is found under the lenient limit alone.
        let base = |policy: &Policy| policy.limits()[0].bucket_base();
        let again = policy(strict()).after_loss(LostBuckets { epoch: 2, ..lost });
        assert_eq!(base(&lenient_after), base(&policy(lenient)));
        assert!(base(&strict_after) != base(&lenient_after) && base(&strict_after) != base(&again));
        assert!(strict_after.limits()[0].looks_further() && !lenient_after.limits()[0].looks_further());
    }

    #[test]
    fn a_limit_that_becomes_strict_or_lenient_finds_what_was_written_since_the_crash() {
        let lost = LostBuckets { epoch: 1, at: at(100) };
        let strict = || limit(1, 10).with_after_crash(AfterCrash::Strict);
        let (lenient, strict) = (policy(limit(1, 10)).after_loss(lost), policy(strict()).after_loss(lost));
        let bases = |policy: &Policy| policy.limits()[0].former_bases().collect::<Vec<_>>();
        let base = |policy: &Policy| policy.limits()[0].bucket_base();
        let now_strict = strict.clone().replacing(&lenient, at(101));
        assert_eq!(bases(&now_strict), [base(&lenient)]);
        let now_lenient = lenient.clone().replacing(&strict, at(101));
        assert_eq!(bases(&now_lenient), [base(&strict)]);
        let mut buckets = Buckets::default();
        assert_eq!(buckets.spend(&lenient, 6, at(101)), Some(4));
        assert_eq!(buckets.spend(&now_strict, 1, at(101)), Some(3));
        // What was written before the crash does not count.
        assert_eq!(bases(&strict.clone().replacing(&lenient, at(100))), [0; 0]);
        assert_eq!(
            bases(&policy(limit(1, 5)).replacing(&lenient, at(101))),
            [0; 0],
            "the same number finds them"
        );
        // A process that starts again has the number of the crash from the one before.
        let numbers = now_lenient.limits()[0].numbers(at(102));
        assert_eq!(numbers.iter().map(|version| version.epoch).collect::<Vec<_>>(), [Some(1), None]);
        let started = policy(limit(1, 10)).following(|_| Some(numbers.clone()), at(102));
        assert_eq!(bases(&started), [base(&strict)]);
    }

    #[test]
    fn only_token_buckets_are_among_the_former_numbers_and_every_algorithm_is_in_the_fill_time() {
        let quota = Algorithm::Quota(Quota::new(5, Duration::from_secs(60)).unwrap());
        let mut first = Limit::new("A").unwrap().with_default(quota);
        first.add_override(b"b", one_every(1, 10)).unwrap();
        first.add_override(b"a", one_every(2, 10)).unwrap();
        let [numbers] = &first.numbers(at(5))[..] else { panic!("one version") };
        assert_eq!((numbers.default, numbers.fill_time), (None, Nanos::from_secs(60)));
        let ids: Vec<_> =
            numbers.overrides.iter().map(|(id, numbers)| (&**id, numbers.fill_time())).collect();
        assert_eq!(ids, [(&b"a"[..], Nanos::from_secs(20)), (b"b", Nanos::from_secs(10))]);
        assert_eq!(Limit::new("A").unwrap().numbers(at(5))[0].fill_time, Nanos::ZERO);
        let started = policy(limit(1, 10)).following(|_| Some(first.numbers(at(5))), at(6));
        let fill_times = started.limits()[0].numbers(at(7)).into_iter().map(|numbers| numbers.fill_time);
        assert_eq!(fill_times.collect::<Vec<_>>(), [60, 10].map(Nanos::from_secs));
    }

    #[test]
    fn a_limit_of_its_own_settings_says_them() {
        let limit = Limit::new("A").unwrap().with_number(7).with_ids(IdFormat::RegId);
        assert_eq!((limit.number(), limit.ids(), limit.is_inline()), (Some(7), IdFormat::RegId, false));
        assert_eq!((limit.on_full(), limit.on_store_failure()), (OnFull::Deny, OnStoreFailure::Allow));
        let share = OnStoreFailure::Local(LocalShare::WHOLE);
        let limit = limit.with_on_full(OnFull::Allow).with_on_store_failure(share);
        assert_eq!((limit.on_full(), limit.on_store_failure()), (OnFull::Allow, share));
    }
}
