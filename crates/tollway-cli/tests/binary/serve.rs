//! A server in a process of its own, asked by the commands that ask.

use std::process::Command;

use crate::page::{Page, printed, shell};
use crate::run::{file, root, run, tollway};
use crate::serving::Serving;

#[test]
fn a_gate_listens_on_every_interface_or_on_localhost() {
    for (http, is_everywhere) in [(":0", true), ("localhost:0", false)] {
        let serving = Serving::start(&["--http", http], &[]);
        let address: std::net::SocketAddr = serving.addr.parse().unwrap();
        assert_eq!(address.ip().is_unspecified(), is_everywhere, "{http}: {address}");
        std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    }
}

#[test]
fn start_and_stop_are_logged_in_either_format() {
    for format in ["text", "json"] {
        let arguments = ["--http", "127.0.0.1:0", "--log-format", format];
        let serving = Serving::start(&arguments, &[("RUST_LOG", "info,tollway_server=debug")]);
        serving.signal("TERM");
        let (code, log) = serving.wait();
        assert_eq!(code, Some(0), "{log}");
        for said in ["server started", "draining: ", "drained"] {
            assert!(log.contains(said), "{format}: {said}: {log}");
        }
        for line in log.lines().filter(|_| format == "json") {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
        }
    }
}

#[test]
fn a_malformed_log_filter_is_refused() {
    for (filter, wrong) in [
        ("debugg=x=y", "debugg=x=y"),
        ("info,tollway_server=loud", "tollway_server=loud"),
        ("nonsense=", "nonsense="),
    ] {
        let output = tollway(&["serve"]).env("RUST_LOG", filter).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let expected = format!("tollway: RUST_LOG is not a log filter: \"{wrong}\"; it must be a level");
        assert!(stderr.starts_with(&expected), "{stderr}");
    }
}

const EVERYTHING: &str = "
max_buckets: 1000
limits: { Login: { burst: 5, count: 5, period: 1m } }
rules: { upload: \"Or('10/s', 'user:100/h')\" }
domains: { default: { rules: [{ rate: 1/s, burst: 10 }] } }
keys:
  - { match: '^ws global$', limit: 2500, period: 10s }
  - { match: '.*', answer: never }
";

#[test]
fn the_banner_shows_what_is_served_and_how_to_try_it() {
    let config = file("everything.yaml", EVERYTHING);
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    let expected = r#"tollway VERSION
  1 limit, 1 rule, 1 domain and 2 keys from FILE
  at most 1000 buckets in memory
  http     http://ADDR
  admin    http://ADDR
  text     udp ADDR
  throttr  tcp ADDR
  resp     redis://ADDR
  smockron zmq tcp://ADDR, control tcp://ADDR
  rls      grpc ADDR
Try:
  curl --json '{"limit":"Login","id":"alice"}' http://ADDR/v1/spend
  curl --json '{"selectors":{"user":"alice"}}' http://ADDR/v1/rules/upload
  tollway text --addr ADDR 'over_limit ws global'
  redis-cli -p PORT CL.THROTTLE alice 15 30 60
  tollway throttr insert alice api --quota 5 --ttl 10s --addr ADDR
"#;
    let banner = serving.banner().replace(&config, "FILE").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    assert_eq!(banner, expected);
}

#[test]
fn the_banner_says_where_the_paths_for_operators_are() {
    for (http, said) in [
        ("127.0.0.1:0", "no gate of its own; its paths and the console are at http://ADDR"),
        ("0.0.0.0:0", "off; its paths and the console are nowhere, unless started with --admin ADDR"),
    ] {
        let banner = Serving::start(&["--http", http, "--admin", "off"], &[]).banner();
        assert!(banner.contains(&format!("\n  admin    {said}\n")), "{http}: {banner}");
    }
}

#[test]
fn the_banner_suggests_only_what_is_allowed() {
    let deny = "gates: { resp: { listen: '127.0.0.1:0', inline: deny } }";
    for (limits, expected) in [
        ("limits: { Login: { rate: 5/m } }", Some("TOLL SPEND Login alice")),
        ("rules: { upload: 10/s }", None),
    ] {
        let config = file("deny.yaml", format!("{limits}\n{deny}\n"));
        let banner = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]).banner();
        let suggested = banner.split_once("redis-cli -p PORT ").and_then(|(_, rest)| rest.lines().next());
        assert_eq!(suggested, expected, "{banner}");
    }
}

