//! Tests that the example policies load, and find the limits of their ids and keys.

use std::path::Path;

use tollway::store::memory::Memory;
use tollway::{Clock, Config, Limiter};

#[test]
fn the_example_policy_knows_its_office_and_its_customer() {
    let config = Config::from_file(Path::new("../../examples/policy.yaml")).unwrap();
    let limiter = Limiter::with(config.policy, Memory::new(config.memory_bounds), Clock::monotonic());
    for (limit, id, remaining) in [
        ("RequestsPerIPAddress", "192.0.2.7", 999),
        ("RequestsPerIPAddress", "192.0.2.8", 99),
        ("RequestsPerIPv6Range", "2001:db8::/48", 499),
        ("NewOrdersPerAccount", "12345678", 299),
        ("LoginsPerAccount", "alice", 4),
        ("MessagesPerNumber", "+1 555 0100", 2),
    ] {
        assert_eq!(limiter.spend(limit, id, 1).unwrap().remaining, remaining, "{limit}:{id}");
    }
}

#[test]
fn the_example_for_a_web_service_knows_its_customers() {
    let config = Config::from_file(Path::new("../../examples/musicbrainz.yaml")).unwrap();
    let keys = config.policy.keys();
    for (key, rewritten, rule) in [
        ("ws ip=192.0.2.1", "ws ip=192.0.2.1", Some(1)),
        ("ws global", "ws global", Some(2)),
        ("search global", "search global", Some(3)),
        ("ws ip=::ffff:203.0.113.9", "ws cust=broadcaster", Some(4)),
        ("ws ip=198.51.100.99", "ws cust=label", Some(5)),
        ("ws ip=2001:db8:cafe::1", "ws cust=label", Some(5)),
        ("ws ua=BigSCRAPER", "ws ua=scrapers", Some(6)),
        ("ws ua=Java/1.8", "ws ua=Java", Some(7)),
        ("ws ua=-", "ws ua=anonymous", Some(7)),
        ("ws ua=Picard/2.11", "ws ua=Picard/2.11", Some(8)),
        ("ws ip=198.51.100.128", "ws ip=198.51.100.128", Some(9)),
        ("search ip=192.0.2.55", "search ip=192.0.2.55", Some(10)),
        ("wx global", "wx global", None),
    ] {
        let found = keys.find(key.as_bytes());
        assert_eq!((&*found.key, found.rule.map(|rule| rule + 1)), (rewritten.as_bytes(), rule), "{key}");
    }
}
