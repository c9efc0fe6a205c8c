//! Tests our clients against the gates.

use std::time::Duration;

use tokio::task::JoinSet;
use tollway::core::{Decision, Nanos, Refund, Timestamp, Verdict};
use tollway_client::http::{ChargeRequest, HttpRuleRequest, KeysQuery, RuleDecision};
use tollway_client::text::{CheckLimit, KeyStats};
use tollway_client::throttr::{Change, QuotaAttribute, QuotaRequest, ThrottrCommand, ThrottrReply};
use tollway_client::{ClientError, InvalidRequest, http, text, throttr};
use tollway_testbed::TEST_TIMEOUT;

use crate::support::{Harness, start, start_with};

const KEYS: &str = "
keys:
  - { match: '^ws global$', limit: 5, period: 10s, stats: true }
  - { match: '', limit: 1000, period: 10s }
";

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn text(gate: &Harness) -> text::Client {
    text::Client::with_timeout(&gate.server.text_addr().unwrap().to_string(), TEST_TIMEOUT).unwrap()
}

fn blocking_text(gate: &Harness, timeout: Duration) -> text::blocking::Client {
    text::blocking::Client::with_timeout(&gate.server.text_addr().unwrap().to_string(), timeout).unwrap()
}

fn throttr(gate: &Harness) -> throttr::Client {
    throttr::Client::with_timeout(&gate.server.throttr_addr().unwrap().to_string(), TEST_TIMEOUT).unwrap()
}

fn advance(gate: &Harness, span: Duration) {
    gate.clock.set(gate.clock.now() + Nanos::new(u64::try_from(span.as_nanos()).unwrap()));
}

#[tokio::test]
async fn of_many_at_a_time_as_many_are_under_the_limit_as_it_says() {
    let gate = start_with(KEYS, |_| {});
    let client = text(&gate);
    let mut asking = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        asking.spawn(async move { client.over_limit("ws global").await.unwrap().answered().unwrap() });
    }
    let answers = asking.join_all().await;
    assert_eq!(answers.iter().filter(|answer| !answer.over).count(), 5);
    assert!(answers.iter().all(|answer| (answer.limit, answer.period) == (5.0, 10)));
    assert_eq!(client.get_stats("ws global").await.unwrap(), KeyStats::new(100, 95, 0));
    assert_eq!(client.get_size().await.unwrap(), 1);
    client.ping().await.unwrap();
}

#[test]
fn a_blocking_text_client_is_answered_too() {
    let gate = start_with(KEYS, |_| {});
    let client = blocking_text(&gate, TEST_TIMEOUT);
    client.ping().unwrap();
    let check = || CheckLimit { origin: "ws".into(), ua: "a\n\"b\"".into(), ip: "192.0.2.1".into() };
    for number in 0..7 {
        let answer = client.check_limit(check()).unwrap().answered().unwrap();
        assert_eq!((answer.over, answer.limit.to_string()), (number >= 5, "5".to_owned()), "{number}");
    }
    assert_eq!(client.get_stats("ws global").unwrap(), KeyStats::new(7, 2, 0));
    assert_eq!(client.get_size().unwrap(), 3);
}

#[test]
fn what_a_server_does_not_understand_is_silence() {
    let gate = start_with(KEYS, |_| {});
    let client = blocking_text(&gate, Duration::from_millis(20));
    for question in ["check_limit {", "over_limit", "frobnicate"] {
        assert!(matches!(client.ask(question.as_bytes()), Err(ClientError::TimedOut { .. })));
    }
}

#[tokio::test]
async fn concurrent_updates_all_count() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr(&gate);
    assert!(client.insert("c", "r", 100, TEN_SECONDS).await.unwrap().is_done());
    let mut changing = JoinSet::new();
    for _ in 0..3000 {
        let client = client.clone();
        changing.spawn(async move {
            client.update("c", "r", QuotaAttribute::Quota, Change::Increase, 2).await.unwrap()
        });
    }
    assert!(changing.join_all().await.iter().all(|changed| changed.is_done()));
    assert_eq!(client.query("c", "r").await.unwrap().unwrap().left, 6100);
}

#[tokio::test]
async fn a_quota_lives_and_ends() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr(&gate);
    assert!(client.insert("c", "r", 5, TEN_SECONDS).await.unwrap().is_done());
    assert!(!client.insert("c", "r", 9, TEN_SECONDS).await.unwrap().is_done());
    assert!(client.insert("c", "other", 1, Duration::from_nanos(1500)).await.unwrap().is_done());
    assert!(client.update("c", "r", QuotaAttribute::Quota, Change::Decrease, 7).await.unwrap().is_done());
    advance(&gate, Duration::from_millis(2500));
    let quota = client.query("c", "r").await.unwrap().unwrap();
    assert_eq!((quota.left, quota.ttl()), (0, Duration::from_secs(7)));
    assert_eq!(client.query("c", "other").await.unwrap(), None);
    assert!(client.update("c", "r", QuotaAttribute::Ttl, Change::Patch, 3).await.unwrap().is_done());
    advance(&gate, Duration::from_secs(3));
    assert_eq!(client.query("c", "r").await.unwrap(), None);
    assert!(!client.purge("c", "r").await.unwrap().is_done());
    assert!(client.insert("c", "r", 1, TEN_SECONDS).await.unwrap().is_done());
    assert!(client.purge("c", "r").await.unwrap().is_done());
    assert_ne!(gate.clock.now(), Timestamp::EPOCH);
}

