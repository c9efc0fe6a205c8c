//! Tests of delayed requests. Tokio's clock is paused: it advances when every task sleeps.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};
use tollway::Clock;
use tollway::core::{Decision, Nanos, Timestamp};
use tollway_tower::{AdmissionLayer, Admit, AdmitFuture, AdmitOutcome, Delayed, LocalLimit};
use tower_layer::Layer;
use tower_service::Service;

use crate::support::{Hello, limiter, request, send};

/// Allows three at once, then one a second.
const POLICY: &str = "limits: { PerClient: { burst: 3, count: 1, period: 1s } }";

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

/// A limit whose limiter reads tokio's clock.
struct Paused {
    limit: LocalLimit,
    clock: Clock,
    began: Instant,
}

impl Paused {
    fn new() -> Self {
        let (limiter, clock) = limiter(POLICY);
        Self { limit: LocalLimit::new(limiter, "PerClient").unwrap(), clock, began: Instant::now() }
    }
}

impl Admit for Paused {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        self.clock.set(Timestamp::EPOCH + Nanos::new(nanos));
        self.limit.admit(id)
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        self.limit.add_headers(id, decision, headers);
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        self.limit.interval(id)
    }
}

fn delayed(max_delay: f64) -> Delayed<Paused> {
    Delayed::new(Paused::new(), Duration::from_secs_f64(max_delay))
}

