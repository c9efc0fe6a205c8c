//! Descriptors: the limits of Envoy's rate limit service, as a tree of keys and values for each domain.
//!
//! ```
//! use tollway_core::algorithm::{Algorithm, Quota};
//! use tollway_core::descriptor::{Descriptor, DescriptorLimit, DescriptorTree, RateUnit};
//! use tollway_core::{Limit, Policy};
//!
//! let numbers = Algorithm::Quota(Quota::new(3, RateUnit::Minute.span().into())?);
//! let account = Descriptor {
//!     shown: Some(DescriptorLimit { rate: Some((3, RateUnit::Minute)), ..DescriptorLimit::default() }),
//!     limit: Some(Limit::of_descriptor("shop", &[("account", "")]).with_default(numbers)),
//!     ..Descriptor::new("account", "")
//! };
//! let mut tree = DescriptorTree::default();
//! tree.add_domain("shop", vec![account]);
//! let policy = Policy::default().with_descriptors(tree)?;
//!
//! let entries = [("account".into(), "alice".into())];
//! let found = policy.descriptors().find("shop", &entries).unwrap();
//! assert_eq!((found.place, &*found.id), (Some(0), &b"alice"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A request has descriptors, and a descriptor has entries: pairs of a key and a value. Each entry leads one level
//! deeper into the tree: by its key and value, else by a pattern, else by its key alone. The limit that the last entry
//! leads to is an ordinary [`Limit`], and its id is made of the values.

mod bill;
mod request;
mod wildcard;

use std::borrow::Cow;
use std::collections::HashMap;

use crate::inline_limit::InlineLimit;
use crate::limit::Limit;
use crate::policy::NameHash;
use crate::time::Nanos;
use wildcard::Wildcard;

pub use bill::{DescriptorBill, DescriptorOutcome, DescriptorStatus, ShownLimit};
pub use request::{ENTRIES_MAX, LimitOverride, RateLimitRequest, RateLimitRequestError, RequestDescriptor};

/// The byte between the values in an id.
const SEPARATOR: u8 = b'|';

/// The most bytes of a value of a request that a label of a metric has.
pub const METRIC_VALUE_MAX: usize = 64;

/// All descriptors of a policy, found by domain and entries.
#[derive(Clone, Debug, Default)]
pub struct DescriptorTree {
    domains: HashMap<Box<str>, Level, NameHash>,
    /// The limits of the descriptors, until a policy takes them.
    limits: Vec<Limit>,
    /// The index of their first limit among the limits of the policy.
    first: usize,
    /// The limit of descriptors that bring numbers of their own; `None` if there is no domain.
    overrides: Option<InlineLimit>,
    /// True if a limit replaces others.
    has_replacements: bool,
    /// True if a request is refused only if all its descriptors are over their limits.
    pub quota_mode: bool,
    /// True if no request is refused. The answers say which descriptors are over their limits.
    pub shadow_mode: bool,
}

/// A descriptor as it is configured.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The key of the entries that it is for.
    pub key: Box<str>,
    /// The value of the entries that it is for. A `*` stands for any text; an empty value stands for every value that
    /// nothing else matches.
    pub value: Box<str>,
    /// True if all values that match a pattern have one bucket. By default each value has its own.
    pub shares_threshold: bool,
    /// True if the decisions of its limit are also counted by the values of all entries of a request.
    pub detailed_metric: bool,
    /// True if the decisions of its limit, and of those below it, are also counted by the value of its own entry.
    pub value_to_metric: bool,
    /// The limit of requests whose last entry leads here, as answers show it.
    pub shown: Option<DescriptorLimit>,
    /// The limit that decides; `None` if they are unlimited or if the limit is zero.
    pub limit: Option<Limit>,
    /// The descriptors for the next entry.
    pub descriptors: Vec<Descriptor>,
}

impl Descriptor {
    /// Makes a descriptor without a limit.
    pub fn new(key: &str, value: &str) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            shares_threshold: false,
            detailed_metric: false,
            value_to_metric: false,
            shown: None,
            limit: None,
            descriptors: Vec::new(),
        }
    }
}

