//! The charges of a request to Envoy's rate limit service, and what the decisions about them mean for its answer.
//!
//! All descriptors of a request are one bill: if one refuses it, nothing is counted anywhere.

use std::borrow::Cow;
use std::time::Duration;

use super::request::{LimitOverride, RateLimitRequest, RateLimitRequestError, RequestDescriptor};
use super::{FoundDescriptor, RateUnit, override_id};
use crate::algorithm::{Algorithm, FixedWindow};
use crate::bill::Expression;
use crate::charge::{Charge, ChargeKind};
use crate::decision::{Decision, Refund, Verdict};
use crate::inline_limit::{InlineAlgorithm, InlineLimit};
use crate::limit::Limit;
use crate::policy::Policy;
use crate::time::{Nanos, Timestamp};

/// A request, with the limit that each of its descriptors leads to.
#[derive(Debug)]
pub struct DescriptorBill<'a> {
    parts: Vec<Part<'a>>,
    spends: Vec<DescriptorBucket<'a>>,
    refunds: Vec<DescriptorBucket<'a>>,
    quota_mode: bool,
    shadow_mode: bool,
}

/// One descriptor of the request.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    /// No limit applies, or another one replaces it.
    NoLimit,
    Unlimited,
    Limited {
        shown: ShownLimit<'a>,
        mode: Mode,
        hits: Hits,
    },
}

/// The effect of a descriptor that is over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The request is refused.
    Enforce,
    /// The request is not refused, and the answer does not say that it is over.
    Shadow,
    /// The request is refused only if all others in this mode are over, too.
    Quota,
}

/// The part that the hits of a descriptor have in the bill.
#[derive(Clone, Copy, Debug)]
enum Hits {
    /// They are taken from the bucket at this place in `spends`.
    Spend(usize),
    /// They are given back to the bucket at this place in `refunds`.
    Refund(usize),
    /// Nothing is ever allowed, so there is no bucket. It is over the limit if the descriptor has hits.
    Blocked { is_over: bool },
}

/// A bucket, and the hits of all descriptors that lead to it.
#[derive(Debug)]
struct DescriptorBucket<'a> {
    limit: BucketLimit<'a>,
    id: Cow<'a, [u8]>,
    hits: u64,
    kind: ChargeKind,
    /// The name under which its decisions are counted by values, if they are.
    metric: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum BucketLimit<'a> {
    Configured(&'a Limit),
    Inline(&'a InlineLimit, InlineAlgorithm),
}

/// A limit as an answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownLimit<'a> {
    /// The number of requests in a unit.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: RateUnit,
    /// The name of the limit; it may be empty.
    pub name: &'a str,
}

/// The answer about one descriptor of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct DescriptorStatus<'a> {
    /// True if the descriptor is over its limit.
    pub over_limit: bool,
    /// The limit that applies, if one does.
    pub limit: Option<ShownLimit<'a>>,
    /// The number of requests that are left.
    pub remaining: u32,
    /// The time until the limit is like one that was never used.
    pub reset: Nanos,
}

/// The decisions about the charges of a [`DescriptorBill`].
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct DescriptorOutcome {
    /// The decision about the whole bill.
    pub decision: Decision,
    /// The decision about each charge, in order.
    pub charges: Vec<Decision>,
    /// The answer to each refund, in order; `None` if the store gave none. It is empty if the bill was denied.
    pub refunds: Vec<Option<Refund>>,
    /// The time at which it was decided.
    pub now: Timestamp,
}

impl DescriptorOutcome {
    /// Makes the outcome of a bill that was decided at `now`.
    pub const fn new(
        decision: Decision,
        charges: Vec<Decision>,
        refunds: Vec<Option<Refund>>,
        now: Timestamp,
    ) -> Self {
        Self { decision, charges, refunds, now }
    }
}

