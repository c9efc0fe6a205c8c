//! Checks that each mistake in a file is reported once, at its place, with a correction.

use std::fs;
use std::path::Path;

use tollway::Limiter;
use tollway::config::Config;
use tollway::core::ErrorChain;

/// Each file gets exactly these errors.
fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = Config::parse(text, "POLICY").err().map(|errors| errors.to_string());
        let expected: Vec<_> = expected.iter().map(|error| format!("POLICY:{error}")).collect();
        assert_eq!(errors.as_deref(), Some(&*expected.join("\n")), "\n{text}");
    }
}

const WHOLE: &str = "must be a whole number from 1 to 18446744073709551615";
const DURATION: &str = "must be a duration such as 1s, 180m, 1h30m or 500ms";

#[test]
fn an_unknown_field_is_an_error_that_knows_what_was_meant() {
    check(&[
        (
            "limits:\n  A:\n    brust: 5\n    count: 5\n    period: 1s\n",
            &["3:5: unknown field \"brust\" (did you mean \"burst\"?)"],
        ),
        (
            "A: { burst: 5, limit: 5, window: 1s }",
            &[
                "1:16: unknown field \"limit\" (did you mean \"count\"?)",
                "1:26: unknown field \"window\" (did you mean \"period\"?)",
            ],
        ),
        // What follows a misspelt name is checked as what was meant.
        (
            "A: { brust: 0, count: 5, period: 1s }",
            &[
                "1:6: unknown field \"brust\" (did you mean \"burst\"?)",
                "1:13: brust must be a whole number from 1 to 18446744073709551615, not \"0\"",
            ],
        ),
        (
            "limts: { A: { burst: 5, count: 5, period: 1s } }",
            &["1:1: unknown field \"limts\" (did you mean \"limits\"?)"],
        ),
        (
            "realms: {}",
            &[
                "1:1: unknown field \"realms\"; a file has limits, overrides, keys, rewrite, rules, domains, envoy, store, max_buckets, max_client_buckets, gates, tokens, audit, otel, watch and show_ids",
            ],
        ),
        (
            "gates: { htpp: off, soap: off }",
            &[
                "1:10: unknown field \"htpp\" (did you mean \"http\"?)",
                "1:21: unknown field \"soap\"; gates has http, admin, text, throttr, resp, smockron and rls",
            ],
        ),
        (
            "limits: { A: { colour: red } }",
            &[
                "1:16: unknown field \"colour\"; a limit has burst, count, period, offset, rate, strict, algorithm, id, ipv6_prefix, \
               number, on_full, on_store_failure, local_share and after_crash",
            ],
        ),
        (
            "limits: { A: {} }\noverrides: { 'A:1': { burst: 1, count: 1, period: 1s, stats: true } }",
            &[
                "2:55: unknown field \"stats\"; an override has burst, count, period, offset, rate, strict and algorithm",
            ],
        ),
    ]);
}

#[test]
fn a_rate_replaces_a_count_and_a_period() {
    check(&[
        (
            "limits: { A: { rate: 100/h, count: 5, period: 1s } }",
            &[
                "1:29: \"count\" is part of \"rate\"; remove \"count\" or \"rate\"",
                "1:39: \"period\" is part of \"rate\"; remove \"period\" or \"rate\"",
            ],
        ),
        (
            "limits: { A: { rate: 100/fortnight } }",
            &[
                "1:22: rate \"100/fortnight\": the unit of a span must be ms, s, m, h or d, or its long name, such as 5 min",
            ],
        ),
        (
            "limits: { A: { rate: 0/s } }",
            &[
                "1:22: rate \"0/s\": the count and the span of a rate must be above zero, and the span at most 292 years",
            ],
        ),
        (
            "limits: { A: { rate: 2/ns } }",
            &["1:22: count must be at most 1 for this period, which is one per nanosecond"],
        ),
        (
            "limits: { A: { rate: 1/s, burst: 0 } }",
            &["1:34: burst must be a whole number from 1 to 18446744073709551615, not \"0\""],
        ),
        (
            "limits: { A: { algorithm: sliding_log, rate: 65537/s } }",
            &["1:46: count must be at most 65536 for a sliding log; use a token bucket for more"],
        ),
    ]);
}