/// The limit of a descriptor as answers show it, and what becomes of a request that is over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The number of requests in a unit; `None` means unlimited.
    pub rate: Option<(u32, RateUnit)>,
    /// The name that answers show and that others replace; it may be empty.
    pub name: Box<str>,
    /// The names of limits that do not count in a request that has this one.
    pub replaces: Vec<Box<str>>,
    /// True if it never refuses a request. The request is counted nevertheless.
    pub shadow_mode: bool,
    /// True if it refuses a request only if all others in this mode do.
    pub quota_mode: bool,
}

/// A unit of time in which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days. The first week began with the year 1970, on a Thursday.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
    /// Any other span, which Envoy has no name for.
    Span(Nanos),
}

impl RateUnit {
    /// The units that have a name.
    pub const NAMED: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the length of the unit.
    pub const fn span(self) -> Nanos {
        const DAY: u64 = 86_400;
        match self {
            Self::Second => Nanos::from_secs(1),
            Self::Minute => Nanos::from_secs(60),
            Self::Hour => Nanos::from_secs(3_600),
            Self::Day => Nanos::from_secs(DAY),
            Self::Week => Nanos::from_secs(7 * DAY),
            Self::Month => Nanos::from_secs(30 * DAY),
            Self::Year => Nanos::from_secs(365 * DAY),
            Self::Span(span) => span,
        }
    }

    /// Returns the name that Envoy has for the unit, or `UNKNOWN`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
            Self::Span(_) => "UNKNOWN",
        }
    }

    /// Returns the unit that has this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

/// The descriptors that one entry can lead to.
#[derive(Clone, Debug, Default)]
struct Level {
    keys: HashMap<Box<str>, Branch, NameHash>,
    /// The number of descriptors that were added.
    count: usize,
}

/// The descriptors of one key.
#[derive(Clone, Debug, Default)]
struct Branch {
    exact: HashMap<Box<str>, Node, NameHash>,
    /// The patterns, in the order of the file.
    wildcards: Vec<(Wildcard, Node)>,
    any: Option<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    shown: Option<DescriptorLimit>,
    /// The place of its limit among the limits of the tree.
    place: Option<usize>,
    /// The pattern that stands for the values in ids, if they share one bucket.
    shared_value: Option<Box<str>>,
    detailed_metric: bool,
    value_to_metric: bool,
    /// The number of descriptors before it at the same place of the file.
    order: usize,
    next: Level,
}

/// The part of a branch that an entry matched.
#[derive(Clone, Copy, Debug)]
enum MatchedBy<'a> {
    Value,
    Pattern(&'a Wildcard),
    KeyAlone,
}

/// The limit that the entries of a request lead to.
#[derive(Clone, Debug)]
pub struct FoundDescriptor<'a> {
    /// The limit as answers show it.
    pub shown: &'a DescriptorLimit,
    /// The index of the limit that decides among the limits of the policy; `None` if requests are unlimited or if the
    /// limit is zero.
    pub place: Option<usize>,
    /// The id under that limit.
    pub id: Cow<'a, [u8]>,
    /// The name under which its decisions are counted by values, such as `route=login/ip=10.0.0.1`, if they are.
    pub metric: Option<String>,
}

/// A descriptor of a tree, for those who print it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedDescriptor<'a> {
    /// The number of descriptors above it.
    pub depth: usize,
    /// The key of the entries that it is for.
    pub key: &'a str,
    /// The value or the pattern of the entries that it is for; it is empty if it is for every other value.
    pub value: Cow<'a, str>,
    /// The limit of requests whose last entry leads here, as answers show it.
    pub shown: Option<&'a DescriptorLimit>,
    /// The index of the limit that decides among the limits of the policy.
    pub place: Option<usize>,
    /// True if all values that match its pattern have one bucket.
    pub shares_threshold: bool,
    /// True if the decisions of its limit are also counted by the values of all entries of a request.
    pub detailed_metric: bool,
    /// True if the decisions of its limit, and of those below it, are also counted by the value of its own entry.
    pub value_to_metric: bool,
}

impl DescriptorTree {
    /// Adds the descriptors of a domain to those that it has already.
    pub fn add_domain(&mut self, name: &str, descriptors: Vec<Descriptor>) {
        self.overrides.get_or_insert_with(|| InlineLimit::new("envoy").expect("this is a name"));
        let level = self.domains.entry(name.into()).or_default();
        let replaces = |shown: &DescriptorLimit| !shown.replaces.is_empty();
        self.has_replacements |= descriptors.iter().any(|descriptor| descriptor.any_shown(&replaces));
        level.add(descriptors, &mut self.limits);
    }