impl<'a> DescriptorBill<'a> {
    /// Finds the limits of a request. A request without a domain or descriptors, or with too many, is an error.
    pub fn new(policy: &'a Policy, request: &'a RateLimitRequest<'_>) -> Result<Self, RateLimitRequestError> {
        request.check()?;
        let tree = policy.descriptors();
        let find = |descriptor: &'a RequestDescriptor<'_>| match descriptor.limit {
            None => tree.find(&request.domain, &descriptor.entries),
            Some(_) => None,
        };
        let mut replaced = Vec::new();
        if tree.has_replacements {
            let found = request.descriptors.iter().filter_map(find);
            replaced.extend(found.flat_map(|found| &found.shown.replaces));
        }
        let count = request.descriptors.len();
        let mut bill = Self {
            parts: Vec::with_capacity(count),
            spends: Vec::with_capacity(count),
            refunds: Vec::new(),
            quota_mode: tree.quota_mode,
            shadow_mode: tree.shadow_mode,
        };
        let overrides = tree.overrides().filter(|_| tree.has_domain(&request.domain));
        for descriptor in &request.descriptors {
            let hits = request.hits(descriptor);
            let part = match (find(descriptor), descriptor.limit, overrides) {
                (_, Some(numbers), Some(limit)) => {
                    bill.overridden(limit, numbers, &request.domain, descriptor, hits)
                }
                (Some(found), _, _) => match found.shown.rate {
                    None => Part::Unlimited,
                    Some(_) if replaced.contains(&&found.shown.name) => Part::NoLimit,
                    Some(rate) => bill.limited(policy, found, rate, descriptor, hits),
                },
                (None, _, _) => Part::NoLimit,
            };
            bill.parts.push(part);
        }
        Ok(bill)
    }