#[test]
fn each_algorithm_takes_its_own_numbers() {
    check(&[
        (
            "A: { burst: 5 }",
            &[
                "1:1: \"A\" has no count and period; token_bucket needs burst, count and period, or a rate such as 100/h",
            ],
        ),
        (
            "A: { count: 5, period: 1s }",
            &["1:1: \"A\" has no burst; token_bucket needs burst, count and period, or a rate such as 100/h"],
        ),
        (
            "A: { algorithm: sliding_log, burst: 5, count: 5, period: 1s }",
            &["1:30: sliding_log does not take \"burst\", only count and period"],
        ),
        (
            "A: { algorithm: quota, burst: 5, strict: true }",
            &[
                "1:1: \"A\" has no count and period; quota needs count and period, or a rate such as 100/h",
                "1:24: quota does not take \"burst\", only count and period",
                "1:34: quota does not take \"strict\", only count and period",
            ],
        ),
        (
            "A: { algorithm: smoothed_rate, burst: 5, count: 5, period: 1s }",
            &["1:32: smoothed_rate does not take \"burst\", only count, period and strict"],
        ),
        (
            "A: { algorithm: sliding_window, count: 5, period: 1s, offset: 1s }",
            &["1:55: sliding_window does not take \"offset\", only count and period"],
        ),
        (
            "A: { algorithm: fixed_window, count: 5, period: 1s, offset: 1, strict: true }",
            &[
                "1:61: offset \"1\" has no unit (did you mean \"1s\"?)",
                "1:64: fixed_window does not take \"strict\", only count, period and offset",
            ],
        ),
        (
            "A: { algorithm: sliding_window, rate: 536870912/s }",
            &["1:39: count must be at most 536870911 for a sliding window; use a token bucket for more"],
        ),
        (
            "A: { algorithm: sliding_window, count: 1, period: 650000h }",
            &["1:51: period must be at most 73 years"],
        ),
        (
            "limits: { A: { strict: true } }",
            &["1:16: token_bucket does not take \"strict\", only burst, count and period"],
        ),
        (
            "A: { algorithm: leaky_bucket, count: 5, period: 1s }",
            &[
                "1:17: algorithm must be token_bucket, sliding_log, smoothed_rate, quota, fixed_window or sliding_window, not \"leaky_bucket\"",
            ],
        ),
        (
            "A: { algorithm: tokenbucket, burst: 1, count: 5, period: 1s }",
            &[
                "1:17: algorithm must be token_bucket, sliding_log, smoothed_rate, quota, fixed_window or sliding_window, not \"tokenbucket\" (did you mean \"token_bucket\"?)",
            ],
        ),
    ]);
}

#[test]
fn numbers_that_do_not_go_together_are_blamed_on_one_of_them() {
    check(&[
        (
            "A: { burst: 1, count: 1001, period: 1us }",
            &["1:23: count must be at most 1000 for this period, which is one per nanosecond"],
        ),
        (
            "A: { burst: 2562048, count: 1, period: 1h }",
            &[
                "1:13: burst must be at most 2562047 for this count and period, so that the bucket fills within 292 years",
            ],
        ),
        (
            "A: { algorithm: sliding_log, count: 65537, period: 1h }",
            &["1:37: count must be at most 65536 for a sliding log; use a token bucket for more"],
        ),
        (
            "A: { algorithm: sliding_window, count: 536870912, period: 700000h }",
            &[
                "1:40: count must be at most 536870911 for a sliding window; use a token bucket for more",
                "1:59: period must be at most 73 years",
            ],
        ),
        (
            "A: { algorithm: sliding_log, count: 65537, period: 400y }",
            &[
                "1:37: count must be at most 65536 for a sliding log; use a token bucket for more",
                "1:52: period \"400y\": \"y\" is not a unit of time; use ns, us, ms, s, m, h or d",
            ],
        ),
        (
            "A: { algorithm: smoothed_rate, count: 9007199254740993, period: 1h }",
            &["1:39: count must be a whole number from 1 to 9007199254740992, not \"9007199254740993\""],
        ),
        (
            "A: { algorithm: smoothed_rate, count: 1, period: 107d }",
            &["1:50: period must be at most 106d for smoothed_rate"],
        ),
        (
            "limits: { A: { number: 3 }, B: { number: 3 } }",
            &["1:42: number 3 is already used by limit \"A\", at 1:11"],
        ),
    ]);
}

