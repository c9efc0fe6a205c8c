//! Checks that the section `keys` sets the limits of keys, and that its errors point at their place.

use std::net::SocketAddr;
use std::time::Duration;

use tollway::config::{
    Config, Gates, HttpSettings, InlineAccess, OnInsert, SmockronGate, ThrottrSettings, describe,
};
use tollway::core::algorithm::SmoothedRate;
use tollway::core::{KeyLimit, Nanos, OnFull, OnStoreFailure};
use tollway::patterns::{REWRITES_MAX, RULES_MAX};

fn read(text: &str) -> Config {
    Config::parse(text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Each file gets exactly these errors.
fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = Config::parse(text, "KEYS").err().map(|errors| errors.to_string());
        let expected: Vec<_> = expected.iter().map(|error| format!("KEYS:{error}")).collect();
        assert_eq!(errors.as_deref(), Some(&*expected.join("\n")), "\n{text}");
    }
}

fn rate(limit: f64, seconds: u64, strict: bool, on_full: OnFull) -> KeyLimit {
    let limit = SmoothedRate::new(limit, Duration::from_secs(seconds), strict).unwrap();
    KeyLimit::Rate { limit, on_full, on_store_failure: OnStoreFailure::Allow }
}

const RULES: &str = r"
limits:
  Other: { burst: 1, count: 1, period: 1s }
  Searches: { burst: 5, count: 5, period: 1m }
keys:
  - rewrite:
      - { match: 'ip=132\.185\.(\d+)\.\d+$', replace: 'cust=bbc$1' }
      - { match: '^(\w+) cust=bbc0$', replace: '$1 cust=bbc' }
  - { match: '^ws cust=', limit: 200.5, period: 10s, on_full: allow }
  - match: '^ws ip=(\d+\.\d+\.\d+\.\d+)$'
    limit: 22
    period: 20s
    strict: true
  - { match: '^ws global$', limit: 2500, period: 10s, stats: true }
  - { match: '^search ', use: Searches, stats: true }
  - { match: '^monitor', answer: never }
";

#[test]
fn the_first_rule_that_matches_the_rewritten_key_holds() {
    let config = read(RULES);
    let keys = config.policy.keys();
    for (key, rewritten, expected) in [
        ("ws ip=10.0.0.1", "ws ip=10.0.0.1", Some((rate(22.0, 20, true, OnFull::Deny), false))),
        ("ws ip=132.185.0.7", "ws cust=bbc", Some((rate(200.5, 10, false, OnFull::Allow), false))),
        ("ws ip=132.185.1.7", "ws cust=bbc1", Some((rate(200.5, 10, false, OnFull::Allow), false))),
        ("ws global", "ws global", Some((rate(2500.0, 10, false, OnFull::Deny), true))),
        ("search ip=10.0.0.1", "search ip=10.0.0.1", Some((KeyLimit::Use { limit: 1 }, true))),
        ("monitor ws global", "monitor ws global", Some((KeyLimit::Never, false))),
        ("ws global ", "ws global ", None),
        ("", "", None),
    ] {
        let found = keys.find(key.as_bytes());
        assert_eq!(*found.key, *rewritten.as_bytes(), "{key}");
        let rule = found.rule.map(|rule| (keys.rules()[rule].limit, keys.rules()[rule].stats));
        assert_eq!(rule, expected, "{key}");
    }
}

#[test]
fn rewrites_may_stand_in_any_one_place_above_the_rules() {
    let rule = "{ match: '^b$', answer: never }";
    let rewrite = "[{ match: a, replace: b }]";
    for text in [
        format!("keys:\n  - rewrite: {rewrite}\n  - {rule}"),
        format!("keys: {{ rewrite: {rewrite}, rules: [{rule}] }}"),
        format!("keys: {{ rules: [{rule}], rewrite: {rewrite} }}"),
        format!("rewrite: {rewrite}\nkeys: [{rule}]"),
        format!("keys: {{ rules: [{rule}] }}\nrewrite: {rewrite}"),
    ] {
        let found = read(&text).policy.keys().find(b"a").rule;
        assert_eq!(found, Some(0), "{text}");
    }
    for text in ["keys: []", "keys: {}", "keys: { rules: }", "keys: [rewrite: ]", "rules: {}\nrewrite: []"] {
        let config = read(text);
        assert_eq!((config.policy.keys().rules(), config.policy.limits().len()), (&[][..], 0), "{text}");
    }
}