#[test]
fn the_banner_suggests_nothing_if_there_is_nothing_to_try() {
    let config = file("rules.yaml", "rules: { upload: 10/s }");
    let arguments =
        ["--config", &config, "--http", "127.0.0.1:0", "--throttr", "off", "--resp", "off", "--rls", "off"];
    let banner = Serving::start(&arguments, &[]).banner();
    assert!(banner.contains("Try:\n  curl --json '{\"selectors\":{}}' "), "{banner}");
    let config = file("domains.yaml", "domains: { default: { rules: [{ rate: 1/s }] } }");
    let arguments =
        ["--config", &config, "--http", "127.0.0.1:0", "--throttr", "off", "--resp", "off", "--rls", "off"];
    let banner = Serving::start(&arguments, &[]).banner();
    assert!(banner.contains("  0 limits and 1 domain from ") && !banner.contains("Try"), "{banner}");
}

#[test]
fn the_banner_suggests_cargo_to_whoever_used_it() {
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[("CARGO_PKG_NAME", "tollway-cli")]);
    let banner = serving.banner();
    assert!(
        banner.contains("\n  cargo run -- throttr insert alice api --quota 5 --ttl 10s --addr "),
        "{banner}"
    );
}

#[test]
fn the_commands_answer_with_words_and_exit_codes() {
    let config = file(
        "ask.yaml",
        "limits: { L: { burst: 2, count: 2, period: 2160h }, M: { burst: 1, count: 1, period: 2160h } }",
    );
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"], &[]);
    for (arguments, code, answer) in [
        (&["spend", "L:a", "--cost", "2"][..], 0, "allow remaining=0 "),
        (&["spend", "L:a"], 1, "deny remaining=0 "),
        (&["spend", "L:b", "M:b"], 0, "allow remaining=0 "),
        (&["check", "L:b", "M:b"], 1, "deny remaining=0 "),
        (&["check", "L:a"], 1, "deny remaining=0 "),
        (&["check", "L:a", "--cost", "0"], 0, "allow remaining=0 "),
        (&["refund", "L:a"], 0, "ok remaining=1 "),
        (&["refund", "L:nobody"], 1, "full remaining=2 reset_after=0s"),
        (&["reset", "L:a"], 0, "ok\n"),
        (&["spend", "L:a", "--json"], 0, "{\"allowed\":true,\"remaining\":1,"),
        (
            &["spend", "Nobody:a"],
            2,
            "tollway: Unknown limit: limit \"Nobody\" does not exist; there are L, M\n",
        ),
        (
            &["spend", "L:a", "--cost", "1.5"],
            2,
            "error: invalid value '1.5' for '--cost <N>': costs are whole numbers; ",
        ),
        (&["check", "L:a", "--cost", "-1"], 2, "error: "),
        (&["inspect", "L", "a"], 2, "error: unexpected argument 'a' found"),
        (&["inspect", "L"], 2, "error: invalid value 'L' for '<LIMIT:ID>': must be a limit and an id"),
        (&["spend", "L:a", "--cost", "3"], 2, "tollway: Cost too high"),
        (
            &["spend", "L"],
            2,
            "tollway: invalid value 'L' for LIMIT:ID: must be a limit and an id, such as \"demo:alice\"\n",
        ),
        (&["spend"], 2, "error: the following required arguments were not provided:\n  <LIMIT:ID>"),
        (&["refund"], 2, "error: the following required arguments were not provided:\n  <LIMIT:ID>"),
    ] {
        let (got, words) = serving.ask(arguments);
        assert_eq!(got, code, "{arguments:?}: {words}");
        assert!(words.starts_with(answer), "{arguments:?}: {words}");
    }
}

