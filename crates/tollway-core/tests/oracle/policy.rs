//! Policies: what a name and an id come to, and which limits cannot stand beside each other.

use std::time::Duration;

use tollway_core::algorithm::{Algorithm, Quota, SmoothedRate, TokenBucket};
use tollway_core::{ChargeError, IdError, IdFormat, Limit, LimitError, Policy, PolicyError};

fn bucket_of(burst: u64) -> Algorithm {
    Algorithm::TokenBucket(TokenBucket::new(burst, 1, Duration::from_secs(1)).unwrap())
}

fn named(name: &str) -> Limit {
    Limit::new(name).unwrap()
}

#[test]
fn an_override_holds_for_its_id_in_every_spelling_and_for_no_other() {
    let mut limit = named("A").with_ids(IdFormat::IpAddress).with_default(bucket_of(3));
    limit.add_override(b"2001:0db8::1", bucket_of(7)).unwrap();
    limit.add_override(b"::ffff:10.0.0.9", bucket_of(9)).unwrap();
    let policy = Policy::new(vec![limit]).unwrap();
    for (id, burst) in
        [("2001:db8::1", 7), ("2001:DB8:0:0::1", 7), ("10.0.0.9", 9), ("10.0.0.8", 3), ("2001:db8::2", 3)]
    {
        let charge = policy.charge("A", id.as_bytes(), burst).unwrap();
        assert_eq!(charge.algorithm(), Some(&bucket_of(burst)), "{id}");
        let too_high = ChargeError::CostTooHigh { limit: "A".into(), cost: burst + 1, cost_max: burst };
        assert_eq!(policy.charge("A", id.as_bytes(), burst + 1).err(), Some(too_high), "{id}");
    }
}

#[test]
fn without_default_and_override_an_id_is_unlimited() {
    let mut limit = named("A");
    limit.add_override(b"known", bucket_of(1)).unwrap();
    let policy = Policy::new(vec![limit]).unwrap();
    assert_eq!(policy.charge("A", b"known", 1).unwrap().algorithm(), Some(&bucket_of(1)));
    assert_eq!(policy.charge("A", b"other", u64::MAX).unwrap().algorithm(), None);
}

#[test]
fn a_charge_that_makes_no_sense_says_why() {
    let rate = Algorithm::SmoothedRate(SmoothedRate::new(2.5, Duration::from_secs(1), true).unwrap());
    let quota = Algorithm::Quota(Quota::new(5, Duration::from_secs(1)).unwrap());
    let policy = Policy::new(vec![
        named("Report").with_ids(IdFormat::RegId).with_default(quota),
        named("Rate").with_default(rate),
    ])
    .unwrap();
    let charge = |limit, id: &'static [u8], cost| policy.charge(limit, id, cost).map(drop);
    let wrong_id = |source| Err(ChargeError::Id { limit: "Report".into(), source });
    let format = IdFormat::RegId;
    let unknown = |name| charge(name, b"1", 1).unwrap_err().to_string();
    assert_eq!(unknown("account"), "limit \"account\" does not exist");
    assert_eq!(unknown("Reprot"), "limit \"Reprot\" does not exist (did you mean \"Report\"?)");
    assert_eq!(unknown(""), "limit \"\" does not exist");
    assert_eq!(charge("Report", b"", 1), wrong_id(IdError::Empty));
    assert_eq!(charge("Report", b"x\xff", 1), wrong_id(IdError::Format { id: "x\\xff".into(), format }));
    assert_eq!(
        charge("Rate", b"x", 3),
        Err(ChargeError::CostTooHigh { limit: "Rate".into(), cost: 3, cost_max: 2 })
    );
    assert_eq!(
        policy.charge("Rate", b"x", 1).unwrap().refundable().err(),
        Some(ChargeError::NoRefund { limit: "Rate".into(), algorithm: "smoothed_rate" })
    );
    assert!(policy.charge("Report", b"007", 5).unwrap().refundable().is_ok());
}

#[test]
fn a_number_stands_for_the_name_and_can_be_no_name() {
    let numbered = named("NewOrders").with_number(3);
    assert_eq!(numbered.bucket_key(b"12345678").to_string(), "3:12345678");
    assert_eq!(named("NewOrders").bucket_key(b"a\n").to_string(), "NewOrders:a\\n");
    for name in ["3", "007", "", "a:b", "a b", "a/b", "grüße", "a\n"] {
        assert_eq!(Limit::new(name).err(), Some(LimitError::Name { name: name.to_owned() }), "{name}");
    }
    for name in ["3a", "a", "New-Orders_per.IP"] {
        assert_eq!(named(name).name(), name);
    }
}

#[test]
fn limits_that_would_share_buckets_make_no_policy() {
    let policy = |limits: Vec<Limit>| Policy::new(limits).map(drop);
    let shared = Err(PolicyError::SameBuckets { one: "A".into(), other: "B".into() });
    assert_eq!(policy(vec![named("A"), named("A")]), Err(PolicyError::SameName { name: "A".into() }));
    assert_eq!(policy(vec![named("A").with_number(3), named("B").with_number(3)]), shared);
    assert_eq!(policy(vec![named("A").with_number(3), named("B").with_number(4), named("C")]), Ok(()));
}

#[test]
fn one_id_is_overridden_once() {
    let mut limit = named("A").with_ids(IdFormat::RegIdFqdnSet).with_default(bucket_of(1));
    limit.add_override(b"1:b.com,A.com", bucket_of(2)).unwrap();
    let twice = Err(LimitError::OverriddenTwice { id: "1:a.com,b.com".into() });
    assert_eq!(limit.add_override(b"01:a.com,b.com,a.com", bucket_of(3)), twice);
    assert!(matches!(limit.add_override(b"1:", bucket_of(3)), Err(LimitError::Id(IdError::Format { .. }))));
    assert_eq!(limit.add_override(b"", bucket_of(3)), Err(LimitError::Id(IdError::Empty)));
}