    /// Returns the limit of descriptors that bring numbers of their own, or `None` if there is no domain.
    pub const fn overrides(&self) -> Option<&InlineLimit> {
        self.overrides.as_ref()
    }

    /// Returns true if no domain is configured.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Returns true if a domain has this name.
    pub fn has_domain(&self, name: &str) -> bool {
        self.domains.contains_key(name)
    }

    /// Returns the names of the domains, in no order.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.keys().map(|name| &**name)
    }

    /// Returns the descriptors of a domain in the order of their file, each before those below it.
    pub fn list(&self, domain: &str) -> Vec<ListedDescriptor<'_>> {
        let mut listed = Vec::new();
        if let Some(level) = self.domains.get(domain) {
            level.list(0, self.first, &mut listed);
        }
        listed
    }

    /// Moves the limits out, to the end of those of a policy.
    pub(crate) fn move_limits_to(&mut self, limits: &mut Vec<Limit>) {
        self.first = limits.len();
        limits.append(&mut self.limits);
    }

    /// Returns the limit that these entries lead to, if they lead to one.
    pub fn find<'a>(
        &'a self,
        domain: &str,
        entries: &'a [(Cow<'_, str>, Cow<'_, str>)],
    ) -> Option<FoundDescriptor<'a>> {
        let (last, before) = entries.split_last()?;
        let domain = self.domains.get(domain)?;
        let (mut level, mut id, mut has_metric) = (domain, IdBuilder::default(), false);
        for entry in before {
            let node = level.node(entry)?.0;
            id.push(node.shared_value.as_deref().unwrap_or(&entry.1));
            has_metric |= node.value_to_metric;
            level = &node.next;
        }
        let node = level.node(last)?.0;
        id.push(node.shared_value.as_deref().unwrap_or(&last.1));
        has_metric |= node.value_to_metric || node.detailed_metric;
        Some(FoundDescriptor {
            shown: node.shown.as_ref()?,
            place: node.place.map(|place| self.first + place),
            id: id.finish(),
            metric: has_metric.then(|| domain.metric(entries, node.detailed_metric)),
        })
    }
}

impl Descriptor {
    /// Returns true if a limit of this descriptor or of one below it is as `is` says.
    fn any_shown(&self, is: &impl Fn(&DescriptorLimit) -> bool) -> bool {
        self.shown.as_ref().is_some_and(is) || self.descriptors.iter().any(|below| below.any_shown(is))
    }
}

impl Level {
    fn add(&mut self, descriptors: Vec<Descriptor>, limits: &mut Vec<Limit>) {
        for descriptor in descriptors {
            let Descriptor { key, value, shares_threshold, detailed_metric, value_to_metric, .. } =
                descriptor;
            let place = descriptor.limit.map(|limit| {
                limits.push(limit);
                limits.len() - 1
            });
            let mut next = Self::default();
            next.add(descriptor.descriptors, limits);
            let order = self.count;
            self.count += 1;
            let shared_value = shares_threshold.then(|| value.clone());
            let shown = descriptor.shown;
            let node = Node { shown, place, shared_value, detailed_metric, value_to_metric, order, next };
            let branch = self.keys.entry(key).or_default();
            if value.is_empty() {
                branch.any = Some(node);
            } else if value.contains('*') {
                branch.wildcards.push((Wildcard::new(&value), node));
            } else {
                branch.exact.insert(value, node);
            }
        }
    }

    /// Returns the node that an entry leads to, and what it matched.
    fn node(&self, (key, value): &(Cow<'_, str>, Cow<'_, str>)) -> Option<(&Node, MatchedBy<'_>)> {
        let branch = self.keys.get(&**key)?;
        if let Some(node) = branch.exact.get(&**value) {
            return Some((node, MatchedBy::Value));
        }
        let pattern = branch.wildcards.iter().find(|(pattern, _)| pattern.matches(value));
        match pattern {
            Some((pattern, node)) => Some((node, MatchedBy::Pattern(pattern))),
            None => branch.any.as_ref().map(|node| (node, MatchedBy::KeyAlone)),
        }
    }