#[test]
fn a_number_is_digits_and_nothing_else() {
    const WRONG: &str = "-1 -0 +1 1.0 1.5 1e3 0x10 0o17 007 1_000 NaN .nan .inf -.inf true null ~ many \
                         18446744073709551616 99999999999999999999999 -9223372036854775808 ٣";
    for field in ["burst", "count", "number", "max_buckets", "max_client_buckets"] {
        let (least, prefix) = match field {
            "number" => (0, "limits: { A: { number: "),
            "max_buckets" => (1, "max_buckets: "),
            "max_client_buckets" => (1, "max_client_buckets: "),
            "burst" => (1, "limits: { A: { count: 1, period: 1s, burst: "),
            _ => (1, "limits: { A: { burst: 1, period: 1s, count: "),
        };
        let suffix = if field.ends_with("buckets") { "" } else { " } }" };
        let column = prefix.len() + 1;
        let must_be = format!("{field} must be a whole number from {least} to 18446744073709551615");
        for given in WRONG.split(' ') {
            let expected = format!("1:{column}: {must_be}, not \"{given}\"");
            check(&[(&format!("{prefix}{given}{suffix}"), &[&expected])]);
        }
        let quoted = format!("1:{column}: {must_be}; remove the quotes");
        check(&[
            (&format!("{prefix}\"5\"{suffix}"), &[&quoted]),
            (&format!("{prefix}'5'{suffix}"), &[&quoted]),
        ]);
        let text = format!("1:{column}: {must_be}, not the text \"-5\"");
        check(&[(&format!("{prefix}\"-5\"{suffix}"), &[&text])]);
        let list = format!("1:{column}: {must_be}, not a list");
        check(&[(&format!("{prefix}[1]{suffix}"), &[&list])]);
        let mapping = format!("1:{column}: {must_be}, not a mapping");
        check(&[(&format!("{prefix}{{a: 1}}{suffix}"), &[&mapping])]);
        let nothing = format!("1:{}: {must_be}, but has no value", column - field.len() - 2);
        check(&[(&format!("{prefix}{suffix}"), &[&nothing])]);
    }
}

#[test]
fn every_number_is_a_clear_error_or_a_limit_at_every_extreme() {
    let extremes = [0, 1, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, u64::MAX];
    for number in extremes {
        for (template, accepts) in [
            ("limits: {}\nmax_buckets: #", number > 0),
            ("limits: {}\nmax_client_buckets: #", (1..=10_000_000).contains(&number)),
            ("limits: { A: { number: # } }", true),
            ("A: { burst: #, count: 1000000000, period: 1s }", (1..1 << 63).contains(&number)),
            ("A: { burst: 1, count: #, period: 1s }", (1..=1_000_000_000).contains(&number)),
            ("A: { burst: 1, count: 1, period: #ns }", (1..1 << 63).contains(&number)),
            ("A: { algorithm: quota, count: #, period: 1s }", number > 0),
            ("A: { algorithm: quota, count: 1, period: #ns }", (1..1 << 63).contains(&number)),
            ("A: { algorithm: sliding_log, count: #, period: 1s }", number == 1),
            ("A: { algorithm: fixed_window, count: #, period: 1s }", number > 0),
            ("A: { algorithm: fixed_window, count: 1, period: #ns }", (1..1 << 63).contains(&number)),
            ("A: { algorithm: fixed_window, count: 1, period: 1s, offset: #ns }", number < 1 << 63),
            ("A: { algorithm: sliding_window, count: #, period: 1s }", number == 1),
            ("A: { algorithm: sliding_window, count: 1, period: #ns }", (1..=1 << 53).contains(&number)),
            ("A: { algorithm: smoothed_rate, count: #, period: 1s }", (1..=1 << 53).contains(&number)),
            ("A: { algorithm: smoothed_rate, count: 1, period: #ns }", (1..=1 << 53).contains(&number)),
        ] {
            let text = template.replace('#', &number.to_string());
            let read = Config::parse(&text, "extreme");
            assert_eq!(read.is_ok(), accepts, "{text}\n{:?}", read.err().map(|errors| errors.to_string()));
        }
    }
}