    fn limited(
        &mut self,
        policy: &'a Policy,
        found: FoundDescriptor<'a>,
        (requests_per_unit, unit): (u32, RateUnit),
        descriptor: &RequestDescriptor<'_>,
        hits: u64,
    ) -> Part<'a> {
        let FoundDescriptor { shown, place, id, metric } = found;
        let mode = match (shown.shadow_mode, shown.quota_mode || self.quota_mode) {
            (true, _) => Mode::Shadow,
            (false, true) => Mode::Quota,
            (false, false) => Mode::Enforce,
        };
        let shown = ShownLimit { requests_per_unit, unit, name: &shown.name };
        let limit = place.map(|place| BucketLimit::Configured(&policy.limits()[place]));
        Part::Limited { shown, mode, hits: self.add_hits(limit, id, metric, hits, mode, descriptor) }
    }

    /// Returns the part of a descriptor that brings numbers of its own. They are counted in windows.
    fn overridden(
        &mut self,
        limit: &'a InlineLimit,
        LimitOverride { requests_per_unit, unit }: LimitOverride,
        domain: &str,
        descriptor: &'a RequestDescriptor<'_>,
        hits: u64,
    ) -> Part<'a> {
        let shown = ShownLimit { requests_per_unit, unit, name: "" };
        let mode = if self.quota_mode { Mode::Quota } else { Mode::Enforce };
        let window = FixedWindow::new(u64::from(requests_per_unit), unit.span().into(), Duration::ZERO);
        let window = window.map(|window| InlineAlgorithm::new(Algorithm::FixedWindow(window)));
        let limit = window.ok().map(|numbers| BucketLimit::Inline(limit, numbers));
        let id = Cow::Owned(override_id(domain, unit, &descriptor.entries));
        Part::Limited { shown, mode, hits: self.add_hits(limit, id, None, hits, mode, descriptor) }
    }

    /// Adds the hits of a descriptor to the bill. Without a limit nothing is ever allowed.
    fn add_hits(
        &mut self,
        limit: Option<BucketLimit<'a>>,
        id: Cow<'a, [u8]>,
        metric: Option<String>,
        hits: u64,
        mode: Mode,
        descriptor: &RequestDescriptor<'_>,
    ) -> Hits {
        let Some(limit) = limit else {
            return Hits::Blocked { is_over: hits > 0 && !descriptor.is_negative_hits };
        };
        let is_shadow = mode == Mode::Shadow || self.shadow_mode;
        let kind = if is_shadow { ChargeKind::SpendOnly } else { ChargeKind::Spend };
        self.add(DescriptorBucket { limit, id, hits, kind, metric }, descriptor.is_negative_hits)
    }

    /// Adds hits to a bucket. Several descriptors that lead to one bucket are one charge with all their hits.
    fn add(&mut self, bucket: DescriptorBucket<'a>, gives_back: bool) -> Hits {
        let buckets = if gives_back { &mut self.refunds } else { &mut self.spends };
        let same = |other: &DescriptorBucket<'_>| {
            other.limit().fingerprint() == bucket.limit().fingerprint() && other.id == bucket.id
        };
        let place = match buckets.iter().position(same) {
            Some(place) => {
                let same = &mut buckets[place];
                same.hits = same.hits.saturating_add(bucket.hits);
                // A request can bring several numbers for one bucket. All of them hold if the strictest do.
                if bucket.cost_max() < same.cost_max() {
                    same.limit = bucket.limit;
                }
                place
            }
            None => {
                buckets.push(bucket);
                buckets.len() - 1
            }
        };
        if gives_back { Hits::Refund(place) } else { Hits::Spend(place) }
    }

    /// Denies the charges whose hits can never fit, which were settled with no hits. Returns the decision about the
    /// request; if one of them denied it, it names that one.
    pub fn deny_hits_that_never_fit(&self, decision: Decision, each: &mut [Decision]) -> Decision {
        let never_fitting = || self.spends.iter().enumerate().filter(|(_, bucket)| bucket.never_fits());
        for (place, _) in never_fitting() {
            if each[place].verdict == Verdict::Allow {
                each[place] =
                    Decision { retry_nanos: Nanos::FOREVER, ..each[place].with_verdict(Verdict::Deny) };
            }
        }
        match never_fitting().find(|(_, bucket)| bucket.kind != ChargeKind::SpendOnly) {
            Some((place, _)) if !decision.allowed() && decision.retry_nanos.is_forever() => {
                decision.with_charge(place)
            }
            _ => decision,
        }
    }

    /// Returns the charges of the bill. Hits that can never fit are a look at the bucket, and a part of the
    /// [`expression`](Self::expression).
    pub fn charges(&self) -> Vec<Charge<'_>> {
        self.spends.iter().map(DescriptorBucket::spend).collect()
    }

    /// Returns the hits of each charge, in the order of [`charges`](Self::charges): also those that can never fit.
    pub fn hits(&self) -> impl ExactSizeIterator<Item = u64> {
        self.spends.iter().map(|bucket| bucket.hits)
    }

    /// Returns the name under which the decisions about each charge are counted by values, in the order of
    /// [`charges`](Self::charges); `None` if they are not.
    pub fn metrics(&self) -> impl Iterator<Item = Option<&str>> {
        self.spends.iter().map(|bucket| bucket.metric.as_deref())
    }

    /// Returns the id of the bucket of each descriptor of the request, in order; `None` if it has no bucket.
    pub fn bucket_ids(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.parts.iter().map(|part| Some(&*self.bucket(part.hits()?)?.id))
    }

    /// Returns what the request gives back. More than a bucket holds is a full bucket.
    pub fn refunds(&self) -> Vec<Charge<'_>> {
        self.refunds.iter().map(DescriptorBucket::refund).collect()
    }

    /// Returns the expression that says which charges deny the bill, or `None` if any of them does.
    pub fn expression(&self) -> Option<Expression> {
        // Nearly all requests are denied by any of their charges.
        let is_plain = |part: &Part<'_>| match part {
            Part::NoLimit | Part::Unlimited => !self.quota_mode,
            Part::Limited { mode: Mode::Shadow, .. } => !self.quota_mode,
            Part::Limited { mode: Mode::Quota, .. } => false,
            Part::Limited { hits: Hits::Spend(place), .. } => !self.spends[*place].never_fits(),
            Part::Limited { .. } => false,
        };
        if self.shadow_mode || self.parts.iter().all(is_plain) {
            return None;
        }
        let (mut enforced, mut quotas) = (Vec::new(), Vec::new());
        for part in &self.parts {
            match part {
                Part::Limited { mode: Mode::Enforce, hits, .. } => enforced.push(self.denies(*hits)),
                Part::Limited { mode: Mode::Quota, hits, .. } => quotas.push(self.denies(*hits)),
                // A descriptor that is not over its limit keeps the others from refusing the request.
                Part::Limited { mode: Mode::Shadow, .. } | Part::NoLimit | Part::Unlimited
                    if self.quota_mode =>
                {
                    quotas.push(NEVER);
                }
                _ => {}
            }
        }
        if !quotas.is_empty() {
            enforced.push(Expression::And(quotas));
        }
        Some(Expression::Or(enforced))
    }

    fn denies(&self, hits: Hits) -> Expression {
        match hits {
            Hits::Spend(place) if self.spends[place].never_fits() => ALWAYS,
            Hits::Spend(place) => Expression::Charge(place),
            Hits::Blocked { is_over: true } => ALWAYS,
            Hits::Blocked { is_over: false } | Hits::Refund(_) => NEVER,
        }
    }

    /// Returns true if the request is over its limits.
    pub fn is_over_limit(&self, outcome: &DescriptorOutcome) -> bool {
        !self.shadow_mode && !outcome.decision.allowed()
    }

    /// Returns whether each descriptor of the request changed a bucket, in order.
    pub fn changes<'b>(&'b self, outcome: &'b DescriptorOutcome) -> impl Iterator<Item = bool> {
        self.parts.iter().map(|part| match part.hits() {
            // One that was denied took nothing anywhere.
            _ if !outcome.decision.allowed() => false,
            Some(Hits::Spend(place)) => outcome.charges[place].allowed() && !self.spends[place].never_fits(),
            Some(Hits::Refund(place)) => outcome.refunds.get(place).is_some_and(Option::is_some),
            Some(Hits::Blocked { .. }) | None => false,
        })
    }

    /// Returns the answer about each descriptor of the request, in order.
    pub fn statuses<'b>(
        &'b self,
        outcome: &'b DescriptorOutcome,
    ) -> impl Iterator<Item = DescriptorStatus<'b>> {
        self.parts.iter().map(move |part| match part {
            Part::NoLimit => {
                DescriptorStatus { over_limit: false, limit: None, remaining: 0, reset: Nanos::ZERO }
            }
            Part::Unlimited => {
                DescriptorStatus { over_limit: false, limit: None, remaining: u32::MAX, reset: Nanos::ZERO }
            }
            Part::Limited { shown, mode, hits } => {
                let status = self.status(*shown, *hits, outcome);
                DescriptorStatus { over_limit: status.over_limit && *mode != Mode::Shadow, ..status }
            }
        })
    }

    fn bucket(&self, hits: Hits) -> Option<&DescriptorBucket<'a>> {
        match hits {
            Hits::Spend(place) => Some(&self.spends[place]),
            Hits::Refund(place) => Some(&self.refunds[place]),
            Hits::Blocked { .. } => None,
        }
    }

    fn status<'b>(
        &self,
        shown: ShownLimit<'b>,
        hits: Hits,
        outcome: &DescriptorOutcome,
    ) -> DescriptorStatus<'b> {
        let of_bucket = |over_limit: bool, remaining: u64, reset: Nanos| {
            let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
            DescriptorStatus { over_limit, limit: Some(shown), remaining, reset }
        };
        match hits {
            Hits::Spend(place) => {
                let decision = &outcome.charges[place];
                let over_limit = !decision.allowed() || self.spends[place].never_fits();
                let status = of_bucket(over_limit, decision.remaining, decision.reset_nanos);
                // What is left is not known if the store gave no answer.
                let limit = status.limit.filter(|_| decision.verdict != Verdict::AllowUnreachable);
                DescriptorStatus { limit, ..status }
            }
            Hits::Refund(place) => match outcome.refunds.get(place).copied().flatten() {
                Some(refund) => of_bucket(false, refund.remaining, refund.reset_nanos),
                None => DescriptorStatus { over_limit: false, limit: None, remaining: 0, reset: Nanos::ZERO },
            },
            Hits::Blocked { is_over } => {
                let span = shown.unit.span().get().max(1);
                of_bucket(is_over, 0, Nanos::new(span - outcome.now.as_nanos() % span))
            }
        }
    }
}