    /// Returns the name under which requests with these entries are counted, with the values that are to be in it. Each
    /// entry leads to a node.
    fn metric(&self, entries: &[(Cow<'_, str>, Cow<'_, str>)], has_all_values: bool) -> String {
        let (mut name, mut level) = (Vec::new(), self);
        for entry in entries {
            let Some((node, matched_by)) = level.node(entry) else { break };
            let value = match (node.shared_value.as_deref(), matched_by) {
                (Some(shared), _) => Some(Cow::Borrowed(shared)),
                (None, MatchedBy::Value) => Some(Cow::Borrowed(&*entry.1)),
                _ if has_all_values || node.value_to_metric => Some(Cow::Borrowed(&*entry.1)),
                (None, MatchedBy::Pattern(pattern)) => Some(Cow::Owned(pattern.to_string())),
                (None, MatchedBy::KeyAlone) => None,
            };
            let value = value.as_deref().map(|value| &value[..value.floor_char_boundary(METRIC_VALUE_MAX)]);
            push_entry(&entry.0, value, &mut name);
            level = &node.next;
        }
        name_text(name)
    }

    fn list<'a>(&'a self, depth: usize, first: usize, listed: &mut Vec<ListedDescriptor<'a>>) {
        let mut nodes: Vec<(&str, Cow<'_, str>, &Node)> = Vec::new();
        for (key, Branch { exact, wildcards, any }) in &self.keys {
            nodes.extend(exact.iter().map(|(value, node)| (&**key, Cow::Borrowed(&**value), node)));
            nodes.extend(wildcards.iter().map(|(value, node)| (&**key, value.to_string().into(), node)));
            nodes.extend(any.iter().map(|node| (&**key, Cow::Borrowed(""), node)));
        }
        nodes.sort_by_key(|(_, _, node)| node.order);
        for (key, value, node) in nodes {
            listed.push(ListedDescriptor {
                depth,
                key,
                value,
                shown: node.shown.as_ref(),
                place: node.place.map(|place| first + place),
                shares_threshold: node.shared_value.is_some(),
                detailed_metric: node.detailed_metric,
                value_to_metric: node.value_to_metric,
            });
            node.next.list(depth + 1, first, listed);
        }
    }
}

/// Joins values into an id so that no two lists of values have the same one. One value, as is usual, is its own id.
#[derive(Default)]
struct IdBuilder<'a> {
    id: Cow<'a, [u8]>,
    values: usize,
}

impl<'a> IdBuilder<'a> {
    fn push(&mut self, value: &'a str) {
        let is_plain = |byte: u8| !matches!(byte, b'%' | SEPARATOR);
        self.values += 1;
        if self.values == 1 && value.bytes().all(is_plain) {
            self.id = Cow::Borrowed(value.as_bytes());
            return;
        }
        let id = self.id.to_mut();
        if self.values > 1 {
            id.push(SEPARATOR);
        }
        escape_into(value.as_bytes(), is_plain, id);
    }

    fn finish(self) -> Cow<'a, [u8]> {
        // An id must not be empty. No other id is a `%` alone, because one in a value is escaped.
        if self.id.is_empty() { Cow::Borrowed(b"%") } else { self.id }
    }
}

/// Returns the id under the inline limit of a descriptor that brings numbers of its own: `shop|HOUR|account=alice`. All
/// domains have one inline limit, so the domain is a part of it. What was counted in hours says nothing about days, so
/// the unit is a part of it, too.
fn override_id(domain: &str, unit: RateUnit, entries: &[(Cow<'_, str>, Cow<'_, str>)]) -> Vec<u8> {
    let is_plain = |byte: u8| !matches!(byte, b'%' | b'=' | SEPARATOR);
    let mut id = Vec::new();
    escape_into(domain.as_bytes(), is_plain, &mut id);
    id.push(SEPARATOR);
    id.extend_from_slice(unit.name().as_bytes());
    for (key, value) in entries {
        id.push(SEPARATOR);
        escape_into(key.as_bytes(), is_plain, &mut id);
        id.push(b'=');
        escape_into(value.as_bytes(), is_plain, &mut id);
    }
    id
}

