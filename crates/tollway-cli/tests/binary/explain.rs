//! `tollway explain`, of a running server and of none.

use tollway_client::http::blocking::Client;
use tollway_testbed::TEST_TIMEOUT;

use crate::run::{file, run};
use crate::serving::Serving;

const POLICY: &str = "
rules:
  upload: Or('1/h', And('user:2/h', 'apikey:9/h'))
  closed: And()
";

fn serve(name: &str) -> Serving {
    Serving::start(&["--config", &file(name, POLICY), "--http", "127.0.0.1:0"], &[])
}

/// Without decimals and dates, which depend on when it is run.
fn timeless(text: &str) -> String {
    let timeless = |word: &str| match word.strip_suffix('s').and_then(|word| word.parse::<f64>().ok()) {
        Some(seconds) if seconds > 3500.0 => "an-hour".to_owned(),
        _ if word.starts_with("20") && word.ends_with('Z') => "now".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(timeless).collect::<Vec<_>>().join(" ");
    text.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn a_rule_of_a_server_is_shown_part_by_part() {
    let serving = serve("explain.yaml");
    let explain = |arguments: &[&str]| {
        let (code, printed) = serving.ask(&[&["explain"], arguments].concat());
        (code, timeless(&printed))
    };
    let free = "\
rule   Or('1/h', And('user:2/h', 'apikey:9/h'))
now    the request would be allowed
as of  now

Or                                      not reached
├─ 1/h            :upload               not reached
└─ And                                  not reached
   ├─ user:2/h    :upload:user:vova     not reached
   └─ apikey:9/h  :upload:apikey:k%3A1  not reached
"
    .to_owned();
    let asked = ["upload", "user=vova", "apikey=k:1"];
    assert_eq!(explain(&asked), (0, free.clone()));
    assert_eq!(explain(&asked), (0, free), "nothing was changed");

    let client = Client::with_timeout(&serving.addr, TEST_TIMEOUT).unwrap();
    assert!(client.rule("upload", &[("user", "vova"), ("apikey", "")]).unwrap().allowed());
    assert_eq!(
        explain(&["upload", "user=vova", "apikey="]),
        (
            1,
            "\
rule   Or('1/h', And('user:2/h', 'apikey:9/h'))
now    the request would be denied, and allowed in an-hour
as of  now

Or                                   reached, free in an-hour
├─ 1/h            :upload            reached, free in an-hour
└─ And                               not reached
   ├─ user:2/h    :upload:user:vova  not reached
   └─ apikey:9/h  no value           not reached
"
            .to_owned()
        )
    );
    let (code, printed) = explain(&["user:1/h", "--key", "upload", "user=vova"]);
    assert_eq!(code, 1);
    assert!(printed.ends_with("\nuser:1/h  :upload:user:vova  reached, free in an-hour\n"), "{printed}");
    let (code, printed) = explain(&["closed"]);
    assert_eq!(code, 1);
    assert!(printed.contains("denied, and waiting does not help\n"), "{printed}");
    let (code, printed) = explain(&["Or()", "--json"]);
    assert_eq!(code, 0);
    assert!(printed.starts_with(r#"{"rule":"Or()","tree":{"or":[],"reached":false,"frees_after":0},"at":""#));
}

#[test]
fn what_cannot_be_explained_says_why() {
    let serving = serve("explain-wrong.yaml");
    for (arguments, expected) in [
        (&["uplaod"][..], "tollway: Unknown rule: rule \"uplaod\" does not exist (did you mean \"upload\"?)\n"),
        (
            &["upload", "user=vova"],
            "tollway: Missing selector: rule \"upload\" needs a value for selector \"apikey\"; send an empty value if the \
             request has none\n",
        ),
        (
            &["Or('10/s', 'user:5/fortnight')", "user=vova"],
            "tollway: a span must be a unit (ms, s, m, h or d), with or without a number in front, such as s or 5m
  Or('10/s', 'user:5/fortnight')
                     ^^^^^^^^^
",
        ),
    ] {
        assert_eq!(serving.ask(&[&["explain"], arguments].concat()), (2, expected.to_owned()));
    }
    let ran = run(&["explain", "10/s", "vova"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("such as \"user=vova\""), "{}", ran.stderr);
}

#[test]
fn without_a_server_an_expression_is_shown_and_what_is_not_known() {
    let rule = "Or('10/s', 'user:5/m')";
    let ran = run(&["explain", rule, "user=vova", "--key", "k", "--server", "127.0.0.1:1"]);
    assert_eq!(
        ran.stdout,
        "\
rule   Or('10/s', 'user:5/m')

Or                         unknown
├─ 10/s      :k            unknown
└─ user:5/m  :k:user:vova  unknown
"
    );
    assert_eq!(ran.code, 2);
    let expected = "tollway: cannot tell which parts are reached: no server at 127.0.0.1:1; start one with";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    let named = run(&["explain", "upload", "--addr", "127.0.0.1:1"]);
    assert_eq!((named.code, &*named.stdout), (2, ""));
    let missing = run(&["explain", rule, "--addr", "127.0.0.1:1"]);
    let expected = format!("rule \"{rule}\" needs a value for selector \"user\"");
    assert!(missing.stderr.contains(&expected), "{}", missing.stderr);
}