#[test]
fn the_commands_ask_limits_and_rules_together() {
    let config = file(
        "bill.yaml",
        "
        limits: { L: { burst: 3, count: 3, period: 2160h } }
        rules: { upload: 'user:2/2160h', both: \"Or('user:5/2160h', 'apikey:1/2160h')\" }
        ",
    );
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"], &[]);
    for (arguments, code, answer) in [
        (&["check", "L:a", "--rule", "upload", "user=vova"][..], 0, "allow remaining=2 "),
        (&["spend", "L:a", "--rule", "upload", "user=vova"], 0, "allow remaining=2 "),
        (&["spend", "--rule", "upload", "user=vova"], 0, "allow\n"),
        (&["spend", "L:a", "--rule", "upload", "user=vova"], 1, "deny retry_after=77759"),
        (
            &["spend", "--rule", "upload", "user=vova", "--json"],
            1,
            "{\"allowed\":false,\"retry_after\":77759",
        ),
        (&["check", "L:a", "--cost", "0"], 0, "allow remaining=2 "),
        (
            &[
                "spend", "L:a", "--cost", "2", "--rule", "both", "user=a", "apikey=k", "--rule", "upload",
                "user=a",
            ],
            0,
            "allow remaining=0 ",
        ),
        (&["check", "--rule", "both", "user=b", "apikey=k"], 1, "deny retry_after=77759"),
        (&["check", "--rule", "both", "user=b", "apikey="], 0, "allow\n"),
        (&["check", "L:a", "--rule", "upload", "user=b=c:d"], 1, "deny remaining=0 "),
        (
            &["spend", "L:a", "--rule", "nope"],
            2,
            "tollway: Unknown rule: rule \"nope\" does not exist; there are upload, both\n",
        ),
        (
            &["spend", "L:a", "--rule", "upload"],
            2,
            "tollway: Missing selector: rule \"upload\" needs a value for",
        ),
        (
            &["spend", "--rule", "upload", "user=b", "L:a=b"],
            2,
            "error: invalid value 'L:a=b' for '--rule <NAME> [SELECTOR=VALUE]...': write LIMIT:ID before --rule\n",
        ),
        (&["spend", "--rule", "user=b"], 2, "tollway: --rule needs the name of a rule before \"user=b\"\n"),
        (&["refund", "L:a", "--rule", "upload"], 2, "error: unexpected argument '--rule' found"),
    ] {
        let (got, words) = serving.ask(arguments);
        assert_eq!(got, code, "{arguments:?}: {words}");
        assert!(words.starts_with(answer), "{arguments:?}: {words}");
    }
    let (_, words) = serving.ask(&["check", "L:a", "--cost", "0", "--rule", "upload", "user=vova"]);
    assert!(words.ends_with(" rule=upload\n"), "{words}");
    let (_, words) = serving.ask(&["check", "L:a", "--rule", "upload", "user=nobody"]);
    assert!(words.ends_with(" limit=L\n"), "{words}");
}

#[test]
fn the_commands_bring_the_numbers_of_a_limit() {
    let serving = Serving::start(&["--http", "127.0.0.1:0", "--workers", "1"], &[]);
    let numbers = ["--burst", "5", "--count", "10", "--period"];
    let with = |verb, id, period, more: &[&'static str]| {
        [&[verb, id][..], &numbers, &[period], more].concat().into_iter().collect::<Vec<&str>>()
    };
    for (arguments, code, answer) in [
        (with("spend", "user:alice", "2160h", &["--cost", "4"]), 0, "allow remaining=1 "),
        (with("spend", "user:alice", "7776000", &["--cost", "2"]), 1, "deny remaining=1 "),
        (with("check", "user:alice", "2160h", &["--json"]), 0, "{\"allowed\":true,\"remaining\":0,"),
        (with("refund", "user:alice", "2160h", &[]), 0, "ok remaining=2 "),
        (with("spend", "user:alice", "2160h", &["--rule", "demo", "user=a"]), 0, "allow remaining=1 "),
        (with("reset", "user:alice", "2160h", &[]), 0, "ok\n"),
        (
            vec!["check", "user:alice", "--count", "7", "--period", "1m", "--cost", "0"],
            0,
            "allow remaining=7 ",
        ),
        (with("spend", "a", "0s", &[]), 2, "tollway: period must be above zero\n"),
        (
            with("spend", "a", "1x", &[]),
            2,
            "error: invalid value '1x' for '--period <TIME>': \"x\" is not a unit",
        ),
        (vec!["spend", "a", "--count", "7"], 2, "error: the following required arguments were not provided"),
        (vec!["spend", "a", "--burst", "7"], 2, "error: the following required arguments were not provided"),
        (
            vec!["spend", "a", "--count", "0", "--period", "1s"],
            2,
            "error: invalid value '0' for '--count <N>': 0 is not in 1..",
        ),
    ] {
        let (got, words) = serving.ask(&arguments);
        assert_eq!(got, code, "{arguments:?}: {words}");
        assert!(words.starts_with(answer), "{arguments:?}: {words}");
    }
}

#[test]
fn a_bucket_can_be_looked_at() {
    let config = file(
        "inspect.yaml",
        "
        limits:
          L: { burst: 2, count: 2, period: 2160h, number: 7 }
          Log: { algorithm: sliding_log, count: 1, period: 2160h }
          Rate: { algorithm: smoothed_rate, count: 10, period: 2160h }
          Quota: { algorithm: quota, count: 5, period: 2160h }
          Fixed: { algorithm: fixed_window, count: 5, period: 200000h, offset: 1h }
          Sliding: { algorithm: sliding_window, count: 5, period: 200000h }
          Nothing: {}
        ",
    );
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"], &[]);
    for bucket in ["L:a", "L:a", "Log:a", "Rate:a", "Quota:a", "Fixed:a", "Sliding:a"] {
        assert_eq!(serving.ask(&["spend", bucket]).0, 0, "{bucket}");
    }
    for (arguments, words) in [
        (
            ["inspect", "L:a"],
            &[
                "bucket     7:a\n",
                "limit      token_bucket, burst 2, 2 per 2160h: one per 1080h, full after 2160h\n",
                "remaining  0\nnext unit  in 3887999.",
                "full       in 7775999.",
                "state      full_at 20",
                "as of      20",
            ][..],
        ),
        (
            ["inspect", "L:b"],
            &["remaining  2\nnext unit  now\nfull       now\nstate      none; the bucket is unused"],
        ),
        (["inspect", "Log:a"], &["remaining  0\n", "state      entries 1, oldest 20"]),
        (["inspect", "Rate:a"], &["remaining  9\n", "state      rate 0", ", measured_at 20"]),
        (["inspect", "Quota:a"], &["remaining  4\n", "state      used 1, expires_at 20"]),
        (
            ["inspect", "Fixed:a"],
            &[
                "limit      fixed_window, 5 per 200000h: in each 200000h of the clock, shifted by 1h\n",
                "remaining  4\n",
                "state      used 1, ends_at 20",
            ],
        ),
        (
            ["inspect", "Sliding:a"],
            &[
                "limit      sliding_window, 5 per 200000h: in the last 200000h, estimated\n",
                "remaining  4\n",
                "state      current 1, previous 0, ends_at 20",
            ],
        ),
        (
            ["inspect", "Nothing:a/ü +&"],
            &["bucket     Nothing:a/\\xc3\\xbc +&\nlimit      none; this id is unlimited\n"],
        ),
    ] {
        let (code, answer) = serving.ask(&arguments);
        assert_eq!(code, 0, "{arguments:?}: {answer}");
        for words in words {
            assert!(answer.contains(words), "{arguments:?}: {words}: {answer}");
        }
    }
    for (arguments, code, answer) in [
        (
            &["inspect", "L:a", "--json"][..],
            0,
            "{\"bucket\":\"7:a\",\"algorithm\":{\"name\":\"token_bucket\",",
        ),
        (&["inspect", "Nobody:a"], 2, "tollway: Unknown limit: limit \"Nobody\" does not exist"),
        (&["keys"], 2, "tollway: The memory store cannot list buckets: it keeps only hashes of ids"),
        (&["keys", "Nobody"], 2, "tollway: Unknown limit"),
        (&["keys", "--count", "many"], 2, "error: invalid value 'many'"),
    ] {
        let (got, words) = serving.ask(arguments);
        assert_eq!(got, code, "{arguments:?}: {words}");
        assert!(words.starts_with(answer), "{arguments:?}: {words}");
    }
}

#[test]
fn nobody_there_is_exit_2() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = run(&["spend", "L:a", "--addr", &free]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains(&format!("no server at {free}; start one with")), "{}", ran.stderr);
}

