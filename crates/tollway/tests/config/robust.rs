//! No text whatever makes reading a configuration panic, or give anything but a configuration or errors in their place.

use proptest::prelude::*;
use tollway::config::{Config, describe};

/// A bit of everything.
const VALID: &str = "\
# A comment, to be cut in two.
store: { url: 'rediss+sentinel://app:s3cret@a,[::1]:26380/main/2?deadline=20ms', namespace: shop, tls_ca: /ca.pem }
max_buckets: 1000
keys:
  - rewrite: [{ match: 'ip=10\\.0\\.(\\d+)', replace: 'net=$1' }]
  - { match: '^ws ip=', limit: 22.5, period: 20s, strict: true, on_store_failure: local, local_share: 0.25 }
  - { match: '^login ', use: Trial }
  - { match: '.*', answer: never }
rules:
  upload: \"Or('10/s', And('user:100/h', 'apikey:60/h:0.1'))\"
  login: { rule: 'user:5/m', on_full: allow, on_store_failure: local, local_share: 1/2 }
gates: { http: 127.0.0.1:8080, text: 127.0.0.1:2000, throttr: { listen: off, on_insert: reset }, smockron: { control: 127.0.0.1:9 } }
limits:
  NewOrdersPerAccount: { burst: 300, count: 300, period: 180m, id: regId, number: 3 }
  Uploads: { algorithm: sliding_log, count: 10, period: 1s, on_full: allow }
  \"Ws\": { algorithm: smoothed_rate, count: 22, period: 20s, strict: true }
  Trial:
    algorithm: quota
    count: 1000
    period: 30d
overrides:
  - NewOrdersPerAccount: { burst: 300, count: 600, period: 180m, ids: [12345678, { id: 007, comment: 'x' }] }
NewFoosPerIPAddress: { burst: 20, count: 20, period: 1s, on_store_failure: local, local_share: 1/4 }
NewFoosPerIPAddress:172.23.45.22:
  burst: 20
  count: 40
  period: 1s
";

/// Pieces of text that cause trouble where they are inserted.
const TROUBLE: [&str; 44] = [
    "",
    "\n",
    "\r\n",
    "\t",
    " ",
    "  ",
    ":",
    ": ",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "#",
    "&a ",
    "*a",
    "!!int ",
    "!",
    "|\n",
    ">\n",
    "'",
    "\"",
    "\\",
    "%",
    "---\n",
    "...\n",
    "<<: ",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "ü",
    "🎈",
    "-1",
    "NaN",
    "1e308",
    "18446744073709551616",
    "limits:",
    "burst: ",
    "rules: ",
    "And(",
    "'1/s'",
    "(",
];

/// Reads it, and everything that can be said about what was read.
fn check(text: &str) {
    match Config::parse(text, "p") {
        Ok(config) => drop(describe(&config).to_string()),
        Err(errors) => {
            assert!(!errors.errors().is_empty());
            assert!(errors.errors().is_sorted());
            // The end of the text counts as a line of its own.
            let lines = text.split(['\n', '\r']).count() + 1;
            for error in errors.errors() {
                assert!((1..=lines).contains(&error.line) && error.column > 0, "{error:?} of {lines} lines");
                assert!(!error.message.contains(char::is_control), "{error:?}");
                let excerpt = error.excerpt.as_deref().unwrap_or_default();
                assert!(!excerpt.contains(|c: char| c.is_control() && c != '\n'), "{error:?}");
                assert!(excerpt.is_empty() || excerpt.lines().last().is_some_and(|line| line.ends_with('^')));
            }
            assert!(errors.to_string().lines().count() >= errors.errors().len());
        }
    }
}

/// Returns a place in the text that lies between two characters.
fn place(text: &str, at: prop::sample::Index) -> usize {
    let mut place = at.index(text.len() + 1);
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

fn mutate(text: &mut String, from: prop::sample::Index, to: prop::sample::Index, with: &str) {
    let (from, to) = (place(text, from), place(text, to));
    let end = from.max(to).min(from + 20);
    let end = (from..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(from);
    text.replace_range(from..end, with);
}

#[test]
fn the_text_to_be_damaged_is_sound() {
    let config = Config::parse(VALID, "valid").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((config.policy.limits().len(), config.policy.rules().len()), (5, 2));
}

#[test]
fn a_text_cut_anywhere_does_not_panic() {
    VALID.char_indices().for_each(|(end, _)| check(&VALID[..end]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_does_not_panic(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_pieces_of_yaml_do_not_panic(pieces in prop::collection::vec(prop::sample::select(&TROUBLE[..]), 0..60)) {
        check(&pieces.concat());
    }

    #[test]
    fn any_damage_to_a_sound_text_does_not_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(),
            prop_oneof![prop::sample::select(&TROUBLE[..]).prop_map(str::to_owned), ".{0,8}"]), 1..6)
    ) {
        let mut text = VALID.to_owned();
        for (from, to, with) in edits {
            mutate(&mut text, from, to, &with);
        }
        check(&text);
    }

    #[test]
    fn any_value_of_any_field_does_not_panic(value in "[-+.0-9a-zA-Z:_]{0,24}|\\PC{0,24}") {
        for field in ["burst", "count", "period", "strict", "algorithm", "id", "ipv6_prefix", "number", "on_full",
            "on_store_failure", "local_share"] {
            check(&format!("limits:\n  A:\n    burst: 1\n    count: 1\n    {field}: {value}\n"));
            check(&format!("limits: {{ A: {{ algorithm: smoothed_rate, {field}: {value:?} }} }}"));
        }
        check(&format!("limits: {{ A: {{}} }}\nA:{value}: {{ burst: 1, count: 1, period: {value} }}"));
        check(&format!("keys: [{{ match: {value:?}, limit: {value} }}, {{ match: {value}, use: {value} }}]"));
        check(&format!("rewrite: [{{ match: {value:?}, replace: {value:?} }}, {{ match: '(a)', replace: {value:?} }}]"));
        check(&format!("rules: {{ a: {value:?}, b: {{ rule: {value:?} }} }}\n"));
        check(&format!("rules:\n  a: {value}\n  b: \"Or('{value}', 'user:{value}/s')\"\n"));
        for scheme in ["redis", "rediss+sentinel", "valkey+cluster"] {
            check(&format!("store: {scheme}://{value}\n"));
            check(&format!("store: {{ url: {scheme}://a, namespace: {value:?}, deadline: {value}, password: {value:?} }}"));
        }
        check(&format!("gates: {{ http: {value}, text: {value}, throttr: {{ listen: {value} }}, smockron: {{ statsd: {value} }} }}\nstore: {value}\nmax_buckets: {value}"));
    }
}