#[test]
fn clients_cannot_have_more_buckets_than_there_are() {
    let problem = "max_client_buckets must be at most max_buckets, which is";
    check(&[
        ("limits: {}\nmax_client_buckets: 6\nmax_buckets: 5", &[&format!("2:21: {problem} 5, not 6")]),
        ("limits: {}\nmax_client_buckets: 10000001", &[&format!("2:21: {problem} 10000000, not 10000001")]),
        (
            "max_client_buckets: 0\nmax_buckets: -5",
            &[
                &format!("1:21: max_client_buckets {WHOLE}, not \"0\""),
                &format!("2:14: max_buckets {WHOLE}, not \"-5\""),
            ],
        ),
    ]);
}

#[test]
fn a_store_may_be_as_large_as_can_be_said() {
    let text = format!("max_buckets: {}\nlimits: {{ A: {{ burst: 1, count: 1, period: 1s }} }}", u64::MAX);
    let limiter = Limiter::from_yaml(&text).expect("a limiter");
    assert!(limiter.spend("A", "x", 1).expect("a charge").allowed());
}

#[test]
fn a_duration_has_a_unit() {
    let check_period = |given: &str, expected: &str| {
        let expected = format!("1:34: period {expected}");
        check(&[(&format!("A: {{ burst: 5, count: 5, period: {given} }}"), &[&expected])]);
    };
    for (given, expected) in [
        ("10", "\"10\" has no unit (did you mean \"10s\"?)"),
        ("0", "\"0\" has no unit (did you mean \"0s\"?)"),
        ("0s", "must be longer than \"0s\""),
        ("0h0m", "must be longer than \"0h0m\""),
        ("1fortnight", "\"1fortnight\": \"fortnight\" is not a unit of time; use ns, us, ms, s, m, h or d"),
        ("0.1ns", "\"0.1ns\": a duration must be a whole number of nanoseconds"),
        (
            "9223372036854775808ns",
            "\"9223372036854775808ns\": a duration must be at most 2562047h (292 years)",
        ),
    ] {
        check_period(given, expected);
    }
    for (given, meant) in
        [("5 minutes", "5m"), ("1 s", "1s"), ("1.5sec", "1.5s"), ("100 millis", "100ms"), ("1 day", "1d")]
    {
        check_period(given, &format!("{DURATION}, not \"{given}\" (did you mean \"{meant}\"?)"));
    }
    for given in ["-5s", "NaN", ".inf", "soon", "true", "~"] {
        check_period(given, &format!("{DURATION}, not \"{given}\""));
    }
    check_period("[1s]", &format!("{DURATION}, not a list"));
    check(&[(
        "A:\n  burst: 5\n  count: 5\n  period:\n",
        &[&format!("4:3: period {DURATION}, but has no value")],
    )]);
}

#[test]
fn a_rate_that_is_written_otherwise_is_told_how_it_is_written() {
    const RATE: &str = "a rate must be a count, \"/\" or \"per\", and a span, such as 10/s or 10 per 5 min";
    for (given, meant) in [
        ("100", Some("100/s")),
        ("10r/s", Some("10/s")),
        ("10 req/min", Some("10/m")),
        ("10rps", Some("10/s")),
        ("10 rpm", Some("10/m")),
        ("5 requests per hour", Some("5/h")),
        ("5 a day", Some("5/d")),
        ("3 every 10 seconds", Some("3/10s")),
        ("0.5/s", Some("5/10s")),
        ("1.5 per minute", Some("15/10m")),
        ("often", None),
        ("-5/s", None),
    ] {
        let hint = meant.map(|meant| format!(" (did you mean \"{meant}\"?)")).unwrap_or_default();
        let expected = format!("1:22: rate \"{given}\": {RATE}{hint}");
        check(&[(&format!("limits: {{ A: {{ rate: {given} }} }}"), &[&expected])]);
    }
    check(&[
        (
            "limits: { A: { rate: 10/fortnight } }",
            &[
                "1:22: rate \"10/fortnight\": the unit of a span must be ms, s, m, h or d, or its long name, such as 5 min",
            ],
        ),
        (
            "limits: { A: { rate: { count: 5 } } }",
            &["1:22: rate must be a rate, such as 100/h or 5 per minute, not a mapping"],
        ),
        (
            "limits: { A: { rate: } }",
            &["1:16: rate must be a rate, such as 100/h or 5 per minute, but has no value"],
        ),
        ("limits: { A: 100/h }", &["1:14: A must be a mapping, such as {rate: 100/h}, not \"100/h\""]),
        (
            "limits: { A: { burst: 5, count: 100 per minute, period: minute } }",
            &[
                &format!("1:33: count {WHOLE}, not \"100 per minute\" (did you mean \"rate: 100/m\"?)"),
                &format!("1:57: period {DURATION}, not \"minute\" (did you mean \"1m\"?)"),
            ],
        ),
        (
            "limits: { A: { limit: 100/h } }",
            &[
                "1:11: \"A\" has no burst and period; token_bucket needs burst, count and period, or a rate such as 100/h",
                "1:16: unknown field \"limit\" (did you mean \"count\"?)",
                &format!("1:23: limit {WHOLE}, not \"100/h\" (did you mean \"rate: 100/h\"?)"),
            ],
        ),
    ]);
}