#[test]
fn the_built_in_policy_has_rules_for_keys_and_a_file_has_its_own() {
    assert!(Config::default().policy.keys().find(b"anything").rule.is_some());
    for text in ["limits: {}", "A: { burst: 1, count: 1, period: 1s }"] {
        assert!(read(text).policy.keys().find(b"anything").rule.is_none(), "{text}");
    }
}

#[test]
fn a_description_numbers_the_rules() {
    let description = describe(&read(RULES)).to_string();
    assert!(description.contains("\nkeys    5 rules, 2 rewrites\n"), "{description}");
    let expected = r"

rewrite 1  ip=132\.185\.(\d+)\.\d+$      to cust=bbc$1
rewrite 2  ^(\w+) cust=bbc0$             to $1 cust=bbc
rule 1     ^ws cust=                     200.5 per 10s, on_full allow, on_store_failure allow
rule 2     ^ws ip=(\d+\.\d+\.\d+\.\d+)$  22 per 20s, strict, on_full deny, on_store_failure allow
rule 3     ^ws global$                   2500 per 10s, stats, on_full deny, on_store_failure allow
rule 4     ^search                       uses Searches, stats
rule 5     ^monitor                      never over
";
    assert!(description.ends_with(expected), "{description}");
}

#[test]
fn a_rule_says_one_thing_and_all_of_it() {
    const ONE_OF: &str = "\"limit\" and \"period\", or \"answer: never\", or \"use: NAME\"";
    let two = format!("1:42: a rule can have only one of these: {ONE_OF}");
    let none = format!("1:8: a rule needs one of these: {ONE_OF}");
    check(&[
        ("keys: [{ match: a, limit: 5, period: 1s, answer: never }]", &[&two]),
        ("keys: [{ match: a }]", &[&none]),
        ("keys: [{ match: a, strict: true }]", &[&none]),
        (
            "keys: [{ match: a, limit: 5 }]",
            &[
                "1:8: a rule with \"limit\" needs \"period\" too, as in {match: '^ws ip=', limit: 22, period: 20s}",
            ],
        ),
        (
            "keys: [{ match: a, period: 1s }]",
            &[
                "1:8: a rule with \"period\" needs \"limit\" too, as in {match: '^ws ip=', limit: 22, period: 20s}",
            ],
        ),
        (
            "keys: [{ limit: 5, period: 1s }]",
            &["1:8: a rule needs \"match\", a regular expression such as '^ws global$'"],
        ),
        (
            "keys: [{ match: a, answer: never, strict: true }]",
            &["1:35: \"strict\" goes with \"limit\" and \"period\", but this rule has \"answer\""],
        ),
        (
            "limits: { A: {} }\nkeys: [{ match: a, use: A, on_full: deny }]",
            &["2:28: \"on_full\" goes with \"limit\" and \"period\", but this rule has \"use\""],
        ),
        ("keys: [{ match: a, answer: always }]", &["1:28: answer must be never, not \"always\""]),
        (
            "limits: { Search: {} }\nkeys: [{ match: a, use: Serach }]",
            &["2:25: limit \"Serach\" does not exist (did you mean \"Search\"?)"],
        ),
        (
            "keys: [{ match: a, use: Search }]",
            &["1:25: limit \"Search\" does not exist; add it to \"limits\""],
        ),
        ("keys: [{ match: a, use: }]", &["1:20: use must be the name of a limit, but has no value"]),
    ]);
}