#[test]
fn a_flag_comes_before_the_environment_and_both_before_the_file() {
    let config = file(
        "precedence.yaml",
        "gates: { http: 203.0.113.1:1 }\nmax_buckets: 1\nlimits: { L: { burst: 2, count: 2, period: 1s } }",
    );
    let environment =
        [("TOLLWAY_CONFIG", &*config), ("TOLLWAY_HTTP", "127.0.0.1:0"), ("TOLLWAY_MAX_BUCKETS", "70")];
    let serving = Serving::start(&["--max-buckets", "80"], &environment);
    assert!(
        serving.printed.contains("1 limit from") && serving.printed.contains("at most 80 buckets"),
        "{}",
        serving.printed
    );
}

#[test]
fn what_cannot_be_served_is_exit_2() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_addr = taken.local_addr().unwrap().to_string();
    let wrong = file("wrong.yaml", "limits: { L: { burst: 0, count: 2, period: 1s } }");
    for (arguments, reason) in [
        (&["serve", "--http", &taken_addr][..], "the port is in use"),
        (
            &["serve", "--max-buckets", "5", "--max-client-buckets", "6"],
            "max_client_buckets must be at most max_buckets, which is 5, not 6",
        ),
        (
            &[
                "serve",
                "--http",
                "off",
                "--admin",
                "off",
                "--text",
                "off",
                "--throttr",
                "off",
                "--smockron",
                "off",
                "--rls",
                "off",
                "--resp",
                "off",
            ],
            "every gate is off",
        ),
        (&["serve", "--http", "0.0.0.0"], "did you mean \"0.0.0.0:8080\""),
        (&["serve", "--log-format", "xml"], "[possible values: text, json]"),
        (&["serve", "--config", &wrong], "wrong.yaml:1:23: burst must be"),
        (&["serve", "--workers", "0"], "0 is not in 1..=1024"),
        (&["serve", "--max-buckets", "0"], "must be a whole number of at least 1"),
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn more_connections_than_the_shell_allows_files_are_served() {
    use std::io::{Read, Write};
    let limited = format!(
        "ulimit -Sn 100; exec {} serve --http 127.0.0.1:0 --admin off --text off --throttr off --smockron off --rls off --resp off",
        env!("CARGO_BIN_EXE_tollway")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]);
    shell.env_remove("RUST_LOG");
    let serving = Serving::start_command(shell);
    let mut clients: Vec<_> =
        (0..300).map(|_| std::net::TcpStream::connect(&serving.addr).unwrap()).collect();
    for client in &mut clients {
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
}

#[test]
fn files_for_the_largest_gate_are_enough_for_a_start_without_a_warning() {
    for (files, warns) in [(11_000, false), (10_000, true)] {
        let gates = ["http", "admin", "text", "throttr", "resp", "smockron", "rls"]
            .map(|gate| format!("--{gate} 127.0.0.1:0"));
        let limited =
            format!("ulimit -n {files} && exec {} serve {}", env!("CARGO_BIN_EXE_tollway"), gates.join(" "));
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited]);
        shell.env_remove("RUST_LOG");
        let serving = Serving::start_command(shell);
        serving.signal("TERM");
        let (code, log) = serving.wait();
        assert_eq!((code, log.contains("the open file limit is lower")), (Some(0), warns), "{files}: {log}");
    }
}