/// Appends bytes, those that are not plain as `%7C`.
fn escape_into(bytes: &[u8], is_plain: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    for byte in bytes {
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Returns true if names of limits and of metrics have this byte as it is.
const fn is_plain_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~' | b'*')
}

/// The start of the names that [`limit_name`] makes.
const LIMIT_PREFIX: &str = "envoy/";

/// Returns whether a limit of this name is made from a descriptor. Nobody else can choose such a name: a configured
/// name has no slash.
pub fn is_descriptor_limit(name: &str) -> bool {
    name.starts_with(LIMIT_PREFIX)
}

/// Returns the name of the limit at a place in the tree: `envoy/shop/route=login/ip`.
pub(crate) fn limit_name<'a>(domain: &str, path: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    let mut name = LIMIT_PREFIX.as_bytes().to_vec();
    escape_into(domain.as_bytes(), is_plain_in_name, &mut name);
    for (key, value) in path {
        push_entry(key, (!value.is_empty()).then_some(*value), &mut name);
    }
    name_text(name)
}

/// Appends an entry to the name of a limit or of a metric: `/route=login`, or `/ip` without a value.
fn push_entry(key: &str, value: Option<&str>, name: &mut Vec<u8>) {
    if !name.is_empty() {
        name.push(b'/');
    }
    escape_into(key.as_bytes(), is_plain_in_name, name);
    if let Some(value) = value {
        name.push(b'=');
        escape_into(value.as_bytes(), is_plain_in_name, name);
    }
}