#[test]
fn every_field_of_a_rule_is_checked_and_all_errors_come_at_once() {
    check(&[
        (
            "keys:\n  - { regex: '^ws (', count: 0, per: 20, strict: yes, stats: 1, on_full: evict }\n  - 5",
            &[
                "2:7: unknown field \"regex\" (did you mean \"match\"?)",
                "2:14: regex is not a valid regular expression: unclosed group, at character 5",
                "2:23: unknown field \"count\" (did you mean \"limit\"?)",
                "2:30: count must be a number above 0 and at most 9007199254740992, such as 22 or 22.5, not \"0\"",
                "2:33: unknown field \"per\" (did you mean \"period\"?)",
                "2:38: per \"20\" has no unit (did you mean \"20s\"?)",
                "2:50: strict must be true or false, not \"yes\"",
                "2:62: stats must be true or false, not \"1\"",
                "2:74: on_full must be deny or allow, not \"evict\"",
                "3:5: a rule must be a mapping, such as {match: '^ws ip=', limit: 22, period: 20s}, not \"5\"",
            ],
        ),
        (
            "keys: [{ match: a, limit: 1, period: 107d }]",
            &["1:38: period must be at most 106d for smoothed_rate"],
        ),
        (
            "keys: [{ match: '(a{100}){1000}', answer: never }]",
            &["1:17: match takes more than 256 KiB of memory when compiled"],
        ),
        (
            "keys: [{ match: , answer: never }]",
            &["1:10: match must be a regular expression, such as '^ws global$', but has no value"],
        ),
        (
            "keys: [{ match: [a], answer: never }]",
            &["1:17: match must be a regular expression, such as '^ws global$', not a list"],
        ),
        (
            "keys: never",
            &[
                "1:7: keys must be a list, such as [{match: '^ws ip=', limit: 22, period: 20s}], not \"never\"",
            ],
        ),
        (
            r#"keys: [{ match: "^ws \d", answer: never }]"#,
            &["1:17: unknown escape; use single quotes, where a backslash is a plain character"],
        ),
        ("keys: { match: a }", &["1:9: unknown field \"match\"; keys has rewrite and rules"]),
    ]);
}

#[test]
fn the_limit_of_a_key_may_have_decimals() {
    for (given, expected) in
        [("22", 22.0), ("22.5", 22.5), ("0.1", 0.1), ("9007199254740992", 9_007_199_254_740_992.0)]
    {
        let config = read(&format!("keys: [{{ match: a, limit: {given}, period: 1s }}]"));
        assert_eq!(config.policy.keys().rules()[0].limit, rate(expected, 1, false, OnFull::Deny));
    }
    let must_be = "limit must be a number above 0 and at most 9007199254740992, such as 22 or 22.5";
    for given in "0 0.0 -1 +1 1e3 .5 5. 1.5.5 0x10 007 1_000 NaN .inf true ~ 9007199254740994".split(' ') {
        let expected = format!("1:27: {must_be}, not \"{given}\"");
        check(&[(&format!("keys: [{{ match: a, limit: {given}, period: 1s }}]"), &[&expected])]);
    }
    let quoted = format!("1:27: {must_be}; remove the quotes");
    check(&[("keys: [{ match: a, limit: '5.5', period: 1s }]", &[&quoted])]);
}