#[test]
fn a_blocking_pipeline_is_carried_out_in_order() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr::blocking::Client::with_timeout(
        &gate.server.throttr_addr().unwrap().to_string(),
        TEST_TIMEOUT,
    )
    .unwrap();
    let names: Vec<_> = (0..2000_u32).map(u32::to_le_bytes).collect();
    let rounds = names.iter().flat_map(|name| {
        [
            QuotaRequest::insert(name, "r", 7, TEN_SECONDS),
            QuotaRequest::update(name, "r", QuotaAttribute::Quota, Change::Decrease, 3),
            QuotaRequest::query(name, "r"),
            QuotaRequest::purge(name, "r"),
            QuotaRequest::purge(name, "r"),
        ]
    });
    let replies = client.pipeline(&rounds.collect::<Vec<_>>()).unwrap();
    for round in replies.chunks(5) {
        let [
            ThrottrReply::Status(true),
            ThrottrReply::Status(true),
            ThrottrReply::Quota { left: 4, .. },
            gone @ ..,
        ] = round
        else {
            panic!("{round:?}")
        };
        assert_eq!(gone, [ThrottrReply::Status(true), ThrottrReply::Status(false)]);
    }
    let unknown = QuotaRequest {
        command: ThrottrCommand::UndefinedUpdate { attribute: 9, change: 9, value: 9 },
        consumer: b"c",
        resource: b"r",
    };
    assert_eq!(client.call(unknown).unwrap(), ThrottrReply::Status(false));
}

#[tokio::test]
async fn a_server_that_stops_is_missed_and_not_waited_for() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr(&gate);
    assert_eq!(client.query("c", "r").await.unwrap(), None);
    let udp = text(&gate);
    udp.ping().await.unwrap();
    drop(gate);
    let error = client.query("c", "r").await.unwrap_err();
    assert!(matches!(error, ClientError::Disconnected { .. } | ClientError::Refused { .. }), "{error:?}");
    assert!(!udp.over_limit("ws global").await.unwrap().over());
}

/// Calls every verb of an HTTP client: the same calls, awaited or not.
macro_rules! call_every_verb {
    ($client:expr $(, $wait:tt)?) => {{
        let client = $client;
        let decision = client.spend("Login", "alice", 2)$(.$wait)?.unwrap();
        assert_eq!((decision.verdict, decision.remaining, decision.degraded), (Verdict::Allow, 3, false));
        let decision = client.check("Login", "alice", 4)$(.$wait)?.unwrap();
        assert_eq!((decision.verdict, decision.remaining), (Verdict::Deny, 3));
        let refund: Refund = client.refund("Login", "alice", 1)$(.$wait)?.unwrap();
        assert_eq!((refund.refunded, refund.remaining), (true, 4));
        let charges = [ChargeRequest::new("Fast", "alice", 1), ChargeRequest::new("Login", "alice", 5)];
        let decision: Decision = client.spend_all(&charges)$(.$wait)?.unwrap();
        assert_eq!((decision.allowed(), decision.charge), (false, 1));
        assert_eq!(client.check_all(&charges)$(.$wait)?.unwrap(), decision);
        assert!(client.refund_all(&charges)$(.$wait)?.unwrap().refunded);
        client.reset_all(&charges)$(.$wait)?.unwrap();
        client.reset("Login", "alice")$(.$wait)?.unwrap();
        assert_eq!(client.check("Login", "alice", 0)$(.$wait)?.unwrap().remaining, 5);

        assert_eq!(client.rule("upload", &[("user", "vova")])$(.$wait)?.unwrap(), RuleDecision::ALLOW);
        assert!(!client.rule("upload", &[("user", "vova")])$(.$wait)?.unwrap().allowed());
        let request = HttpRuleRequest { rule: "closed".into(), key: None, selectors: Vec::new() };
        assert!(!client.rule_request(&request)$(.$wait)?.unwrap().allowed());
        assert_eq!(client.explain(&request)$(.$wait)?.unwrap().rule, "And()");
        // Two ids that a replaced byte would make one.
        for id in [b"caf\xe9", b"caf\xe8"] {
            let error = client.spend("Login", id, 1)$(.$wait)?.unwrap_err();
            assert!(matches!(error, ClientError::InvalidRequest(InvalidRequest::Http(_))), "{error:?}");
        }
        assert_eq!(client.inspect("Login", "vip")$(.$wait)?.unwrap().remaining, Some(100));

        let unknown = client.spend("Nope", "alice", 1)$(.$wait)?.unwrap_err();
        assert!(matches!(unknown, ClientError::Problem { status: 404, .. }), "{unknown:?}");
        let query = KeysQuery { limit: None, cursor: 0, count: 10 };
        let keys = client.keys(&query)$(.$wait)?.unwrap_err();
        assert!(matches!(keys, ClientError::Problem { .. }), "a store in memory has no ids: {keys:?}");
    }};
}

#[tokio::test]
async fn an_http_client_calls_every_verb() {
    let gate = start();
    call_every_verb!(
        http::Client::with_timeout(&gate.server.http_addr().unwrap().to_string(), TEST_TIMEOUT).unwrap(),
        await
    );
}

#[test]
fn a_blocking_http_client_calls_every_verb() {
    let gate = start();
    call_every_verb!(http::blocking::Client::with_timeout(&gate.url(""), TEST_TIMEOUT).unwrap());
}

#[test]
fn a_blocking_http_client_may_be_used_by_many_threads() {
    let gate = start();
    let client = http::blocking::Client::with_timeout(&gate.url("/"), TEST_TIMEOUT).unwrap();
    let allowed: usize = std::thread::scope(|scope| {
        let spend = || (0..10).filter(|_| client.spend("Fast", "alice", 1).unwrap().allowed()).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(spend)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(allowed, 20);
}
