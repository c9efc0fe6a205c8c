//! Tokens from the command that makes them to the server that asks for them, and what shows none of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::page::{Page, printed, shell};
use crate::run::{Ran, file, run, run_in, tollway};
use crate::serving::Serving;

const LIMITS: &str = "limits: { login: { burst: 5, count: 5, period: 1m } }\n";

/// Returns an empty folder of this test.
fn folder() -> PathBuf {
    let folder = Path::new(&file("none", "")).parent().unwrap().to_owned();
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Makes a token, adds it to the token file of the folder, and returns it.
fn token(folder: &Path, arguments: &[&str]) -> String {
    let ran = run_in(folder, &[&["token"], arguments, &["--append", "tokens.txt"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.trim_end().to_owned()
}

#[test]
fn the_token_goes_to_standard_output_and_the_rest_can_be_added_to_a_token_file() {
    let folder = folder();
    let Ran { code, stdout, stderr } =
        run_in(&folder, &["token", "shop", "--scope", "read,decide", "--limits", "shop-*,login"]);
    assert_eq!(code, 0);
    let secret = stdout.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("tw_") && secret.len() == 67, "{secret}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "# The token of shop is for the client, and is not shown again.",
            "# This line is for the token file of the server:"
        ]
    );
    assert!(
        lines[2].starts_with("shop sha256:") && lines[2].ends_with(" decide,read shop-*,login"),
        "{stderr}"
    );
    assert!(!stderr.contains(&secret[3..]));
    let valid = |folder: &Path| {
        fs::write(folder.join("tollway.yaml"), format!("tokens: tokens.txt\n{LIMITS}")).unwrap();
        run_in(folder, &["validate", "tollway.yaml"])
    };
    fs::write(folder.join("tokens.txt"), &stderr).unwrap();
    let ran = valid(&folder);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("http 127.0.0.1:8080 (tokens tokens.txt), "), "{}", ran.stdout);
    assert!(!ran.stdout.contains("sha256"), "{}", ran.stdout);

    fs::remove_file(folder.join("tokens.txt")).unwrap();
    token(&folder, &["ops", "--scope", "admin"]);
    let mode = fs::metadata(folder.join("tokens.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = run_in(&folder, &["token", "ops", "--scope", "read", "--append", "tokens.txt"]);
    assert_eq!((again.code, &*again.stdout), (2, ""));
    assert_eq!(again.stderr, "tollway: tokens.txt:2:1: another line has the same name\n");
    assert_eq!(valid(&folder).code, 0);
    fs::write(folder.join("tokens.txt"), format!("shop {secret} decide\n")).unwrap();
    let ran = valid(&folder);
    let expected = "tollway.yaml:1:9: tokens.txt:1:6: a digest is sha256: and 64 hexadecimal digits, as \"tollway token\" prints it\n";
    assert_eq!((ran.code, &*ran.stderr), (1, expected));
    for (arguments, problem) in [
        (&["token", "two words", "--scope", "read"][..], "a name is 1 to 64 letters"),
        (&["token", "shop", "--scope", "write"], "a scope is decide, refund, read or admin"),
        (&["token", "shop", "--scope", "read", "--limits", "a,,b"], "limits are patterns of names"),
        (&["token", "shop"], "--scope"),
    ] {
        let ran = run(arguments);
        assert!(ran.code == 2 && ran.stderr.contains(problem), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn commands_send_the_token_of_a_file_or_of_the_environment() {
    let folder = folder();
    let secret = token(&folder, &["shop", "--scope", "decide,read"]);
    fs::write(folder.join("shop.token"), format!("{secret}\n")).unwrap();
    let config = file("tollway.yaml", format!("tokens: tokens.txt\n{LIMITS}"));
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    let ask = |arguments: &[&str], token: Option<(&str, &str)>| {
        let mut command = tollway(arguments);
        command.env("TOLLWAY_ADDR", &serving.addr).env("TOLLWAY_ADMIN_ADDR", &serving.admin);
        let output = command.envs(token).current_dir(&folder).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains(&secret), "{text}");
        (output.status.code().unwrap(), text)
    };
    for (arguments, ok) in [
        (&["spend", "login:alice"][..], true),
        (&["check", "login:alice"], true),
        (&["inspect", "login:alice"], true),
        (&["explain", "10/s"], true),
        (&["refund", "login:alice"], false),
        (&["reset", "login:alice"], false),
    ] {
        let by_flag = ask(&[arguments, &["--token-file", "shop.token"]].concat(), None);
        let by_file = ask(arguments, Some(("TOLLWAY_TOKEN_FILE", "shop.token")));
        let by_variable = ask(arguments, Some(("TOLLWAY_TOKEN", &secret)));
        for (code, text) in [by_flag, by_file, by_variable] {
            assert_eq!(code == 0, ok, "{arguments:?}: {text}");
            assert_eq!(text.contains("The token lacks a scope: "), !ok, "{arguments:?}: {text}");
        }
        let (code, text) = ask(arguments, None);
        assert!(code == 2 && text.contains("A token is needed: "), "{arguments:?}: {text}");
        let (code, text) = ask(arguments, Some(("TOLLWAY_TOKEN", "tw_wrong")));
        assert!(code == 2 && text.contains("The token is not known: "), "{arguments:?}: {text}");
    }
    let (code, text) = ask(&["spend", "login:alice", "--token-file", "nowhere"], None);
    assert!(code == 2 && text.starts_with("tollway: the token cannot be read from nowhere"), "{text}");
    let (code, text) = ask(&["spend", "login:alice"], Some(("TOLLWAY_TOKEN", "two words")));
    assert!(code == 2 && text.starts_with("tollway: a token has 1 to 512 bytes"), "{text}");
}

/// Everything is logged, and nothing that is logged, printed or measured has a token in it.
#[test]
fn no_token_is_logged_printed_or_measured() {
    let folder = folder();
    let secrets = ["decide", "admin"].map(|scope| token(&folder, &[scope, "--scope", scope]));
    let config = file("tollway.yaml", format!("tokens: tokens.txt\naudit: audit.log\n{LIMITS}"));
    let serving = Serving::start(
        &["--config", &config, "--http", "127.0.0.1:0", "--log-format", "json"],
        &[("RUST_LOG", "trace")],
    );
    let wrong = "tw_not-in-the-file-but-a-secret-of-somebody";
    let body = r#"{"limit":"login","id":"alice"}"#;
    let mut seen = String::new();
    for secret in secrets.iter().map(|secret| &**secret).chain([wrong]) {
        for (address, path) in [
            (&serving.addr, "spend"),
            (&serving.addr, "refund"),
            (&serving.admin, "reset"),
            (&serving.admin, "explain"),
        ] {
            let mut curl = Command::new("curl");
            curl.args(["-s", "-i", "-H", &format!("Authorization: Bearer {secret}"), "--json", body]);
            seen += &printed(curl.arg(format!("http://{address}/v1/{path}")));
        }
        let port = serving.printed.split("redis://127.0.0.1:").nth(1).unwrap().lines().next().unwrap();
        let mut redis = Command::new("redis-cli");
        redis.args(["-p", port, "TOLL", "SPEND", "login", "alice"]).env("REDISCLI_AUTH", secret);
        seen += &printed(&mut redis);
    }
    let mut curl = Command::new("curl");
    curl.args(["-s", "-H", &format!("Authorization: Bearer {}", secrets[1])]);
    seen += &printed(curl.arg(format!("http://{}/metrics", serving.admin)));
    assert!(seen.contains("tollway_access_denied_total{reason=\"unknown_token\"}"), "{seen}");
    // A file in which somebody put a token in the place of its digest.
    let good = fs::read_to_string(folder.join("tokens.txt")).unwrap();
    fs::write(folder.join("tokens.txt"), format!("{good}web {wrong} decide\n")).unwrap();
    let ran = run(&["validate", &config]);
    assert_eq!(ran.code, 1);
    seen += &(ran.stdout + &ran.stderr);
    serving.signal("HUP");
    let mut serving = serving;
    let failed = |serving: &Serving| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-H", &format!("Authorization: Bearer {}", secrets[1])]);
        let page = printed(curl.arg(format!("http://{}/metrics", serving.admin)));
        !page.contains("tollway_reloads_total{outcome=\"failed\"} 0\n")
    };
    serving.wait_for(failed);
    serving.signal("TERM");
    seen += &serving.printed.clone();
    let (code, log) = serving.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("tokens not reloaded") && log.contains("\"target\":\"audit\""), "{log}");
    seen += &log;
    let audit = fs::read_to_string(folder.join("audit.log")).unwrap();
    assert!(audit.contains(r#""who":"admin","what":"reset","gate":"admin""#), "{audit}");
    seen += &audit;
    for secret in secrets.iter().map(|secret| &**secret).chain([wrong]) {
        let found = seen.lines().find(|line| line.contains(&secret[3..]));
        assert_eq!(found, None, "a token is shown");
    }
}

#[test]
fn a_token_goes_to_a_new_file_that_only_its_owner_can_read() {
    let folder = folder();
    let make = |name: &str| {
        run_in(
            &folder,
            &["token", name, "--scope", "decide", "--append", "tokens.txt", "--out", "shop.token"],
        )
    };
    let ran = make("shop");
    assert_eq!((ran.code, &*ran.stdout), (0, ""), "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("# The token of shop is in shop.token, for the client.\n"),
        "{}",
        ran.stderr
    );
    let path = folder.join("shop.token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = fs::read_to_string(&path).unwrap();
    let ran = make("other");
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "tollway: shop.token exists already; a token is written to a new file\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), secret);
    assert!(
        !fs::read_to_string(folder.join("tokens.txt")).unwrap().contains("other"),
        "no line without a token"
    );
    // And no token without a line: the name is taken.
    let again = ["token", "shop", "--scope", "decide", "--append", "tokens.txt", "--out", "again.token"];
    assert_eq!(run_in(&folder, &again).code, 2);
    assert!(!folder.join("again.token").exists());
}

#[test]
fn commands_say_how_to_send_a_token() {
    let folder = folder();
    let secret = token(&folder, &["shop", "--scope", "decide"]);
    fs::write(folder.join("tollway.yaml"), format!("tokens: tokens.txt\n{LIMITS}")).unwrap();
    fs::write(folder.join("shop.token"), secret).unwrap();
    let config = folder.join("tollway.yaml").to_str().unwrap().to_owned();
    let flags = ["--config", &config, "--http", "127.0.0.1:0"];
    let banner = Serving::start(&flags, &[]).banner();
    assert!(banner.contains("| curl --config - --json"), "no token in arguments: {banner}");
    assert!(!banner.contains(" -H "), "{banner}");
    let serving = Serving::start(&flags, &[]);
    let (code, said) = serving.ask(&["spend", "login:a"]);
    assert!(
        code == 2
            && said
                .ends_with("\nhint: name the file with a token by --token-file FILE, or set TOLLWAY_TOKEN\n"),
        "{said}"
    );
    let shop = folder.join("shop.token");
    let shop = ["--token-file", shop.to_str().unwrap()];
    let (code, said) = serving.ask(&[&["refund", "login:a"][..], &shop].concat());
    assert!(
        code == 2 && said.contains("\nhint: name a file with another token by --token-file FILE"),
        "{said}"
    );
    let bench = ["bench", "http", "--limit", "login", "--requests", "10", "--connections", "2"];
    let (code, said) = serving.ask(&[&bench[..], &shop].concat());
    assert_eq!(code, 0, "{said}");
    let (code, said) = serving.ask(&bench);
    assert_eq!(code, 1, "every reply is an error: {said}");
    let resp = serving.printed.split("redis://").nth(1).unwrap().lines().next().unwrap();
    let bench =
        ["bench", "resp", "--command", "ping", "--requests", "10", "--connections", "2", "--addr", resp];
    let ran = run(&[&bench[..], &shop].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    fs::write(folder.join("wrong.token"), format!("tw_{}", "0".repeat(64))).unwrap();
    let wrong = folder.join("wrong.token");
    let ran = run(&[&bench[..], &["--token-file", wrong.to_str().unwrap()]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("WRONGPASS"), "{}", ran.stderr);
}

#[test]
fn validate_reads_the_files_that_a_configuration_names() {
    let folder = folder();
    let validate = |yaml: &str, flags: &[&str]| {
        fs::write(folder.join("tollway.yaml"), yaml).unwrap();
        run_in(&folder, &[&["validate", "tollway.yaml"], flags].concat())
    };
    fs::write(folder.join("tokens.txt"), "# nobody yet\n").unwrap();
    let ran = validate(&format!("{LIMITS}tokens: tokens.txt\n"), &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("tollway.yaml:2:9: warning: the token file has no tokens"),
        "{}",
        ran.stderr
    );
    fs::write(folder.join("tokens.txt"), "shop\n").unwrap();
    let ran = validate(&format!("{LIMITS}tokens: tokens.txt\n"), &[]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("tollway.yaml:2:9: tokens.txt:1:5: the digest is missing"),
        "{}",
        ran.stderr
    );
    let hmac = format!("{LIMITS}gates:\n  text: {{ hmac: {{ keys: keys.txt }} }}\n");
    let ran = validate(&hmac, &[]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("tollway.yaml:3:25: the keys of the text gate cannot be read"),
        "{}",
        ran.stderr
    );
    fs::write(folder.join("keys.txt"), format!("web {}\n", "5ec4e7".repeat(8))).unwrap();
    fs::set_permissions(folder.join("keys.txt"), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = validate(&hmac, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("tollway.yaml:3:25: warning: every user"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("5ec4e7"), "{}", ran.stderr);
    let open = format!("{LIMITS}gates: {{ http: 0.0.0.0:0 }}\n");
    assert_eq!(validate(&open, &[]).code, 0);
    let ran = validate(&open, &["--require-auth"]);
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    assert!(ran.stderr.starts_with("tollway.yaml: the http gate at 0.0.0.0:0 is open: "), "{}", ran.stderr);
}

#[test]
fn an_open_gate_is_a_warning_and_with_require_auth_an_error() {
    let config = file("tollway.yaml", format!("{LIMITS}gates: {{ http: 0.0.0.0:0, text: 127.0.0.1:0 }}\n"));
    let open = "the http gate at 0.0.0.0:0 is open: everybody who can reach it can use up and refund the limits of every \
                id; set \"tokens\", or \"tls\" with \"client_ca\", or listen on loopback";
    let ran = run(&["validate", &config]);
    assert_eq!(ran.stderr, format!("{config}: warning: {open}\n"));
    for (flags, environment) in
        [(&["--require-auth"][..], None), (&[], Some(("TOLLWAY_REQUIRE_AUTH", "true")))]
    {
        let mut command = tollway(&["serve", "--config", &config]);
        let output = command.args(flags).envs(environment).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.ends_with(&format!("tollway: cannot start the server: {open}\n")), "{stderr}");
    }
    let folder = folder();
    token(&folder, &["shop", "--scope", "decide"]);
    let yaml = format!("{LIMITS}tokens: tokens.txt\ngates: {{ http: 0.0.0.0:0, resp: 127.0.0.1:0 }}\n");
    fs::write(folder.join("tollway.yaml"), yaml).unwrap();
    let ran = run_in(&folder, &["validate", "tollway.yaml"]);
    let plain = "tollway.yaml: warning: the tokens of the http gate at 0.0.0.0:0 cross the network as plain text, and \
                 everybody who can read the traffic can use them; set \"tls\"\n";
    assert_eq!((ran.code, &*ran.stderr), (0, plain));
    let closed = file("closed.yaml", format!("{LIMITS}gates: {{ http: 127.0.0.1:0, text: 127.0.0.1:0 }}\n"));
    let serving = Serving::start(&["--config", &closed, "--require-auth"], &[]);
    serving.signal("TERM");
    assert_eq!(serving.wait().0, Some(0));
}

#[test]
fn the_examples_on_the_page_about_security_happen_as_shown() {
    let page = Page::read("docs/security.md");
    let folder = folder();
    let examples = page.examples();
    let (makes_tokens, asks): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|(command, _)| command.starts_with("tollway token "));
    assert!(makes_tokens.len() > 1 && asks.len() > 6);
    for (command, shown) in makes_tokens {
        assert_eq!(timeless(&printed(shell(command).current_dir(&folder))), timeless(shown), "{command}");
    }
    let config = folder.join("tollway.yaml");
    let yaml = ["8080", "8082", "6380"]
        .iter()
        .fold(page.block("yaml").to_owned(), |yaml, port| yaml.replace(&format!(":{port}"), ":0"));
    fs::write(&config, yaml).unwrap();
    let mut command = tollway(&["serve", "--config", "tollway.yaml"]);
    command.current_dir(&folder).env_remove("RUST_LOG").env_remove("CARGO_PKG_NAME");
    let serving = Serving::start_command(command);
    let resp = serving.printed.split("redis://127.0.0.1:").nth(1).unwrap().lines().next().unwrap();
    for (command, shown) in asks {
        let local = command
            .replace("127.0.0.1:8080", &serving.addr)
            .replace("127.0.0.1:8082", &serving.admin)
            .replace("6380", resp);
        let mut shell = shell(&local);
        shell
            .env("TOLLWAY_ADDR", &serving.addr)
            .env("TOLLWAY_ADMIN_ADDR", &serving.admin)
            .env("FAKETTY", "1");
        assert_eq!(timeless(&printed(shell.current_dir(&folder))), timeless(shown), "{command}");
    }
}

/// Returns the text without digests and times.
fn timeless(text: &str) -> String {
    let digit = |c: char| c.is_ascii_hexdigit();
    let line = |line: &str| {
        let line = match line.split_once("sha256:") {
            Some((before, digest)) => format!("{before}sha256:{}", digest.trim_start_matches(digit)),
            None => line.to_owned(),
        };
        match line.strip_prefix("{\"at\":\"") {
            Some(rest) => rest.split_once('"').unwrap().1.to_owned(),
            None => line,
        }
    };
    let moments = |text: String| match text.split_once("\"reset_after\":") {
        Some((before, after)) => {
            before.to_owned() + after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
        }
        None => text,
    };
    text.trim_end().lines().map(line).map(moments).collect::<Vec<_>>().join("\n")
}