#[test]
fn rewrites_are_checked_and_belong_in_one_place() {
    let rewrite = "rewrite: [{ match: a, replace: b }]";
    check(&[
        (
            &format!("keys:\n  - {{ match: a, answer: never }}\n  - {rewrite}"),
            &[
                "3:5: rewrite is below a rule; move it above the rules, because keys are rewritten before they \
               are matched",
            ],
        ),
        (
            &format!("{rewrite}\nkeys:\n  - {rewrite}"),
            &["3:5: rewrite is given twice, first at 1:1; keep one, above the rules of \"keys\""],
        ),
        (
            &format!("keys:\n  - {rewrite}\n  - {rewrite}"),
            &["3:5: rewrite is given twice, first at 2:5; keep one, above the rules of \"keys\""],
        ),
        ("keys:\n  - { rewrite: [], match: a }", &["2:20: unknown field \"match\"; this item has rewrite"]),
        (
            "rewrite:\n  - { match: '(', replace: }\n  - { match: a, replacement: '$1x' }\n  - { match: a }\n  - a",
            &[
                "2:14: match is not a valid regular expression: unclosed group, at character 1",
                "2:19: replace must be text, such as 'cust=$1', but has no value",
                "3:17: unknown field \"replacement\" (did you mean \"replace\"?)",
                "3:30: replacement uses ${1x}, a group that the pattern does not have (did you mean \"${1}x\"?)",
                "4:5: a rewrite needs \"replace\", as in {match: 'ip=10\\.0\\..*', replace: 'cust=office'}",
                "5:5: a rewrite must be a mapping, such as {match: 'ip=10\\.0\\..*', replace: 'cust=office'}, not \"a\"",
            ],
        ),
        (
            "rewrite: { match: a, replace: b }",
            &[
                "1:10: rewrite must be a list, such as [{match: 'ip=10\\.0\\..*', replace: 'cust=office'}], not a mapping",
            ],
        ),
    ]);
}