impl Part<'_> {
    const fn hits(&self) -> Option<Hits> {
        match self {
            Self::NoLimit | Self::Unlimited => None,
            Self::Limited { hits, .. } => Some(*hits),
        }
    }
}

impl DescriptorBucket<'_> {
    const fn limit(&self) -> &Limit {
        match &self.limit {
            BucketLimit::Configured(limit) => limit,
            BucketLimit::Inline(limit, _) => limit.limit(),
        }
    }

    fn cost_max(&self) -> u64 {
        let algorithm = match &self.limit {
            BucketLimit::Configured(limit) => limit.default_algorithm(),
            BucketLimit::Inline(_, numbers) => Some(numbers.algorithm()),
        };
        algorithm.map_or(u64::MAX, |algorithm| algorithm.cost_max())
    }

    fn never_fits(&self) -> bool {
        self.hits > self.cost_max()
    }

    fn spend(&self) -> Charge<'_> {
        if self.never_fits() {
            // In shadow mode it has no vote, also when the store gives no answer.
            let kind = if self.kind == ChargeKind::SpendOnly { self.kind } else { ChargeKind::CheckOnly };
            return self.charge(0).with_kind(kind);
        }
        self.charge(self.hits).with_kind(self.kind)
    }

    fn refund(&self) -> Charge<'_> {
        match &self.limit {
            BucketLimit::Configured(_) => self.charge(self.hits.min(self.cost_max())),
            BucketLimit::Inline(limit, numbers) => limit.refund(numbers, &self.id, self.hits),
        }
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        let charge = match &self.limit {
            BucketLimit::Configured(limit) => Charge::new(limit, &self.id, cost),
            BucketLimit::Inline(limit, numbers) => limit.charge(numbers, &self.id, cost),
        };
        charge.expect("the id is not empty, and the cost can fit")
    }
}