#[test]
fn a_word_is_one_of_those_there_are() {
    check(&[
        (
            "limits: { A: { id: regid } }",
            &[
                "1:20: id must be ip, ipv6_prefix, number, domain, fqdnSet, any, ipAddress, ipv6RangeCIDR, regId, regId:domain or regId:fqdnSet, not \"regid\" \
               (did you mean \"regId\"?)",
            ],
        ),
        (
            "limits: { A: { id: ip, ipv6_prefix: 0 }, B: { id: ip, ipv6_prefix: 129 }, C: { id: ip, ipv6_prefix: /64 } }",
            &[
                "1:37: ipv6_prefix must be a whole number from 1 to 128, not \"0\"",
                "1:68: ipv6_prefix must be a whole number from 1 to 128, not \"129\"",
                "1:101: ipv6_prefix must be a whole number from 1 to 128, not \"/64\"",
            ],
        ),
        (
            "limits: { A: { id: ipAddress, ipv6_prefix: 64 }, B: { ipv6_prefix: 64 } }",
            &[
                "1:31: ipv6_prefix needs \"id: ip\", which this limit does not have",
                "1:55: ipv6_prefix needs \"id: ip\", which this limit does not have",
            ],
        ),
        ("limits: { A: { on_full: evict } }", &["1:25: on_full must be deny or allow, not \"evict\""]),
        (
            "limits: { A: { on_store_failure: [] } }",
            &["1:34: on_store_failure must be allow, deny or local, not a list"],
        ),
        (
            "limits: { A: { algorithm: smoothed_rate, rate: 1/s, strict: yes } }",
            &["1:61: strict must be true or false, not \"yes\""],
        ),
        (
            "limits: { A: { algorithm: smoothed_rate, rate: 1/s, strict: 'true' } }",
            &["1:61: strict must be true or false, not the text \"true\""],
        ),
    ]);
}

#[test]
fn a_gate_listens_on_every_interface_or_on_localhost() {
    let http = |given: &str| {
        let config = Config::parse(&format!("limits: {{}}\ngates: {{ http: {given} }}"), "gates.yaml");
        config.unwrap().gates.http.unwrap()
    };
    for (given, address) in [("localhost:8081", "127.0.0.1:8081"), ("'[::1]:8081'", "[::1]:8081")] {
        assert_eq!(http(given), address.parse().unwrap(), "{given}");
    }
    let everywhere = http(":8081");
    assert!(everywhere.ip().is_unspecified() && everywhere.port() == 8081, "{everywhere}");
    let has_ipv6 = std::net::TcpListener::bind("[::]:0").is_ok();
    assert_eq!(everywhere.is_ipv6(), has_ipv6);
}

#[test]
fn a_gate_is_an_address_or_off() {
    const ADDRESS: &str = "http must be an address and a port, such as 127.0.0.1:8080, or off";
    for (given, hint) in [
        ("8080", " (did you mean \"127.0.0.1:8080\", or \":8080\" for every interface?)"),
        ("'*:8080'", " (did you mean \"127.0.0.1:8080\", or \":8080\" for every interface?)"),
        ("0.0.0.0", " (did you mean \"0.0.0.0:8080\"?)"),
        ("::1", " (did you mean \"[::1]:8080\"?)"),
        ("false", " (did you mean \"off\"?)"),
        ("127.0.0.1:65536", ""),
        ("example.com:80", ""),
    ] {
        let expected = format!("2:9: {ADDRESS}, not \"{}\"{hint}", given.trim_matches('\''));
        check(&[(&format!("gates:\n  http: {given}"), &[&expected])]);
    }
    check(&[
        ("gates:", &["1:1: gates must be a mapping, such as {http: 127.0.0.1:8080}, but has no value"]),
        ("gates: off", &["1:8: gates must be a mapping, such as {http: 127.0.0.1:8080}, not \"off\""]),
        ("gates: { http: }", &[&format!("1:10: {ADDRESS}, but has no value")]),
    ]);
}