#[test]
fn a_file_cannot_eat_memory_with_patterns() {
    let rules = |n: usize, pattern: &str| {
        format!("keys:\n{}", format!("- {{ match: {pattern}, answer: never }}\n").repeat(n))
    };
    assert_eq!(read(&rules(RULES_MAX, "a")).policy.keys().rules().len(), RULES_MAX);
    check(&[(&rules(RULES_MAX + 1, "a"), &["1:1: a file can have at most 10000 rules for keys"])]);
    let text = format!("rewrite:\n{}", "- { match: a, replace: b }\n".repeat(REWRITES_MAX + 1));
    check(&[(&text, &["1:1: a file can have at most 1000 rewrites"])]);
    let errors = Config::parse(&rules(1_000, "'(a{100}){50}'"), "KEYS").unwrap_err().to_string();
    assert!(errors.contains(": the patterns up to here take more than 16 MiB when compiled"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn a_gate_has_an_address_and_perhaps_more() {
    let gates = |text: &str| read(&format!("limits: {{}}\n{text}")).gates;
    assert_eq!(Gates::default().text, "127.0.0.1:2000".parse().ok());
    assert_eq!(Gates::default().throttr, "127.0.0.1:9000".parse().ok());
    let off = gates("gates: {}");
    assert_eq!(off, Gates::OFF);
    assert!(off.are_off());
    for text in [
        "gates: { text: 127.0.0.1:2000, throttr: 127.0.0.1:9000 }",
        "gates: { text: {}, throttr: { on_insert: fail } }",
        "gates: { http: off, text: { listen: 127.0.0.1:2000 }, throttr: { listen: 127.0.0.1:9000 } }",
    ] {
        assert_eq!(
            gates(text),
            Gates { http: None, admin: None, resp: None, smockron: None, rls: None, ..Gates::default() },
            "{text}"
        );
    }
    let reset = gates("gates: { throttr: { listen: '[::1]:9', on_insert: reset, max_ttl: 1h } }");
    let settings = ThrottrSettings { on_insert: OnInsert::Reset, max_ttl: Nanos::from_secs(3_600) };
    assert_eq!((reset.throttr, reset.throttr_settings), ("[::1]:9".parse().ok(), settings));
    assert_eq!(Gates::default().throttr_settings.max_ttl, Nanos::from_secs(30 * 86_400));
    let crowded = gates(
        "gates: { http: { max_connections: 7, max_connections_per_address: 5 }, throttr: { max_connections: 3 } }",
    );
    assert_eq!((crowded.http_connections.total, crowded.http_connections.of_address(true)), (7, 5));
    assert_eq!(
        (crowded.throttr_connections.total, crowded.throttr_connections.of_address(false)),
        (3, 2_500)
    );
    assert_eq!(Gates::OFF.http_connections.of_address(false), 2_500);
    let open = read(
        "limits: {}\ngates: { http: { trusted_proxies: [10.0.0.5], inline: allow, throttlecrab: true } }",
    );
    let settings = &open.gates.http_settings;
    assert_eq!((settings.inline, settings.throttlecrab), (InlineAccess::Allow, true));
    assert_eq!(settings.trusted_proxies, ["10.0.0.5".parse().unwrap()]);
    let described = describe(&open).to_string();
    let expected = "http 127.0.0.1:8080 (trusted_proxies 10.0.0.5/32) (inline allow) (throttlecrab), admin off, text off";
    assert!(described.contains(expected), "{described}");
    assert_eq!(Gates::default().http_settings, HttpSettings::DEFAULT);
    let named = read(
        "limits: {}\ngates: { http: { gate: off, hosts: [Limits.internal] }, admin: { hosts: [a, b.c], max_connections: 2 } }",
    );
    let (http, admin) = (&named.gates.http_settings, &named.gates.admin_hosts);
    assert!(http.gate_off && http.hosts.contain("limits.INTERNAL") && !http.hosts.contain("internal"));
    assert!(admin.contain("b.c") && !admin.contain("c") && named.gates.admin_connections.total == 2);
    let expected = "http 127.0.0.1:8080 (gate off) (hosts Limits.internal), admin 127.0.0.1:8082 (hosts a b.c), text off";
    assert!(describe(&named).to_string().contains(expected), "{}", describe(&named));
    assert!(!gates("gates: { http: { gate: on } }").http_settings.gate_off);
    assert_eq!(Gates::default().resp, "127.0.0.1:6380".parse().ok());
    for (text, at_home, elsewhere) in [
        ("gates: { resp: 10.0.0.1:1 }", true, false),
        ("gates: { resp: { inline: allow } }", true, true),
        ("gates: { resp: { inline: deny, max_connections: 3 } }", false, false),
    ] {
        let [home, any] = ["[::1]:1", "0.0.0.0:1"].map(|address| address.parse::<SocketAddr>().unwrap());
        let inline = gates(text).resp_inline;
        assert_eq!((inline.is_allowed_at(home), inline.is_allowed_at(any)), (at_home, elsewhere), "{text}");
    }
    let denying = describe(&read("limits: {}\ngates: { resp: { inline: deny } }")).to_string();
    assert!(denying.contains("throttr off, resp 127.0.0.1:6380 (inline deny), smockron off"), "{denying}");
    let trusting = read("limits: {}\ngates: { text: { trusted_networks: [10.0.0.0/8, '::1'] } }");
    let sender = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert!(trusting.gates.trusted_networks.contain(sender("10.1.2.3:9")));
    assert!(!trusting.gates.trusted_networks.contain(sender("127.0.0.1:9")));
    let described = describe(&trusting).to_string();
    assert!(
        described.contains("text 127.0.0.1:2000 (trusted_networks 10.0.0.0/8 ::1/128), throttr off"),
        "{described}"
    );
    let trusting = read("limits: {}\ngates: { smockron: { trusted_networks: [10.0.0.0/8] } }");
    let networks = &trusting.gates.smockron.as_ref().unwrap().trusted_networks;
    assert!(networks.contain_address("10.1.2.3".parse().unwrap()));
    assert!(!networks.contain_address("127.0.0.1".parse().unwrap()));
    let described = describe(&trusting).to_string();
    assert!(
        described.contains("(control 127.0.0.1:10005) (trusted_networks 10.0.0.0/8), rls off"),
        "{described}"
    );
    check(&[
        (
            "gates: { text: 10.0.0.1, throttr: { on_insert: replace, listne: 9000 } }",
            &[
                "1:16: text must be an address and a port, such as 127.0.0.1:2000, or off, not \"10.0.0.1\" (did you mean \
                 \"10.0.0.1:2000\"?)",
                "1:48: on_insert must be fail or reset, not \"replace\"",
                "1:57: unknown field \"listne\" (did you mean \"listen\"?)",
                "1:65: listne must be an address and a port, such as 127.0.0.1:9000, or off, not \"9000\" (did you mean \
                 \"127.0.0.1:9000\", or \":9000\" for every interface?)",
            ],
        ),
        (
            "gates: { text: { on_insert: reset } }",
            &["1:18: unknown field \"on_insert\"; text has listen, trusted_networks and hmac"],
        ),
        (
            "gates: { http: { inline: deny, throttlecrab: true } }",
            &[
                "1:46: throttlecrab: true lets clients bring the numbers of their limits, which inline: deny forbids; \
               remove one of them",
            ],
        ),
        (
            "gates: { http: { inline: yes, throttlecrab: 1, trusted_proxies: here } }",
            &[
                "1:26: inline must be allow or deny, not \"yes\"",
                "1:45: throttlecrab must be true or false, not \"1\"",
                "1:65: trusted_proxies must be a list of networks, such as [10.0.0.0/8, 192.168.7.1], not \"here\"",
            ],
        ),
        (
            "gates: { http: { max_connections: 0 }, smockron: { max_connections_per_address: many } }",
            &[
                "1:35: max_connections must be a whole number from 1 to 1000000, not \"0\"",
                "1:81: max_connections_per_address must be a whole number from 1 to 1000000, not \"many\"",
            ],
        ),
        (
            "gates: { text: { trusted_networks: 10.0.0.0/8 } }",
            &[
                "1:36: trusted_networks must be a list of networks, such as [10.0.0.0/8, 192.168.7.1], not \"10.0.0.0/8\"",
            ],
        ),
        (
            "gates: { text: { trusted_networks: [10.0.0.0/8, 10.0.0.1/8, here] } }",
            &[
                "1:49: trusted_networks: network \"10.0.0.1/8\" has bits set after its prefix (did you mean \"10.0.0.0/8\"?)",
                "1:61: trusted_networks: network \"here\" must begin with an IP address, such as 10.0.0.0/8 or 2001:db8::/32",
            ],
        ),
        (
            "gates: { txt: off, trottr: off }",
            &[
                "1:10: unknown field \"txt\" (did you mean \"text\"?)",
                "1:20: unknown field \"trottr\" (did you mean \"throttr\"?)",
            ],
        ),
    ]);
}

#[test]
fn the_smockron_gate_has_two_addresses() {
    let gates = |text: &str| read(&format!("limits: {{}}\n{text}")).gates;
    let gate = |text: &str| gates(text).smockron.unwrap();
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    for text in ["", "gates: { smockron: 127.0.0.1:10004 }", "gates: { smockron: {} }"] {
        let gate = gate(text);
        assert_eq!((gate.accounting, gate.statsd.as_deref()), (address("127.0.0.1:10004"), None), "{text}");
        assert_eq!(gate.control(), Some(address("127.0.0.1:10005")), "{text}");
    }
    let moved = gate(
        "gates: { smockron: { accounting: '[::]:7', control: 10.0.0.1:9, statsd: stats.example:8125 } }",
    );
    assert_eq!((moved.accounting, moved.control()), (address("[::]:7"), Some(address("10.0.0.1:9"))));
    assert_eq!(moved.statsd.as_deref(), Some("stats.example:8125"));
    assert_eq!(SmockronGate::at(address("[::1]:0")).control(), Some(address("[::1]:0")));
    assert_eq!(gates("gates: { smockron: off }"), Gates::OFF);
    assert_eq!(gates("gates: { smockron: { accounting: off, statsd: off } }"), Gates::OFF);
    check(&[
        (
            "gates: { smockron: 127.0.0.1:65535 }",
            &[
                "1:20: smockron must have a port below 65535, or a control address of its own, not \"127.0.0.1:65535\"",
            ],
        ),
        (
            "gates: { smockron: { control: off, statsd: here, listen: 1 } }",
            &[
                "1:44: statsd must be a host and a port, such as 127.0.0.1:8125, or off, not \"here\"",
                "1:50: unknown field \"listen\"; smockron has accounting, control, statsd, trusted_networks, max_connections and max_connections_per_address",
            ],
        ),
        (
            "gates: { smockron: { control: off } }",
            &["1:31: control must be an address, where gatekeepers learn of delays, not \"off\""],
        ),
    ]);
}