/// The expression that denies whatever comes, and the one that never does.
const ALWAYS: Expression = Expression::And(Vec::new());
const NEVER: Expression = Expression::Or(Vec::new());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Quota;
    use crate::bill::Bill;
    use crate::descriptor::{Descriptor, DescriptorLimit, DescriptorTree};

    const MINUTE: Nanos = RateUnit::Minute.span();

    /// A limit of so many requests in a minute for one key. A limit of zero has nothing that decides.
    fn limited(key: &str, count: u32) -> Descriptor {
        let quota = Quota::new(count.into(), MINUTE.into());
        let limit = |quota| Limit::of_descriptor("shop", &[(key, "")]).with_default(Algorithm::Quota(quota));
        Descriptor {
            shown: Some(DescriptorLimit {
                rate: Some((count, RateUnit::Minute)),
                name: key.into(),
                ..DescriptorLimit::default()
            }),
            limit: quota.ok().map(limit),
            ..Descriptor::new(key, "")
        }
    }

    fn with_shown(descriptor: Descriptor, change: impl Fn(&mut DescriptorLimit)) -> Descriptor {
        let mut shown = descriptor.shown.unwrap();
        change(&mut shown);
        Descriptor { shown: Some(shown), ..descriptor }
    }

    fn policy(quota_mode: bool, shadow_mode: bool) -> Policy {
        let in_quota_mode = |descriptor| with_shown(descriptor, |shown| shown.quota_mode = true);
        let replaces_one = |shown: &mut DescriptorLimit| shown.replaces = vec!["one".into()];
        let free = |shown: &mut DescriptorLimit| {
            shown.rate = None;
            replaces_one(shown);
        };
        let descriptors = vec![
            limited("one", 1),
            Descriptor { detailed_metric: true, ..limited("three", 3) },
            limited("blocked", 0),
            with_shown(limited("soft", 1), |shown| shown.shadow_mode = true),
            in_quota_mode(limited("quota1", 1)),
            in_quota_mode(limited("quota2", 2)),
            in_quota_mode(limited("quota0", 0)),
            with_shown(limited("new", 3), replaces_one),
            Descriptor { limit: None, ..with_shown(limited("free", 1), free) },
        ];
        let mut tree = DescriptorTree { quota_mode, shadow_mode, ..DescriptorTree::default() };
        tree.add_domain("shop", descriptors);
        Policy::default().with_descriptors(tree).unwrap()
    }

    /// Reads a request with an entry in each descriptor: `three=x`, `three=x*2` with two hits, and `three=x*-2` to give
    /// two back.
    fn request(text: &str) -> RateLimitRequest<'_> {
        let descriptors = text.split(' ').map(|word| {
            let (entry, hits) = word.split_once('*').unwrap_or((word, "1"));
            let (key, value) = entry.split_once('=').unwrap();
            RequestDescriptor {
                entries: vec![(key.into(), value.into())],
                limit: None,
                hits_addend: Some(hits.trim_start_matches('-').parse().unwrap()),
                is_negative_hits: hits.starts_with('-'),
            }
        });
        RateLimitRequest { domain: "shop".into(), descriptors: descriptors.collect(), hits_addend: 0 }
    }

    /// A request with numbers of its own in each descriptor.
    fn overridden(
        domain: &'static str,
        limits: &[(&'static str, u32, RateUnit)],
    ) -> RateLimitRequest<'static> {
        let descriptors = limits.iter().map(|(account, requests_per_unit, unit)| RequestDescriptor {
            entries: vec![("account".into(), (*account).into())],
            limit: Some(LimitOverride { requests_per_unit: *requests_per_unit, unit: *unit }),
            ..RequestDescriptor::default()
        });
        RateLimitRequest { domain: domain.into(), descriptors: descriptors.collect(), hits_addend: 0 }
    }

    /// Decides a request by buckets of which so much is used already.
    fn outcome(bill: &DescriptorBill<'_>, used: u64) -> DescriptorOutcome {
        let left = |charge: &Charge<'_>| charge.algorithm().unwrap().cost_max().saturating_sub(used);
        let charges = bill.charges();
        let decide = |charge: &Charge<'_>| match left(charge).checked_sub(charge.cost()) {
            Some(remaining) => Decision::new(Verdict::Allow, remaining, Nanos::ZERO, MINUTE),
            None => Decision::new(Verdict::Deny, left(charge), MINUTE, MINUTE),
        };
        let mut each: Vec<_> = charges.iter().map(decide).collect();
        let decision = match (&*charges, bill.expression()) {
            ([], Some(expression)) if expression.denies(&|_| false) => {
                Decision::UNLIMITED.with_verdict(Verdict::Deny)
            }
            ([], _) => Decision::UNLIMITED,
            (charges, None) => Bill::new(charges).unwrap().answer(&each),
            (charges, Some(expression)) => {
                Bill::new(charges).unwrap().denied_by(&expression).unwrap().answer(&each)
            }
        };
        let decision = bill.deny_hits_that_never_fit(decision, &mut each);
        let refunds = bill.refunds();
        let refunds = refunds.iter().filter(|_| decision.allowed()).map(|charge| {
            assert!(charge.cost() <= charge.algorithm().unwrap().cost_max() || charge.limit().is_inline());
            Some(Refund::new(true, left(charge) + charge.cost(), MINUTE))
        });
        DescriptorOutcome::new(decision, each, refunds.collect(), Timestamp::from_nanos(2 * MINUTE.get() + 7))
    }

    /// Writes an answer: if the request is refused, and what is left for each descriptor, or why nothing is.
    fn answer(bill: &DescriptorBill<'_>, outcome: &DescriptorOutcome) -> String {
        let mut text = String::from(if bill.is_over_limit(outcome) { "refuse" } else { "pass" });
        for status in bill.statuses(outcome) {
            text += if status.over_limit { " over:" } else { " " };
            text += &match status {
                DescriptorStatus { limit: None, remaining: u32::MAX, .. } => "unlimited".to_owned(),
                DescriptorStatus { limit: None, .. } => "none".to_owned(),
                DescriptorStatus { remaining, .. } => remaining.to_string(),
            };
        }
        text
    }

    fn check(policy: &Policy, used: u64, text: &str, expected: &str) {
        let request = request(text);
        let bill = DescriptorBill::new(policy, &request).unwrap();
        assert_eq!(answer(&bill, &outcome(&bill, used)), expected, "{used} used, {text}");
    }

    #[test]
    fn a_descriptor_that_is_over_its_limit_refuses_the_request() {
        let policy = policy(false, false);
        for (used, request, expected) in [
            (0, "three=x", "pass 2"),
            (3, "three=x", "refuse over:0"),
            (0, "three=x*3", "pass 0"),
            (2, "three=x*2", "refuse over:1"),
            (3, "three=x*0", "pass 0"),
            // More hits than a bucket that was never used has.
            (0, "three=x*4", "refuse over:3"),
            (0, "three=x*4 one=x", "refuse over:3 0"),
            // One bucket takes the hits of all its descriptors; other values and other keys have their own.
            (0, "three=x three=x", "pass 1 1"),
            (2, "three=x three=x", "refuse over:1 over:1"),
            (0, "three=x*2 three=x*2", "refuse over:3 over:3"),
            (0, "three=x three=y one=x one=y", "pass 2 2 0 0"),
            (1, "three=x one=x", "refuse 1 over:0"),
            // Nothing is allowed, and there is no bucket.
            (0, "blocked=x", "refuse over:0"),
            (0, "blocked=x*0", "pass 0"),
            (0, "blocked=x*-1", "pass 0"),
            (0, "blocked=x three=x", "refuse over:0 2"),
            (0, "blocked=x*0 three=x", "pass 0 2"),
            // What is given back fills a bucket and no more, and only if nothing refuses.
            (2, "three=x*-1", "pass 2"),
            (3, "three=x*-9", "pass 3"),
            (1, "three=x*-1 three=y", "pass 3 1"),
            (1, "three=x*-1 one=x", "refuse none over:0"),
            (9, "unknown=x", "pass none"),
            (9, "free=x", "pass unlimited"),
            // A limit that another one of the request replaces does not count.
            (1, "one=x new=x", "pass none 1"),
            (1, "one=x free=x", "pass none unlimited"),
            (1, "one=x three=x", "refuse over:0 1"),
        ] {
            check(&policy, used, request, expected);
        }
    }

    #[test]
    fn a_limit_in_shadow_mode_refuses_nothing_and_does_not_say_that_it_is_over() {
        let policy = policy(false, false);
        for (used, request, expected) in [
            (0, "soft=x", "pass 0"),
            (1, "soft=x", "pass 0"),
            (0, "soft=x*9", "pass 1"),
            (1, "soft=x three=x", "pass 0 1"),
            (3, "soft=x three=x", "refuse 0 over:0"),
        ] {
            check(&policy, used, request, expected);
        }
    }

    #[test]
    fn limits_in_quota_mode_refuse_a_request_together() {
        let policy = policy(false, false);
        for (used, request, expected) in [
            (1, "quota1=x", "refuse over:0"),
            (1, "quota1=x quota2=x", "pass over:0 0"),
            (2, "quota1=x quota2=x", "refuse over:0 over:0"),
            (0, "quota1=x*2 quota2=x", "pass over:1 1"),
            (2, "quota1=x*2 quota2=x", "refuse over:0 over:0"),
            (1, "quota0=x quota2=x", "pass over:0 0"),
            (2, "quota0=x quota2=x", "refuse over:0 over:0"),
            (2, "quota0=x*0 quota2=x", "pass 0 over:0"),
            (2, "quota1=x*-1 quota2=x", "pass 1 over:0"),
            // Other limits neither help them nor wait for them.
            (2, "quota1=x quota2=x three=x", "refuse over:0 over:0 0"),
            (2, "quota1=x quota2=x soft=x free=x unknown=x", "refuse over:0 over:0 0 unlimited none"),
            (1, "quota1=x quota2=x one=x", "refuse over:0 0 over:0"),
        ] {
            check(&policy, used, request, expected);
        }
    }

    #[test]
    fn a_tree_in_quota_mode_refuses_a_request_if_all_its_descriptors_are_over() {
        let policy = policy(true, false);
        for (used, request, expected) in [
            (1, "one=x", "refuse over:0"),
            (1, "one=x three=x", "pass over:0 1"),
            (3, "one=x three=x", "refuse over:0 over:0"),
            (3, "one=x soft=x", "pass over:0 0"),
            (3, "three=x free=x", "pass over:0 unlimited"),
            (3, "three=x unknown=x", "pass over:0 none"),
            (3, "free=x unknown=x", "pass unlimited none"),
        ] {
            check(&policy, used, request, expected);
        }
        let limits = [("x", 1, RateUnit::Hour), ("y", 2, RateUnit::Hour)];
        let request = overridden("shop", &limits);
        let bill = DescriptorBill::new(&policy, &request).unwrap();
        assert_eq!(answer(&bill, &outcome(&bill, 1)), "pass over:0 0");
    }

    #[test]
    fn a_tree_in_shadow_mode_refuses_nothing_and_says_what_is_over() {
        let policy = policy(false, true);
        for (used, request, expected) in [
            (3, "three=x", "pass over:0"),
            (0, "three=x*9", "pass over:3"),
            (0, "blocked=x", "pass over:0"),
            (1, "one=x soft=x", "pass over:0 0"),
        ] {
            check(&policy, used, request, expected);
        }
    }

    #[test]
    fn a_request_that_any_charge_denies_has_no_expression() {
        let policy = policy(false, false);
        for text in ["three=x", "three=x one=y", "three=x soft=x free=x unknown=x"] {
            let request = request(text);
            assert_eq!(DescriptorBill::new(&policy, &request).unwrap().expression(), None, "{text}");
        }
    }

    #[test]
    fn each_bucket_is_one_charge_with_its_id_its_hits_and_its_name_for_metrics() {
        let policy = policy(false, false);
        let request = request("three=x one=x*-2 three=x soft=x*9 blocked=x unknown=x three=y*4");
        let bill = DescriptorBill::new(&policy, &request).unwrap();
        let charges = bill.charges();
        let charges = charges.iter().map(|charge| (charge.limit().name(), charge.cost(), charge.kind()));
        let expected = [
            ("envoy/shop/three", 2, ChargeKind::Spend),
            ("envoy/shop/soft", 0, ChargeKind::SpendOnly),
            ("envoy/shop/three", 0, ChargeKind::CheckOnly),
        ];
        assert_eq!(charges.collect::<Vec<_>>(), expected, "hits that never fit only look");
        assert_eq!(bill.hits().collect::<Vec<_>>(), [2, 9, 4]);
        assert_eq!(bill.metrics().collect::<Vec<_>>(), [Some("three=x"), None, Some("three=y")]);
        let [x, y] = [Some(&b"x"[..]), Some(&b"y"[..])];
        assert_eq!(bill.bucket_ids().collect::<Vec<_>>(), [x, x, x, x, None, None, y]);
    }

    #[test]
    fn hits_that_never_fit_deny_for_ever_and_name_their_charge() {
        let (minute, forever) = (MINUTE, Nanos::FOREVER);
        let policy = policy(false, false);
        for (used, text, each, (charge, retry)) in [
            (0, "three=x one=x*4", &[None, Some(forever)][..], (1, forever)),
            (0, "soft=x*4 one=x*4", &[Some(forever), Some(forever)], (1, forever)),
            (1, "three=x*4 one=x", &[Some(forever), Some(minute)], (0, forever)),
            // Two that are in quota mode wait for the first that fits.
            (2, "quota1=x*2 quota2=x", &[Some(forever), Some(minute)], (1, minute)),
            (0, "quota1=x*2 quota2=x", &[Some(forever), None], (1, Nanos::ZERO)),
        ] {
            let request = request(text);
            let bill = DescriptorBill::new(&policy, &request).unwrap();
            let outcome = outcome(&bill, used);
            let denied = |one: &Decision| (!one.allowed()).then_some(one.retry_nanos);
            assert_eq!(outcome.charges.iter().map(denied).collect::<Vec<_>>(), each, "{text}");
            assert_eq!((outcome.decision.charge, outcome.decision.retry_nanos), (charge, retry), "{text}");
        }
    }

    #[test]
    fn a_bucket_is_changed_by_what_it_took_or_got_back() {
        let policy = policy(false, false);
        for (used, text, expected) in [
            (1, "three=x one=y*-1 soft=x blocked=x*0 unknown=x", &[true, true, false, false, false][..]),
            (0, "soft=x soft=y*2", &[true, false]),
            (1, "three=x one=x three=y*-1", &[false, false, false]),
        ] {
            let request = request(text);
            let bill = DescriptorBill::new(&policy, &request).unwrap();
            let outcome = outcome(&bill, used);
            assert_eq!(bill.changes(&outcome).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_left_is_not_known_without_an_answer_of_the_store() {
        let (policy, request) = (policy(false, false), request("three=x one=x*-1"));
        let bill = DescriptorBill::new(&policy, &request).unwrap();
        let unreachable = Decision::UNLIMITED.with_verdict(Verdict::AllowUnreachable);
        let outcome = DescriptorOutcome::new(unreachable, vec![unreachable], vec![None], Timestamp::EPOCH);
        assert!(bill.statuses(&outcome).all(|status| !status.over_limit && status.limit.is_none()));
        assert_eq!(bill.changes(&outcome).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_limit_of_zero_is_reset_with_the_unit_of_time() {
        let (policy, request) = (policy(false, false), request("blocked=x three=x"));
        let bill = DescriptorBill::new(&policy, &request).unwrap();
        let outcome = outcome(&bill, 0);
        let reset: Vec<_> = bill.statuses(&outcome).map(|status| status.reset).collect();
        assert_eq!(reset, [Nanos::new(MINUTE.get() - 7), MINUTE]);
    }

    #[test]
    fn numbers_of_a_request_are_counted_in_windows_by_domain_unit_and_entries() {
        let (hour, day) = (RateUnit::Hour, RateUnit::Day);
        let policy = policy(false, false);
        let ask = |domain, limits: &[_], used| {
            let request = overridden(domain, limits);
            let bill = DescriptorBill::new(&policy, &request).unwrap();
            answer(&bill, &outcome(&bill, used))
        };
        for (domain, limits, used, expected) in [
            ("shop", &[("x", 5, hour)][..], 1, "pass 3"),
            ("shop", &[("x", 1, hour)], 1, "refuse over:0"),
            ("shop", &[("x", 0, hour)], 0, "refuse over:0"),
            ("nowhere", &[("x", 1, hour)], 1, "pass none"),
            ("shop", &[("x", 5, hour), ("x", 5, day), ("y", 5, hour)], 0, "pass 4 4 4"),
            // Of two numbers for one bucket the strictest hold, in whatever order they come.
            ("shop", &[("x", 5, hour), ("x", 2, hour)], 0, "pass 0 0"),
            ("shop", &[("x", 2, hour), ("x", 5, hour)], 0, "pass 0 0"),
        ] {
            assert_eq!(ask(domain, limits, used), expected, "{domain} {limits:?}");
        }
        let request = overridden("shop", &[("x", 5, hour)]);
        let bill = DescriptorBill::new(&policy, &request).unwrap();
        assert_eq!(bill.bucket_ids().collect::<Vec<_>>(), [Some(&b"shop|HOUR|account=x"[..])]);
        let shown = ShownLimit { requests_per_unit: 5, unit: hour, name: "" };
        assert_eq!(bill.statuses(&outcome(&bill, 0)).next().unwrap().limit, Some(shown));
    }
}