#[test]
fn a_port_is_not_shared_with_another_server() {
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let ran = run(&["serve", "--http", &serving.addr]);
    let expected = format!(
        "tollway: the http gate cannot listen on {}: the port is in use by tollway (process {}); stop it, or choose \
         another address with --http ADDR\n",
        serving.addr,
        serving.id()
    );
    // Before it, there may be a warning about the limit of open files.
    assert!(ran.code == 2 && ran.stderr.ends_with(&expected), "{}: {}", ran.code, ran.stderr);
}

#[test]
fn a_hang_up_reloads_and_a_bad_file_changes_nothing() {
    let config = file("reload.yaml", "limits: { Old: { burst: 2, count: 2, period: 1h } }");
    let mut serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    file("reload.yaml", "store: redis://nowhere\nlimits: { New: { burst: 2, count: 2, period: 1h } }");
    serving.signal("HUP");
    serving.wait_for(|serving| serving.ask(&["check", "New:a"]).0 == 0);
    assert_eq!(serving.ask(&["check", "Old:a"]).0, 2);
    file("reload.yaml", "limits:\n  New: { brust: 2 }");
    serving.signal("HUP");
    serving.wait_for(|serving| {
        let curl = Command::new("curl").args(["-s", &format!("http://{}/metrics", serving.admin)]).output();
        let page = String::from_utf8(curl.unwrap().stdout).unwrap();
        let failed = "tollway_reloads_total{outcome=\"failed\"}";
        page.contains(failed) && !page.contains(&format!("{failed} 0\n"))
    });
    assert_eq!(serving.ask(&["check", "New:a"]).0, 0);
    serving.signal("INT");
    let (code, log) = serving.wait();
    assert_eq!(code, Some(0));
    assert!(log.contains("reload.yaml:2:") && log.contains("brust"), "{log}");
    assert!(
        log.contains(
            "changes of store, max_buckets, max_client_buckets, gates, tokens, audit, otel, watch and show_ids take effect after a restart"
        ),
        "{log}"
    );
}