#[test]
fn limits_have_names_and_fields() {
    let name =
        "cannot be the name of a limit; use letters, digits, \"_\", \"-\" and \".\", but not only digits";
    check(&[
        ("limits: { 5: {} }", &[&format!("1:11: \"5\" {name}")]),
        ("limits: { 'a b': {} }", &[&format!("1:11: \"a b\" {name}")]),
        ("limits: { 'A:b': {} }", &[&format!("1:11: \"A:b\" {name}")]),
        ("limits: { \"a\\nb\": {} }", &[&format!("1:11: \"a\\nb\" {name}")]),
        (
            "limits: [A]",
            &[
                "1:9: limits must be a mapping, such as \"Name: {burst: 20, count: 20, period: 1s}\", not a list",
            ],
        ),
        ("limits: { A: 20/s }", &["1:14: A must be a mapping, such as {rate: 20/s}, not \"20/s\""]),
        (
            "limits: { A: {} }\nA: { burst: 1, count: 1, period: 1s }",
            &["2:1: limit \"A\" is given twice, first at 1:11"],
        ),
        // A name that cannot be one is not suggested either.
        (
            "limits: { \"A\\tB\": { number: 1 }, C: { number: 1 } }\nAB:1: { burst: 1, count: 1, period: 1s }",
            &[
                &format!("1:11: \"A\\tB\" {name}"),
                "1:47: number 1 is already used by limit \"A\\tB\", at 1:11",
                "2:1: limit \"AB\" does not exist; add it to \"limits\"",
            ],
        ),
        // Wrong as it is, it is the limit that the override means.
        (
            "limits: { A: 5 }\noverrides: { 'A:1': { burst: 1, count: 1, period: 1s } }",
            &["1:14: A must be a mapping, such as {burst: 20, count: 20, period: 1s}, not \"5\""],
        ),
    ]);
}

#[test]
fn an_override_is_for_a_limit_and_an_id_of_its_format() {
    let limits = "limits: { A: { id: regId }, Beta: {} }\n";
    let numbers = "{ burst: 1, count: 1, period: 1s }";
    let check_map = |key: &str, expected: &[&str]| {
        check(&[(&format!("{limits}overrides:\n  {key}: {numbers}"), expected)]);
    };
    check_map("C:1", &["3:3: limit \"C\" does not exist; add it to \"limits\""]);
    check_map("Bta:1", &["3:3: limit \"Bta\" does not exist (did you mean \"Beta\"?)"]);
    check_map("A", &["3:3: override \"A\" has no id; write \"A:id\""]);
    check_map("'A:'", &["3:3: limit \"A\": an id must not be empty"]);
    check_map("A:x", &["3:3: limit \"A\": id \"x\" is not a number, such as 12345678"]);
    check_map("A:1e3", &["3:3: limit \"A\": id \"1e3\" is not a number, such as 12345678"]);
    check_map(
        &format!("A:7: {numbers}\n  A:007"),
        &["4:3: limit \"A\" has two overrides for id \"7\", the first at 3:3"],
    );
    check_map(&format!("A:7: {numbers}\n  A:7"), &["4:3: \"A:7\" is given twice, first at 3:3"]);
    check(&[
        (
            "A: { burst: 1, count: 1, period: 1s }\nB:1: { burst: 1, count: 1, period: 1s }",
            &["2:1: limit \"B\" does not exist; add it to \"limits\""],
        ),
        (
            "overrides: { 'demo:1': { burst: 1, count: 1, period: 1s } }",
            &["1:14: limit \"demo\" does not exist; add it to \"limits\""],
        ),
        (
            "limits: { A: { algorithm: quota } }\noverrides: { 'A:1': { burst: 1, count: 1, period: 1s } }",
            &["2:23: quota does not take \"burst\", only count and period"],
        ),
        (
            "A:1: {}",
            &[
                "1:1: \"A:1\" has no burst, count and period; token_bucket needs burst, count and period, or a rate such as 100/h",
            ],
        ),
    ]);
}

