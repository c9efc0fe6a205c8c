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
