//! The clients and the gates, face to face.

use std::time::Duration;

use tokio::task::JoinSet;
use tollway::core::{Nanos, Timestamp};
use tollway_client::text::{AskError, CheckLimit, KeyStats};
use tollway_client::throttr::{Attribute, CallError, Change, Request, ThrottrCommand, ThrottrReply};
use tollway_client::{text, throttr};
use tollway_testbed::PATIENCE;

use crate::support::{Harness, start_with};

const KEYS: &str = "
keys:
  - { match: '^ws global$', limit: 5, period: 10s, stats: true }
  - { match: '', limit: 1000, period: 10s }
";

const TEN_SECONDS: Duration = Duration::from_secs(10);

async fn text(gate: &Harness) -> text::Client {
    text::Client::with_timeout(gate.server.text_addr().unwrap(), PATIENCE).await.unwrap()
}

fn throttr(gate: &Harness) -> throttr::Client {
    throttr::Client::with_timeout(gate.server.throttr_addr().unwrap().to_string(), PATIENCE)
}

fn advance(gate: &Harness, span: Duration) {
    gate.clock.set(gate.clock.now() + Nanos::new(u64::try_from(span.as_nanos()).unwrap()));
}

#[tokio::test]
async fn of_many_at_a_time_as_many_are_under_the_limit_as_it_says() {
    let gate = start_with(KEYS, |_| {});
    let client = text(&gate).await;
    let mut asking = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        asking.spawn(async move { client.over_limit("ws global").await.unwrap().answered().unwrap() });
    }
    let answers = asking.join_all().await;
    assert_eq!(answers.iter().filter(|answer| !answer.over).count(), 5);
    assert!(answers.iter().all(|answer| (answer.limit, answer.period) == (5.0, 10)));
    assert_eq!(
        client.get_stats("ws global").await.unwrap(),
        KeyStats { n_req: 100, n_over: 95, last_max_rate: 0 }
    );
    assert_eq!(client.get_size().await.unwrap(), 1);
    client.ping().await.unwrap();
}

#[test]
fn a_blocking_text_client_is_answered_too() {
    let gate = start_with(KEYS, |_| {});
    let mut client =
        text::blocking::Client::with_timeout(gate.server.text_addr().unwrap(), PATIENCE).unwrap();
    client.ping().unwrap();
    let check = || CheckLimit { origin: "ws".into(), ua: "a\n\"b\"".into(), ip: "192.0.2.1".into() };
    for number in 0..7 {
        let answer = client.check_limit(check()).unwrap().answered().unwrap();
        assert_eq!((answer.over, answer.limit.to_string()), (number >= 5, "5".to_owned()), "{number}");
    }
    assert_eq!(client.get_stats("ws global").unwrap(), KeyStats { n_req: 7, n_over: 2, last_max_rate: 0 });
    assert_eq!(client.get_size().unwrap(), 3);
}

#[test]
fn what_a_server_does_not_understand_is_silence() {
    let gate = start_with(KEYS, |_| {});
    let mut client =
        text::blocking::Client::with_timeout(gate.server.text_addr().unwrap(), Duration::from_millis(20))
            .unwrap();
    for question in ["check_limit {", "over_limit", "frobnicate"] {
        assert!(matches!(client.ask(question.as_bytes()), Err(AskError::Unanswered { source: None, .. })));
    }
}

#[tokio::test]
async fn concurrent_updates_all_count() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr(&gate);
    assert!(client.insert("c", "r", 100, TEN_SECONDS).await.unwrap());
    let mut changing = JoinSet::new();
    for _ in 0..3000 {
        let client = client.clone();
        changing.spawn(async move {
            client.update("c", "r", Attribute::Quota, Change::Increase, 2).await.unwrap()
        });
    }
    assert!(changing.join_all().await.iter().all(|changed| *changed));
    assert_eq!(client.query("c", "r").await.unwrap().unwrap().left, 6100);
}

#[tokio::test]
async fn a_quota_lives_and_ends() {
    let gate = start_with("limits: {}", |_| {});
    let client = throttr(&gate);
    assert!(client.insert("c", "r", 5, TEN_SECONDS).await.unwrap());
    assert!(!client.insert("c", "r", 9, TEN_SECONDS).await.unwrap());
    assert!(client.insert("c", "other", 1, Duration::from_nanos(1500)).await.unwrap());
    assert!(client.update("c", "r", Attribute::Quota, Change::Decrease, 7).await.unwrap());
    advance(&gate, Duration::from_millis(2500));
    let quota = client.query("c", "r").await.unwrap().unwrap();
    assert_eq!((quota.left, quota.ttl()), (0, Duration::from_secs(7)));
    assert_eq!(client.query("c", "other").await.unwrap(), None);
    assert!(client.update("c", "r", Attribute::Ttl, Change::Patch, 3).await.unwrap());
    advance(&gate, Duration::from_secs(3));
    assert_eq!(client.query("c", "r").await.unwrap(), None);
    assert!(!client.purge("c", "r").await.unwrap());
    assert!(client.insert("c", "r", 1, TEN_SECONDS).await.unwrap());
    assert!(client.purge("c", "r").await.unwrap());
    assert_ne!(gate.clock.now(), Timestamp::EPOCH);
}

#[test]
fn a_blocking_pipeline_is_carried_out_in_order() {
    let gate = start_with("limits: {}", |_| {});
    let mut client =
        throttr::blocking::Client::with_timeout(gate.server.throttr_addr().unwrap().to_string(), PATIENCE);
    let names: Vec<_> = (0..2000_u32).map(u32::to_le_bytes).collect();
    let rounds = names.iter().flat_map(|name| {
        [
            Request::insert(name, "r", 7, TEN_SECONDS),
            Request::update(name, "r", Attribute::Quota, Change::Decrease, 3),
            Request::query(name, "r"),
            Request::purge(name, "r"),
            Request::purge(name, "r"),
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
    let unknown = Request {
        command: ThrottrCommand::Update { attribute: 9, change: 9, value: 9 },
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
    let udp = text(&gate).await;
    udp.ping().await.unwrap();
    drop(gate);
    let error = client.query("c", "r").await.unwrap_err();
    assert!(matches!(error, CallError::HungUp { .. } | CallError::Unreachable { .. }), "{error:?}");
    assert!(!udp.over_limit("ws global").await.unwrap().over());
}
