//! The pages quote code that is run elsewhere: every Rust snippet stands, line for line, in something tested. And the
//! example policies are such.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

use std::fs;
use std::path::Path;

use tollway::store::memory::Memory;
use tollway::{Clock, Config, Limiter};

/// Pages with snippets, seen from this crate.
const PAGES: &[&str] = &["../../README.md", "../../docs/library.md"];

/// What they may quote: files whose code, or whose documentation's code, runs with the tests.
const SOURCES: &[&str] = &[
    "src/lib.rs",
    "src/limiter/awaiting.rs",
    "src/limiter/handle.rs",
    "src/rate_limit.rs",
    "src/rate_limit/limit.rs",
    "../../examples/embed.rs",
    "../../examples/rules.rs",
];

#[test]
fn every_snippet_is_code_that_is_tested() {
    let sources: Vec<_> = SOURCES.iter().map(|source| bare(&fs::read_to_string(source).unwrap())).collect();
    for page in PAGES {
        let text = fs::read_to_string(page).unwrap();
        let snippets: Vec<_> =
            text.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(!snippets.is_empty(), "{page} has no snippets");
        for snippet in snippets {
            let quoted = sources.iter().any(|source| source.contains(&bare(snippet)));
            assert!(quoted, "{page} shows code that nothing runs:\n{snippet}");
        }
    }
}

#[test]
fn the_example_policy_knows_its_office_and_its_customer() {
    let config = Config::from_file(Path::new("../../examples/policy.yaml")).unwrap();
    let limiter = Limiter::with(config.policy, Memory::new(config.max_buckets), Clock::monotonic());
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

/// The lines without what a page or a comment puts in front of them.
fn bare(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim().trim_start_matches("//!").trim())).collect()
}