fn name_text(name: Vec<u8>) -> String {
    String::from_utf8(name).expect("everything but ASCII is escaped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn id(values: &[&str]) -> Vec<u8> {
        let mut id = IdBuilder::default();
        values.iter().for_each(|value| id.push(value));
        id.finish().into_owned()
    }

    #[test]
    fn no_two_lists_of_values_have_one_id() {
        let lists: [&[&str]; 15] = [
            &["a"],
            &["a", "b"],
            &["a|b"],
            &["a", ""],
            &["", "a"],
            &["", ""],
            &[""],
            &["%"],
            &["|"],
            &["%7C"],
            &["a%7Cb"],
            &["a", "", "b"],
            &["a|", "b"],
            &["a", "|b"],
            &["", "a|b"],
        ];
        let ids: std::collections::HashSet<_> = lists.iter().map(|values| id(values)).collect();
        assert_eq!(ids.len(), lists.len(), "{ids:?}");
        assert!(ids.iter().all(|id| !id.is_empty()));
        assert_eq!(id(&["login", "192.0.2.1"]), b"login|192.0.2.1");
    }

    #[test]
    fn a_limit_is_named_after_its_place() {
        assert_eq!(limit_name("shop", &[("route", "login"), ("ip", "")]), "envoy/shop/route=login/ip");
        assert_eq!(limit_name("a/b", &[("path", "/x:{*}")]), "envoy/a%2Fb/path=%2Fx%3A%7B*%7D");
    }

    #[test]
    fn units_are_named_in_any_case_and_have_fixed_lengths() {
        let days = RateUnit::NAMED.map(|unit| (unit.name(), unit.span().get() / RateUnit::Day.span().get()));
        assert_eq!(days[3..], [("DAY", 1), ("WEEK", 7), ("MONTH", 30), ("YEAR", 365)]);
        let seconds = [RateUnit::Second, RateUnit::Minute, RateUnit::Hour, RateUnit::Day].map(RateUnit::span);
        assert_eq!(seconds, [1, 60, 3_600, 86_400].map(Nanos::from_secs));
        assert_eq!([RateUnit::named("WEEK"), RateUnit::named("week")], [Some(RateUnit::Week); 2]);
        assert_eq!([RateUnit::named("fortnight"), RateUnit::named("UNKNOWN")], [None; 2]);
    }

    fn shown(key: &str, value: &str, descriptors: Vec<Descriptor>) -> Descriptor {
        Descriptor { shown: Some(DescriptorLimit::default()), descriptors, ..Descriptor::new(key, value) }
    }

    fn limited(key: &str, value: &str, descriptors: Vec<Descriptor>) -> Descriptor {
        let limit = Some(Limit::of_descriptor("shop", &[(key, value)]));
        Descriptor { limit, ..shown(key, value, descriptors) }
    }

    fn policy(descriptors: Vec<Descriptor>) -> Policy {
        let mut tree = DescriptorTree::default();
        tree.add_domain("shop", descriptors);
        let limits = ["A", "B"].map(|name| Limit::new(name).unwrap()).to_vec();
        Policy::new(limits).unwrap().with_descriptors(tree).unwrap()
    }

    #[test]
    fn descriptors_are_listed_in_the_order_of_their_file_each_before_those_below_it() {
        let shared = Descriptor { shares_threshold: true, ..limited("path", "/a*", Vec::new()) };
        let below = vec![limited("ip", "", Vec::new()), Descriptor::new("agent", "bot")];
        let policy =
            policy(vec![limited("route", "login", below), shared, limited("account", "", Vec::new())]);
        let tree = policy.descriptors();
        let listed = tree.list("shop");
        let listed =
            listed.iter().map(|one| (one.depth, one.key, &*one.value, one.place, one.shares_threshold));
        let expected = [
            (0, "route", "login", Some(2), false),
            (1, "ip", "", Some(3), false),
            (1, "agent", "bot", None, false),
            (0, "path", "/a*", Some(4), true),
            (0, "account", "", Some(5), false),
        ];
        assert_eq!(listed.collect::<Vec<_>>(), expected);
        assert!(tree.list("other").is_empty() && tree.has_domain("shop") && !tree.has_domain("other"));
        assert_eq!(tree.domains().collect::<Vec<_>>(), ["shop"]);
        assert!(!tree.is_empty() && DescriptorTree::default().is_empty());
        let is_of_descriptor = policy.limits().iter().map(|limit| is_descriptor_limit(limit.name()));
        assert_eq!(is_of_descriptor.collect::<Vec<_>>(), [false, false, true, true, true, true]);
        assert_eq!(policy.limit("envoy/shop/account").map(Limit::index), Some(5));
    }

    #[test]
    fn decisions_are_counted_by_the_values_that_are_wanted() {
        let valued = |descriptor| Descriptor { value_to_metric: true, ..descriptor };
        let detailed = |descriptor| Descriptor { detailed_metric: true, ..descriptor };
        let ip = || vec![shown("ip", "", Vec::new())];
        let policy = policy(vec![
            shown("plain", "", ip()),
            shown("pattern", "v*", vec![valued(shown("ip", "", Vec::new()))]),
            valued(shown("valued", "v*", ip())),
            shown("detailed", "v*", vec![detailed(shown("ip", "", Vec::new()))]),
            Descriptor { shares_threshold: true, ..detailed(shown("shared", "v*", ip())) },
            shown("exact", "v1", vec![valued(shown("ip", "", Vec::new()))]),
        ]);
        for (key, expected) in [
            ("plain", [None, None]),
            ("pattern", [None, Some("pattern=v*/ip=10.0.0.1")]),
            ("valued", [Some("valued=v1"), Some("valued=v1/ip")]),
            ("detailed", [None, Some("detailed=v1/ip=10.0.0.1")]),
            ("shared", [Some("shared=v*"), None]),
            ("exact", [None, Some("exact=v1/ip=10.0.0.1")]),
        ] {
            let entries = [(key.into(), "v1".into()), ("ip".into(), "10.0.0.1".into())];
            let metric = |count| policy.descriptors().find("shop", &entries[..count]).unwrap().metric;
            assert_eq!([metric(1), metric(2)], expected.map(|name| name.map(str::to_owned)), "{key}");
        }
        let long = [("detailed".into(), format!("v{}", "é".repeat(50)).into()), ("ip".into(), "".into())];
        let metric = policy.descriptors().find("shop", &long).unwrap().metric.unwrap();
        assert_eq!(
            metric,
            format!("detailed=v{}/ip=", "%C3%A9".repeat(31)),
            "a value is cut between letters"
        );
    }

    #[test]
    fn a_tree_knows_if_a_limit_in_it_replaces_others() {
        let replacing = || {
            let shown = DescriptorLimit { replaces: vec!["old".into()], ..DescriptorLimit::default() };
            Descriptor { shown: Some(shown), ..Descriptor::new("new", "") }
        };
        let old = || shown("old", "", Vec::new());
        for (descriptors, expected) in [
            (vec![old()], false),
            (vec![replacing()], true),
            (vec![old(), Descriptor { descriptors: vec![replacing()], ..old() }], true),
        ] {
            assert_eq!(policy(descriptors).descriptors().has_replacements, expected);
        }
    }
}
