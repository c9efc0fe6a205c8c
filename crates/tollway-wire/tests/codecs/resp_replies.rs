//! Tests the replies of the RESP gate in both versions of the protocol, as one line of text each.

use std::time::Duration;

use tollway_core::algorithm::TokenBucket;
use tollway_core::{Algorithm, Decision, Limit, Nanos, Policy, Refund, RuleDecision, Verdict};
use tollway_wire::resp::{
    COMMANDS, ClientCommand, CommandError, KEY_MAX, ReplyWriter, RespCommand, RespVersion, Words,
    put_command_docs, put_commands, put_decision, put_hello, put_info, put_refund, put_reset,
    put_rule_decision, reply_len, reply_text,
};

/// Returns a reply of one version as text. It is exactly one reply.
fn reply(version: RespVersion, put: impl FnOnce(&mut ReplyWriter<'_>)) -> String {
    let mut out = Vec::new();
    put(&mut ReplyWriter::new(&mut out, version));
    assert_eq!(reply_len(&out), Ok(Some(out.len())));
    reply_text(&out).unwrap()
}

/// Returns a reply of both versions.
fn replies(put: impl Fn(&mut ReplyWriter<'_>)) -> [String; 2] {
    [RespVersion::Resp2, RespVersion::Resp3].map(|version| reply(version, &put))
}

fn policy() -> Policy {
    let numbers = TokenBucket::new(5, 5, Duration::from_secs(60)).unwrap();
    Policy::new(vec![
        Limit::new("Login").unwrap().with_default(Algorithm::TokenBucket(numbers)),
        Limit::new("Free").unwrap(),
    ])
    .unwrap()
}

#[test]
fn a_decision_has_the_fields_of_the_http_gate() {
    let policy = policy();
    let login = policy.charge("Login", b"a", 1).unwrap();
    let free = policy.charge("Free", b"a", 1).unwrap();
    let decision =
        |verdict| Decision::new(verdict, 3, Nanos::ZERO, Nanos::from_secs(24)).with_verdict(verdict);
    let [two, three] = replies(|reply| put_decision(&login, &decision(Verdict::Allow), reply));
    let expected = r#"*10 "allowed" :1 "remaining" :3 "retry_after" "0" "reset_after" "24" "limit" "Login""#;
    assert_eq!(two, expected);
    let expected = r#"%5 "allowed" #t "remaining" :3 "retry_after" ,0 "reset_after" ,24 "limit" "Login""#;
    assert_eq!(three, expected);
    let [two, three] = replies(|reply| put_decision(&free, &Decision::UNLIMITED, reply));
    assert!(
        two.starts_with(r#"*12 "allowed" :1 "remaining" $-1 "#) && two.ends_with(r#""unlimited" :1"#),
        "{two}"
    );
    assert!(three.starts_with(r#"%6 "allowed" #t "remaining" _ "#), "{three}");
    assert!(three.ends_with(r#""unlimited" #t"#), "{three}");
    let never = Decision::new(Verdict::DenyFull, u64::MAX, Nanos::FOREVER, Nanos::FOREVER);
    let [two, three] = replies(|reply| put_decision(&login, &never, reply));
    let expected = r#"*12 "allowed" :0 "remaining" :9223372036854775807 "retry_after" $-1 "reset_after" $-1 "limit" "Login" "reason" "full""#;
    assert_eq!(two, expected);
    assert!(
        three.contains(r#""allowed" #f"#) && three.contains(r#""retry_after" _ "reset_after" _"#),
        "{three}"
    );
    let degraded = decision(Verdict::DenyUnreachable).with_degraded();
    let [two, _] = replies(|reply| put_decision(&login, &degraded, reply));
    assert!(two.starts_with(r#"*14 "allowed" :0 "remaining" $-1 "#), "what is left is not known: {two}");
    assert!(two.ends_with(r#""reason" "store" "degraded" :1"#), "{two}");
}

#[test]
fn a_rule_that_decided_is_named() {
    let allowed = RuleDecision::new(Verdict::Allow, Nanos::ZERO);
    let denied = RuleDecision::new(Verdict::Deny, Nanos::from_millis(1_500));
    let degraded = RuleDecision::new(Verdict::AllowUnreachable, Nanos::ZERO).with_degraded();
    for (decision, two, three) in [
        (allowed, r#"*4 "allowed" :1 "rule" "upload""#, r##"%2 "allowed" #t "rule" "upload""##),
        (
            denied,
            r#"*6 "allowed" :0 "retry_after" "1.5" "rule" "upload""#,
            r##"%3 "allowed" #f "retry_after" ,1.5 "rule" "upload""##,
        ),
        (
            degraded,
            r#"*8 "allowed" :1 "rule" "upload" "reason" "store" "degraded" :1"#,
            r##"%4 "allowed" #t "rule" "upload" "reason" "store" "degraded" #t"##,
        ),
    ] {
        assert_eq!(replies(|reply| put_rule_decision("upload", &decision, reply)), [two, three]);
    }
}

#[test]
fn refunds_and_resets_have_one_reply() {
    let policy = policy();
    let [login, free] = ["Login", "Free"].map(|name| policy.charge(name, b"a", 1).unwrap());
    let refund = Refund::new(true, 4, Nanos::from_secs(12));
    let [two, _] = replies(|reply| put_refund(std::slice::from_ref(&login), &refund, reply));
    assert_eq!(two, r#"*8 "refunded" :1 "remaining" :4 "reset_after" "12" "limit" "Login""#);
    let [two, _] = replies(|reply| put_refund(&[login.clone(), free.clone()], &refund, reply));
    assert_eq!(two, r#"*6 "refunded" :1 "remaining" :4 "reset_after" "12""#, "about no single limit");
    let [_, three] = replies(|reply| put_refund(std::slice::from_ref(&free), &Refund::UNLIMITED, reply));
    assert!(three.starts_with("%5 ") && three.contains(r#""remaining" _"#), "{three}");
    assert!(three.ends_with(r#""limit" "Free" "unlimited" #t"#), "{three}");
    assert_eq!(replies(put_reset), [r#"*2 "reset" :1"#, r##"%1 "reset" #t"##]);
}

#[test]
fn a_client_finds_out_what_it_is_connected_to() {
    let [two, three] = replies(|reply| put_hello(7, RespVersion::Resp3, reply));
    assert!(two.starts_with(r#"*14 "server" "redis" "version" "7."#), "{two}");
    assert!(
        three.starts_with("%7 ") && three.contains(r#""proto" :3 "id" :7 "mode" "standalone""#),
        "{three}"
    );
    let [two, three] = replies(|reply| put_info("0.1.0", reply));
    assert!(two.starts_with("\"# Server") && three.contains("txt:# Server"), "{two} {three}");
    for line in ["tollway_version:0.1.0", "loading:0", "role:master"] {
        assert!(two.contains(line), "{line} is missing: {two}");
    }
    let [commands, _] = replies(put_commands);
    assert!(commands.starts_with(&format!("*{} ", COMMANDS.len())), "{commands}");
    // The number of its words, then its first key, its last and the step from one to the next.
    assert!(commands.contains(r#"*6 "del" :-2 *0 :1 :-1 :1"#), "{commands}");
    assert!(commands.contains(r#"*6 "ping" :-1 *0 :0 :0 :0"#), "{commands}");
    let [all, _] = replies(|reply| put_command_docs(&[], reply));
    assert!(all.starts_with("*6 ") && all.contains("\"toll\" *6 \"summary\" \"TOLL SPEND|"), "{all}");
    let [_, one] = replies(|reply| put_command_docs(&[b"TOLL", b"GET"], reply));
    assert!(one.starts_with("%1 \"toll\" %3 "), "{one}");
}

#[test]
fn a_writer_changes_its_version_and_takes_replies_that_were_written_before() {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::new(&mut out, RespVersion::default());
    writer.null();
    writer.set_version(RespVersion::Resp3);
    writer.null();
    writer.written(b"+OK\r\n");
    writer.simple("PONG");
    assert_eq!(out, b"$-1\r\n_\r\n+OK\r\n+PONG\r\n");
    assert_eq!([RespVersion::Resp2, RespVersion::Resp3].map(RespVersion::number), [2, 3]);
}

/// Parses a command whose words have spaces between them.
fn parse<'w, 'a>(text: &'a str, words: &'w mut Vec<&'a [u8]>) -> Result<RespCommand<'w, 'a>, CommandError> {
    words.extend(text.split(' ').map(str::as_bytes));
    RespCommand::parse(words)
}

#[test]
fn commands_of_redis_are_answered_or_say_what_is_wrong() {
    for text in [
        "PING",
        "ping hi",
        "ECHO hi",
        "QUIT",
        "HELLO",
        "HELLO 3 AUTH user secret SETNAME me",
        "AUTH secret",
        "AUTH user secret",
        "SELECT 0",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "CLIENT ID",
        "CLIENT SETINFO LIB-NAME x",
        "CLIENT NO-EVICT on",
        "CLIENT MAINT_NOTIFICATIONS ON",
        "COMMAND",
        "COMMAND COUNT",
        "command docs toll",
        "INFO",
        "INFO server",
        "CONFIG GET save",
        "MULTI",
        "EXEC",
        "DISCARD",
        "RESET",
        "DEL a b",
        "TTL a",
        "PTTL a",
    ] {
        assert!(parse(text, &mut Vec::new()).is_ok(), "{text}");
    }
    for (text, error) in [
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("ECHO", "ERR wrong number of arguments for 'echo' command"),
        ("SELECT", "ERR wrong number of arguments for 'select' command"),
        ("AUTH", "ERR wrong number of arguments for 'auth' command"),
        ("MULTI x", "ERR wrong number of arguments for 'multi' command"),
        ("EXEC x", "ERR wrong number of arguments for 'exec' command"),
        ("DISCARD x", "ERR wrong number of arguments for 'discard' command"),
        ("RESET x", "ERR wrong number of arguments for 'reset' command"),
        ("DEL", "ERR wrong number of arguments for 'del' command"),
        ("TTL", "ERR wrong number of arguments for 'ttl' command"),
        ("PTTL a b", "ERR wrong number of arguments for 'pttl' command"),
        ("CLIENT", "ERR wrong number of arguments for 'client' command"),
        ("CLIENT GETNAME x", "ERR wrong number of arguments for 'client' command"),
        (
            "CL.THROTTLE k 1 2",
            "ERR wrong number of arguments for 'cl.throttle' command; send CL.THROTTLE key max_burst count period",
        ),
        ("TOLL FROB", "ERR unknown subcommand 'FROB' of 'toll'; send TOLL SPEND, CHECK, REFUND or RESET"),
        ("THROTTLE k", "ERR wrong number of arguments for 'throttle' command"),
    ] {
        let found = parse(text, &mut Vec::new()).unwrap_err().to_string();
        assert!(found.starts_with(error), "{text}: {found}");
    }
    for text in [
        "HELLO 4",
        "HELLO 3 AUTH user",
        "CONFIG SET a",
        "CLIENT KILL",
        "COMMAND GETKEYS",
        "GET a",
        "LONGCOMMAND",
    ] {
        assert!(parse(text, &mut Vec::new()).is_err(), "{text}");
    }
    let long = "n".repeat(KEY_MAX + 1);
    for text in [format!("CLIENT SETNAME {long}"), format!("HELLO 3 SETNAME {long}")] {
        assert_eq!(parse(&text, &mut Vec::new()).unwrap_err(), CommandError::NameTooLong);
    }
    let mut words = Vec::new();
    let named = parse("client setname me", &mut words).unwrap();
    assert!(matches!(named, RespCommand::Client(ClientCommand::SetName(b"me"))));
    assert!(Words::default().is_empty());
}

#[test]
fn throttlecrab_has_its_own_order_and_rounding() {
    let words: Vec<&[u8]> = "THROTTLE k 10 100 60 2".split(' ').map(str::as_bytes).collect();
    let Ok(RespCommand::Throttle(request)) = RespCommand::parse(&words) else { panic!("a throttle") };
    let decision = Decision::new(Verdict::Deny, 1, Nanos::from_millis(1_900), Nanos::from_millis(6_900));
    let [two, _] = replies(|reply| request.put_decision(&decision, reply));
    assert_eq!(two, "*5 :0 :10 :1 :6 :1", "allowed, limit, remaining, reset_after, retry_after");
    for (text, error) in [
        ("THROTTLE k -1 100 60", "invalid rate limit parameters"),
        ("THROTTLE k 10 100 60 -2", "negative quantity: -2"),
        ("THROTTLE k x 100 60", "max_burst"),
        ("CL.THROTTLE k -1 100 60", "max_burst"),
        ("CL.THROTTLE k 1 0 60", "ERR count must be at least 1"),
        ("CL.THROTTLE k 1 10000000000 1", "ERR count must be at most 1000000000"),
        ("THROTTLE k 1 x 1", "ERR invalid count_per_period"),
        ("CL.THROTTLE k 1 1 0", "period"),
        ("CL.THROTTLE k 1 x 1", "ERR count must be an integer"),
        ("CL.THROTTLE k 1 1 9223372036854775807", "period"),
    ] {
        let found = parse(text, &mut Vec::new()).unwrap_err().to_string();
        assert!(found.contains(error), "{text}: {found}");
    }
}
