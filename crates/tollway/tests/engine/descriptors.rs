//! The tree of descriptors, held against a search through the list as it is configured.

use std::borrow::Cow;

use proptest::prelude::*;
use tollway_core::algorithm::{Algorithm, Quota};
use tollway_core::descriptor::{Descriptor, DescriptorLimit, DescriptorTree, RateUnit};
use tollway_core::{Limit, Policy};

type Entry = (Cow<'static, str>, Cow<'static, str>);

/// Makes descriptors of a few keys and values, so that many match.
fn descriptors(depth: u32) -> impl Strategy<Value = Vec<Descriptor>> {
    let parts = ("[ab]", "|a|b|ab|\\*|a\\*|\\*b|a\\*b", any::<bool>(), any::<bool>());
    let leaf = parts.prop_map(|(key, value, is_limited, shares)| Descriptor {
        shares_threshold: shares && value.contains('*'),
        shown: is_limited.then(DescriptorLimit::default),
        ..Descriptor::new(&key, &value)
    });
    let leaves = proptest::collection::vec(leaf, 0..5);
    leaves.prop_recursive(depth, 20, 5, |inner| {
        let parts = ("[ab]", "|a|b|\\*|a\\*", any::<bool>(), inner);
        let node = parts.prop_map(|(key, value, is_limited, descriptors)| Descriptor {
            shown: is_limited.then(DescriptorLimit::default),
            descriptors,
            ..Descriptor::new(&key, &value)
        });
        proptest::collection::vec(node, 0..5)
    })
}

/// Removes what a file cannot have: the same key and value twice. Numbers the limits, so that they can be told apart.
fn distinct(descriptors: Vec<Descriptor>, next: &mut u32) -> Vec<Descriptor> {
    let mut kept: Vec<Descriptor> = Vec::new();
    for mut descriptor in descriptors {
        if kept.iter().any(|other| (&other.key, &other.value) == (&descriptor.key, &descriptor.value)) {
            continue;
        }
        *next += 1;
        if let Some(shown) = &mut descriptor.shown {
            shown.rate = Some((*next, RateUnit::Minute));
        }
        descriptor.descriptors = distinct(descriptor.descriptors, next);
        kept.push(descriptor);
    }
    kept
}

/// Finds the limit and the values of its id as the rules have it: the value, then patterns in order, then the key.
fn naive<'a>(descriptors: &'a [Descriptor], entries: &[Entry]) -> Option<(u32, Vec<&'a str>)> {
    let ((key, value), rest) = entries.split_first()?;
    let of_key = || descriptors.iter().filter(|descriptor| *descriptor.key == **key);
    let exact = of_key().find(|descriptor| {
        *descriptor.value == **value && !descriptor.value.is_empty() && !value.contains('*')
    });
    let wildcard = || {
        of_key().find(|descriptor| {
            descriptor.value.contains('*') && matches(descriptor.value.as_bytes(), value.as_bytes())
        })
    };
    let found =
        exact.or_else(wildcard).or_else(|| of_key().find(|descriptor| descriptor.value.is_empty()))?;
    let own: &str =
        if found.shares_threshold { &found.value } else { Box::leak(value.to_string().into_boxed_str()) };
    if rest.is_empty() {
        return Some((found.shown.as_ref()?.rate?.0, vec![own]));
    }
    let (limit, mut values) = naive(&found.descriptors, rest)?;
    values.insert(0, own);
    Some((limit, values))
}

fn matches(pattern: &[u8], value: &[u8]) -> bool {
    match pattern {
        [] => value.is_empty(),
        [b'*', rest @ ..] => (0..=value.len()).any(|skipped| matches(rest, &value[skipped..])),
        [byte, rest @ ..] => value.first() == Some(byte) && matches(rest, &value[1..]),
    }
}

proptest! {
    #[test]
    fn the_tree_finds_what_a_search_finds(
        configured in descriptors(2),
        entries in proptest::collection::vec(("[ab]", "[ab]{0,3}"), 0..4),
    ) {
        let configured = distinct(configured, &mut 0);
        let mut tree = DescriptorTree::default();
        tree.add_domain("d", configured.clone());
        let entries: Vec<Entry> = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let found = tree.find("d", &entries);
        let found = found.map(|found| (found.shown.rate.unwrap().0, String::from_utf8(found.id.into_owned()).unwrap()));
        let id = |values: Vec<&str>| if values == [""] { "%".to_owned() } else { values.join("|") };
        prop_assert_eq!(found, naive(&configured, &entries).map(|(limit, values)| (limit, id(values))));
        prop_assert!(tree.find("other", &entries).is_none());
    }
}

#[test]
fn limits_of_descriptors_follow_those_of_the_policy() {
    let limit = |name| Limit::new(name).unwrap();
    let numbers = Algorithm::Quota(Quota::new(3, RateUnit::Minute.span().into()).unwrap());
    let descriptor = Descriptor {
        shown: Some(DescriptorLimit { rate: Some((3, RateUnit::Minute)), ..DescriptorLimit::default() }),
        limit: Some(Limit::of_descriptor("d", &[("k", "")]).with_default(numbers)),
        ..Descriptor::new("k", "")
    };
    let mut tree = DescriptorTree::default();
    tree.add_domain("d", vec![descriptor]);
    let policy = Policy::new(vec![limit("A"), limit("B")]).unwrap().with_descriptors(tree).unwrap();
    let entries = [("k".into(), "v".into())];
    let found = policy.descriptors().find("d", &entries).unwrap();
    assert_eq!(found.place, Some(2));
    assert_eq!((policy.limits()[2].name(), policy.limits()[2].index()), ("envoy/d/k", 2));
    assert_eq!(policy.limit("envoy/d/k").unwrap().index(), 2);
}