#[test]
fn an_override_for_many_says_for_whom() {
    let limits = "limits: { A: { id: regId } }\noverrides:\n";
    let check_item = |item: &str, expected: &[&str]| check(&[(&format!("{limits}- {item}"), expected)]);
    let ids = |ids: &str| format!("A: {{ burst: 1, count: 1, period: 1s, ids: {ids} }}");
    check_item(
        "A: { burst: 1, count: 1, period: 1s }",
        &["3:3: override \"A\" has no ids; add them, such as ids: [10.0.0.2]"],
    );
    check_item(&ids("[]"), &["3:45: ids is empty; add at least one id"]);
    check_item(&ids("7"), &["3:45: ids must be a list of ids, such as [10.0.0.2], not \"7\""]);
    check_item(
        &ids("[7, { id: 007 }]"),
        &["3:55: limit \"A\" has two overrides for id \"7\", the first at 3:46"],
    );
    check_item(
        &ids("[{ comment: x }, { id: [], comment: [] }, []]"),
        &[
            "3:46: \"id\" is missing; an id is text, a number, or {id, comment}",
            "3:68: id must be text or a number, not a list",
            "3:81: comment must be text, not a list",
            "3:87: an id must be text or a number, or {id, comment}, not a list",
        ],
    );
    check_item(&ids("[{ id: 7, note: x }]"), &["3:55: unknown field \"note\"; an id has id and comment"]);
    check_item(
        &ids("['', x]"),
        &[
            "3:46: limit \"A\": an id must not be empty",
            "3:50: limit \"A\": id \"x\" is not a number, such as 12345678",
        ],
    );
    check_item(
        "B: { burst: 1, count: 1, period: 1s, ids: [x] }",
        &["3:3: limit \"B\" does not exist; add it to \"limits\""],
    );
    check_item(
        "5",
        &[
            "3:3: an override must be a mapping, such as \"Name: {burst: 20, count: 40, period: 1s, ids: [10.0.0.2]}\", not \"5\"",
        ],
    );
}

#[test]
fn yaml_that_is_none_is_explained() {
    check(&[
        ("limits\n  A: {}", &["2:4: unexpected \":\"; is one missing in the line above?"]),
        ("limits:\n\tA: {}", &["2:1: tabs cannot indent; use spaces"]),
        ("limits:\n  A:\n  \tburst: 3", &["3:3: tabs cannot indent; use spaces"]),
        ("limits:\n  A: {count: 1}\n\n  # é\n\tB: {}", &["5:1: tabs cannot indent; use spaces"]),
        ("limits: {A: {burst: 1}\n", &["2:1: expected \",\" or \"}\"; is a \"{\" not closed?"]),
        ("limits: [", &["2:1: expected a value; is a \"[\" or \"{\" not closed?"]),
        ("store: \"memory", &["1:8: this quote is not closed"]),
        ("A:\n    burst: 1\n   count: 2", &["3:4: expected a key, indented like the ones above"]),
        ("- a\nb: c", &["2:1: expected a \"-\", indented like the ones above"]),
        ("store: @here", &["1:8: a value cannot start with this character; put it in quotes"]),
        (
            "5",
            &[
                "1:1: a file must be a mapping with limits, overrides, keys, rewrite, rules, domains, envoy, store, max_buckets, max_client_buckets, gates, tokens, audit, otel, watch and show_ids, not a single text",
            ],
        ),
        (
            "store: memory\n---\nstore: memory",
            &["2:1: a second document starts here; a file can have only one"],
        ),
        ("store: memory\n# \0", &["2:3: the character U+0000 is not allowed here"]),
    ]);
}

#[test]
fn what_yaml_offers_and_nobody_needs_is_refused() {
    const ALIAS: &str = "aliases (\"*\") are not supported; write the value out, or put it in quotes";
    check(&[
        ("limits:\n  A: &a { burst: 1, count: 1, period: 1s }\n  B: *a", &[&format!("3:6: {ALIAS}")]),
        ("store: *b", &[&format!("1:8: {ALIAS}")]),
        (
            "limits:\n  A: { <<: { burst: 1 }, count: 1, period: 1s, burst: 1 }",
            &["2:8: merge keys (\"<<\") are not supported; write the fields out"],
        ),
        (
            "store: !!str memory",
            &["1:8: tags (\"!\") are not supported; remove it, or put the value in quotes"],
        ),
        ("? [store]\n: memory", &["1:3: a key must be plain text, not a list"]),
        (
            "store: memory\nstore: memory\n'store': memory",
            &["2:1: \"store\" is given twice, first at 1:1", "3:1: \"store\" is given twice, first at 1:1"],
        ),
    ]);
}