/// Sends one request per peer without waiting for responses. Returns the time of each response in milliseconds, its
/// status and its `Retry-After`.
async fn all<A: Admit>(layer: &AdmissionLayer<A>, peers: &[&str]) -> Vec<(u128, u16, String)> {
    let began = Instant::now();
    let mut sent = JoinSet::new();
    for (number, peer) in peers.iter().enumerate() {
        let mut service = layer.layer(Hello);
        let request = request("/", peer, &[]);
        sent.spawn(async move {
            let (status, headers, _) = send(&mut service, request).await;
            let retry_after = headers.get("retry-after").map_or("", |value| value.to_str().unwrap());
            (number, (began.elapsed().as_millis(), status, retry_after.to_owned()))
        });
    }
    let mut answers = sent.join_all().await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn answer(millis: u128, status: u16, retry_after: &str) -> (u128, u16, String) {
    (millis, status, retry_after.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_burst_passes_then_the_rate_in_the_order_they_came() {
    let layer = AdmissionLayer::new(delayed(4.0));
    let answers = all(&layer, &[ALICE; 9]).await;
    let expected = [
        answer(0, 200, ""),
        answer(0, 200, ""),
        answer(0, 200, ""),
        answer(1_000, 200, ""),
        answer(2_000, 200, ""),
        answer(3_000, 200, ""),
        answer(4_000, 200, ""),
        // These could not pass before the longest delay, so they do not wait.
        answer(0, 429, "5"),
        answer(0, 429, "5"),
    ];
    assert_eq!(answers, expected);
    let counts = layer.counts();
    assert_eq!((counts.passed, counts.delayed, counts.rejected), (3, 4, 2));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_is_delayed() {
    let layer = AdmissionLayer::new(delayed(10.0));
    let answers = all(&layer, &[ALICE, ALICE, ALICE, ALICE, ALICE, BOB, BOB, BOB]).await;
    let millis: Vec<_> = answers.iter().map(|(millis, ..)| *millis).collect();
    assert_eq!(millis, [0, 0, 0, 1_000, 2_000, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_overtake_who_waits() {
    let layer = AdmissionLayer::new(delayed(10.0));
    let one = tokio::spawn({
        let layer = layer.clone();
        async move { all(&layer, &[ALICE; 4]).await }
    });
    tokio::task::yield_now().await;
    advance(Duration::from_millis(999)).await;
    // A request that comes just before the wait is over must queue behind it.
    let late = all(&layer, &[ALICE]).await;
    assert_eq!(one.await.unwrap()[3], answer(1_000, 200, ""));
    assert_eq!(late, [answer(1_001, 200, "")]);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_wait_at_a_time() {
    let gate = delayed(60.0).max_delayed(2);
    let layer = AdmissionLayer::new(gate.clone());
    let answers = all(&layer, &[ALICE, ALICE, ALICE, ALICE, ALICE, ALICE, BOB, BOB, BOB, BOB]).await;
    let expected: Vec<_> = [0, 0, 0, 1_000, 2_000].map(|millis| answer(millis, 200, "")).into();
    assert_eq!(answers[..5], expected);
    assert_eq!(answers[5], answer(0, 429, "3"));
    assert_eq!(answers[9], answer(0, 429, "1"), "of all together");
    assert_eq!(gate.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_frees_its_place() {
    let gate = delayed(60.0);
    let layer = AdmissionLayer::new(gate.clone());
    all(&layer, &[ALICE; 3]).await;
    let mut service = layer.layer(Hello);
    let mut waiting: Vec<_> = (0..3).map(|_| tokio::spawn(service.call(request("/", ALICE, &[])))).collect();
    tokio::task::yield_now().await;
    assert_eq!(gate.waiting(), 3);
    // The first and the second leave: the third waits as long as the first would have.
    let third = waiting.pop().unwrap();
    let began = Instant::now();
    for left in waiting {
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
    }
    assert_eq!(gate.waiting(), 1);
    assert_eq!(third.await.unwrap().unwrap().status(), 200);
    assert_eq!(began.elapsed().as_millis(), 1_000);
    assert_eq!((layer.counts().abandoned, gate.waiting()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_none() {
    let layer = AdmissionLayer::new(delayed(0.5)).reject_with(StatusCode::SERVICE_UNAVAILABLE);
    let answers = all(&layer, &[ALICE; 4]).await;
    assert_eq!(answers[3], answer(0, 503, "1"));
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_there_is_can_be_given() {
    let layer = AdmissionLayer::new(Delayed::new(Paused::new(), Duration::MAX));
    let answers = all(&layer, &[ALICE; 4]).await;
    assert_eq!(answers[3].1, 200, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn when_others_take_what_was_waited_for_the_deadline_holds() {
    /// An [`Admit`] that rejects every request, as if others had taken each free unit.
    struct Never;
    impl Admit for Never {
        fn admit(&self, _: &[u8]) -> AdmitFuture {
            let retry_after = Some(Duration::from_millis(700));
            AdmitFuture::Ready(AdmitOutcome::Rejected { retry_after }.into())
        }
    }
    let layer = AdmissionLayer::new(Delayed::new(Never, Duration::from_secs(2)));
    // The first tries at 0.7 s and 1.4 s. A third try would be after the deadline, for the others too.
    let answers = all(&layer, &[ALICE; 3]).await;
    let expected = [answer(1_400, 429, "1"), answer(1_400, 429, "1"), answer(1_400, 429, "1")];
    assert_eq!(answers, expected);
}

#[tokio::test(start_paused = true)]
async fn what_must_be_awaited_is_delayed_as_well() {
    struct Remote(Arc<Paused>);
    impl Admit for Remote {
        fn admit(&self, id: &[u8]) -> AdmitFuture {
            let (paused, id) = (Arc::clone(&self.0), id.to_vec());
            AdmitFuture::Pending(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                paused.admit(&id).reply().await
            }))
        }
    }
    let layer = AdmissionLayer::new(Delayed::new(Remote(Arc::new(Paused::new())), Duration::from_secs(3)));
    let answers = all(&layer, &[ALICE; 5]).await;
    assert_eq!(answers[..3], [10, 10, 10].map(|millis| answer(millis, 200, "")));
    assert!(answers[3].0 >= 1_010 && answers[3].1 == 200, "{answers:?}");
    assert!(answers[4].0 >= 2_010 && answers[4].1 == 200, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_who_would_wait_and_delays_nobody() {
    let layer = AdmissionLayer::new(delayed(2.0)).shadow(true);
    assert_eq!(all(&layer, &[ALICE; 6]).await, vec![answer(0, 200, ""); 6]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let counts = layer.counts();
    assert_eq!((counts.passed, counts.delayed, counts.rejected), (3, 2, 1));
}