#[test]
fn the_example_policy_is_served() {
    let policy = root().join("examples/policy.yaml");
    let serving = Serving::start(&["--config", policy.to_str().unwrap(), "--http", "127.0.0.1:0"], &[]);
    let (code, words) = serving.ask(&["spend", "LoginsPerAccount:alice", "RequestsPerIPAddress:192.0.2.7"]);
    assert!(code == 0 && words.starts_with("allow remaining=4 "), "{words}");
}

#[test]
fn the_session_on_the_first_page_happens_as_shown() {
    let page = Page::read("README.md");
    let shown = page.blocks("console")[1];
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let commands = shown.lines().filter_map(|line| line.strip_prefix("$ "));
    let happened: String = commands
        .map(|command| {
            let here = command.replace("127.0.0.1:8080", &serving.addr);
            format!("$ {command}\n{}", printed(&mut shell(&here)))
        })
        .collect();
    assert_eq!(without_spans(&happened), without_spans(shown));
}

/// The text without its spans of time: how long after the first request the second came is not for a page to know.
fn without_spans(text: &str) -> String {
    let number = |byte: char| byte.is_ascii_digit() || byte == '.';
    let parts = text.split("_after\":").map(|part| part.trim_start_matches(number));
    parts.collect::<Vec<_>>().join("_after\":")
}

#[test]
fn every_decision_is_logged_at_debug() {
    let config =
        file("decisions.yaml", "limits: { L: { burst: 1, count: 1, period: 2160h } }\nrules: { r: 1/s }");
    let arguments = ["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"];
    let serving = Serving::start(&arguments, &[("RUST_LOG", "tollway::decisions=debug")]);
    assert_eq!(serving.ask(&["spend", "L:a b"]).0, 0);
    assert_eq!(serving.ask(&["check", "L:a b"]).0, 1);
    let throttr = serving.printed.lines().find(|line| line.trim().starts_with("throttr")).unwrap();
    let throttr = &throttr[throttr.find("127.0.0.1:").unwrap()..];
    let ran = run(&["throttr", "query", "bob", "/x", "--addr", throttr.split(' ').next().unwrap()]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    serving.signal("TERM");
    let (_, log) = serving.wait();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("tollway::decisions")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    let quota = ["quota", "gate=\"throttr\"", "bob", "/x\"", "command=Query", "reply=Status(false)"];
    assert!(quota.iter().all(|part| lines[2].contains(part)), "{}", lines[2]);
    for (line, parts) in [
        (
            lines[0],
            ["spend", "gate=\"http\"", "limit=\"L\"", "id=\"a b\"", "cost=1", "verdict=Allow", "remaining=0"],
        ),
        (
            lines[1],
            ["check", "gate=\"http\"", "limit=\"L\"", "id=\"a b\"", "cost=1", "verdict=Deny", "retry_after="],
        ),
    ] {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}