#[test]
fn all_errors_of_a_file_come_at_once_and_in_order() {
    check(&[(
        "\
max_buckets: 0
overrides:
  B:1: { burst: 1, count: 1, period: 1s }
  A:ten: { burst: 1, count: -1, period: 1s }
limits:
  A: { brust: 5, count: 5, period: 10, id: regId }
  A: {}
gates:
  http: 0.0.0.0
store: disk
",
        &[
            &format!("1:14: max_buckets {WHOLE}, not \"0\""),
            "3:3: limit \"B\" does not exist; add it to \"limits\"",
            "4:3: limit \"A\": id \"ten\" is not a number, such as 12345678",
            &format!("4:29: count {WHOLE}, not \"-1\""),
            "6:8: unknown field \"brust\" (did you mean \"burst\"?)",
            "6:36: period \"10\" has no unit (did you mean \"10s\"?)",
            "7:3: \"A\" is given twice, first at 6:3",
            "9:9: http must be an address and a port, such as 127.0.0.1:8080, or off, not \"0.0.0.0\" (did you mean \
             \"0.0.0.0:8080\"?)",
            "10:8: store must be memory, or a URL such as redis://cache:6379, not \"disk\"",
        ],
    )]);
}

#[test]
fn errors_can_be_taken_apart() {
    let errors = Config::parse("limits:\n  A: { burst: x }", "p.yaml").expect_err("x is no number");
    assert_eq!(errors.source_name(), "p.yaml");
    let places: Vec<_> = errors.errors().iter().map(|error| (error.line, error.column)).collect();
    assert_eq!(places, [(2, 3), (2, 15)]);
    assert_eq!(errors.errors()[1].message, format!("burst {WHOLE}, not \"x\""));
}

#[test]
fn a_long_value_is_quoted_in_part_and_on_one_line() {
    let long = "x".repeat(1_000);
    check(&[
        (
            &format!("store: {long}"),
            &[&format!(
                "1:8: store must be memory, or a URL such as redis://cache:6379, not \"{}…\"",
                &long[..60]
            )],
        ),
        (
            "limits: { A: { burst: \"1\\n2\" } }",
            &[
                "1:11: \"A\" has no count and period; token_bucket needs burst, count and period, or a rate such as 100/h",
                &format!("1:23: burst {WHOLE}, not the text \"1\\n2\""),
            ],
        ),
    ]);
}

#[test]
fn a_thousand_errors_are_enough() {
    let text: String = (0..1_500).map(|index| format!("unknown{index}: 1\n")).collect();
    let errors = Config::parse(&text, "p.yaml").expect_err("nothing of this is known");
    assert_eq!(errors.errors().len(), 1_000);
    assert!(errors.to_string().ends_with("\np.yaml: and 500 more"));
}

#[test]
fn a_file_that_is_too_large_or_too_deep_is_refused() {
    let refused = |text: &str| Config::parse(text, "p").expect_err("out of bounds").to_string();
    let large = format!("# {}", "x".repeat(16 << 20));
    assert_eq!(refused(&large), "p:1:1: a file can have at most 16777216 bytes, and this one has 16777218");
    assert_eq!(refused(&"[".repeat(100)), "p:1:34: values can nest at most 32 levels deep");
    assert_eq!(refused(&"- ".repeat(100_000)), "p:1:67: values can nest at most 32 levels deep");
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let errors = |path: &Path| ErrorChain(&Config::from_file(path).expect_err("unreadable")).to_string();
    let missing = directory.path().join("missing.yaml");
    let expected = format!("{}: cannot be read: No such file or directory (os error 2)", missing.display());
    assert_eq!(errors(&missing), expected);

    let latin = directory.path().join("latin.yaml");
    fs::write(&latin, b"store: memory\n# gr\xfc\xdfe\n").expect("a file");
    assert_eq!(errors(&latin), format!("{}:2:5: the file is not UTF-8 from here on", latin.display()));

    let bad = directory.path().join("bad.yaml");
    fs::write(&bad, "store: disk\n").expect("a file");
    assert!(errors(&bad).starts_with(&format!("{}:1:8: store must be", bad.display())));
}
