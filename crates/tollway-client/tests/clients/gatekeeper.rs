//! The gatekeeper, beside a master that does what it is told to.

mod pyzmq;

use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollway_client::gatekeeper::{
    Admission, AdmissionDecision, Gatekeeper, GatekeeperBuilder, RejectedReports, Wait,
};
use tollway_client::wire::zmtp::SocketType;
use tollway_testbed::{ScriptedMaster, TEST_TIMEOUT, eventually};

/// Longer than any test runs, and within what a gatekeeper waits for.
const A_WHILE: Duration = Duration::from_secs(60);

fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn decide(gatekeeper: &Gatekeeper, identifier: &str) -> AdmissionDecision {
    gatekeeper.decide(identifier.as_bytes(), b"")
}

fn wait(gate: AdmissionDecision) -> Wait {
    match gate {
        AdmissionDecision::Wait(wait) => wait,
        other => panic!("{other:?}"),
    }
}

/// Returns the builder of a gatekeeper of this master.
fn gatekeeper_of(master: &ScriptedMaster) -> GatekeeperBuilder {
    let [accounting, control] = master.addresses();
    Gatekeeper::builder(&accounting, "api").control_address(&control)
}

/// A gatekeeper and its master, connected.
fn connected(builder: impl FnOnce(GatekeeperBuilder) -> GatekeeperBuilder) -> (Gatekeeper, ScriptedMaster) {
    let mut master = ScriptedMaster::bind("api");
    let gatekeeper = builder(gatekeeper_of(&master).max_delay(A_WHILE)).build().unwrap();
    master.accept();
    eventually("the master", || gatekeeper.stats().connected);
    (gatekeeper, master)
}

/// Says it, and waits until it is known.
fn delay(gatekeeper: &Gatekeeper, master: &mut ScriptedMaster, identifier: &str, until: u64) {
    let known = gatekeeper.stats().known_delays;
    master.delay_until(identifier, until);
    eventually("what the master said", || gatekeeper.stats().known_delays > known);
}

#[tokio::test]
async fn the_master_hears_of_all_that_passes() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let before = now();
    assert_eq!(gatekeeper.admit("10.0.0.1").await, Admission::Passed);
    assert_eq!(gatekeeper.admit_with(b"\xff\0", b"curl/8").await, Admission::Passed);
    let first = master.message();
    assert_eq!(first[..3], ["api\\x00", "ACCEPTED", "10.0.0.1"]);
    let received: u64 = first[3].parse().unwrap();
    assert!((before..=now()).contains(&received), "{received}");
    assert_eq!(first[4..], ["", ""]);
    let second = master.message();
    assert_eq!(second[2], "\\xff\\x00");
    assert_eq!(second[5], "curl/8");
    assert_eq!((gatekeeper.stats().accepted, gatekeeper.stats().dropped_accounting), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_passes_when_its_time_has_come_and_not_before() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    delay(&gatekeeper, &mut master, "a", now() + 30_000);
    assert_eq!(gatekeeper.admit("b").await, Admission::Passed);
    assert_eq!(master.message()[1..3], ["ACCEPTED", "b"]);
    let Admission::Delayed { by } = gatekeeper.admit_with("a", b"late").await else { panic!() };
    assert!((29..=A_WHILE.as_secs()).contains(&by.as_secs()), "{by:?}");
    let delayed = master.message();
    assert_eq!((&delayed[1..3], &*delayed[5]), (&["DELAYED".to_owned(), "a".to_owned()][..], "late"));
    assert_eq!(gatekeeper.admit("a").await, Admission::Passed, "what is past is over");
}

#[tokio::test]
async fn too_long_a_delay_is_a_rejection_that_says_until_when() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let until = now() + 3_600_000;
    delay(&gatekeeper, &mut master, "a", until);
    let Admission::Rejected { until: said, retry_after } = gatekeeper.admit("a").await else { panic!() };
    assert_eq!(said, UNIX_EPOCH + Duration::from_millis(until));
    let hour = Duration::from_secs(3600);
    assert!(retry_after <= hour && retry_after > hour - TEST_TIMEOUT, "{retry_after:?}");
    let rejected = master.message();
    assert_eq!((&*rejected[1], &*rejected[4]), ("REJECTED", ""));
    assert_eq!(gatekeeper.stats().rejected, 1);
}

#[tokio::test]
async fn rejections_are_told_as_often_as_wanted() {
    for (accounting, told) in
        [(RejectedReports::All, 9), (RejectedReports::None, 0), (RejectedReports::OneIn(4), 3)]
    {
        let (gatekeeper, mut master) = connected(|builder| builder.report_rejected(accounting));
        delay(&gatekeeper, &mut master, "a", now() + 3_600_000);
        for _ in 0..9 {
            assert!(matches!(decide(&gatekeeper, "a"), AdmissionDecision::Reject { .. }));
        }
        assert_eq!(gatekeeper.admit("the last").await, Admission::Passed);
        for _ in 0..told {
            assert_eq!(master.message()[1], "REJECTED");
        }
        assert_eq!(master.message()[1..3], ["ACCEPTED", "the last"], "{accounting:?}");
    }
}

#[tokio::test]
async fn who_gives_up_leaves_room_for_another() {
    let (gatekeeper, mut master) = connected(|builder| builder.max_delayed(1));
    delay(&gatekeeper, &mut master, "a", now() + 50_000);
    delay(&gatekeeper, &mut master, "b", now() + 50_000);
    let mut waiting = Box::pin(gatekeeper.admit("a"));
    tokio::select! {
        biased;
        admission = &mut waiting => panic!("{admission:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(gatekeeper.stats().waiting, 1);
    assert!(matches!(decide(&gatekeeper, "b"), AdmissionDecision::Reject { .. }));
    drop(waiting);
    assert_eq!(gatekeeper.stats().waiting, 0);
    assert!(matches!(decide(&gatekeeper, "b"), AdmissionDecision::Wait(_)));
}

#[test]
fn requests_wait_in_the_order_in_which_they_came() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let start = now();
    delay(&gatekeeper, &mut master, "a", start + 30_000);
    let [one, two, three, four] = [0; 4].map(|_| wait(decide(&gatekeeper, "a")));
    assert_eq!(master.message()[4], (start + 30_000).to_string());
    drop(three);
    for next in [31_000, 32_000] {
        master.delay_until("a", start + next);
        assert_eq!(master.message()[4], (start + next).to_string(), "the next in line has this place");
    }
    let untils = [one, two, four].map(|wait| wait.check()).map(|gate| wait(gate).until());
    assert!(untils.is_sorted_by(|one, other| *one + Duration::from_millis(900) < *other), "{untils:?}");
    assert_eq!(gatekeeper.stats().delayed, 3);
}

#[tokio::test]
async fn who_stands_in_line_wakes_up_for_what_becomes_of_it() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let start = now();
    delay(&gatekeeper, &mut master, "a", start + 40_000);
    let _first = wait(decide(&gatekeeper, "a"));
    let second = tokio::spawn({
        let gatekeeper = gatekeeper.clone();
        async move { gatekeeper.admit("a").await }
    });
    while gatekeeper.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    master.delay_until("a", start + 3_600_000);
    assert!(matches!(second.await.unwrap(), Admission::Rejected { .. }), "a minute is the longest wait");
    assert_eq!(master.message()[1], "DELAYED");
    assert_eq!(master.message()[1], "REJECTED");
}

#[tokio::test]
async fn without_an_answer_nobody_waits_longer_than_the_place_before() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let until = now() + 100;
    delay(&gatekeeper, &mut master, "a", until);
    let (one, other) = tokio::join!(gatekeeper.admit("a"), gatekeeper.admit("a"));
    assert!(matches!((one, other), (Admission::Delayed { .. }, Admission::Delayed { .. })));
    for _ in 0..2 {
        assert_eq!(master.message()[4], until.to_string());
    }
    eventually("the end of what the master said", || gatekeeper.stats().known_delays == 0);
}

#[tokio::test]
async fn without_a_master_everybody_passes() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gatekeeper = Gatekeeper::builder(&nobody.to_string(), "api").control_address(&nobody.to_string());
    let gatekeeper = gatekeeper.build().unwrap();
    for _ in 0..100 {
        assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
    }
    let counts = gatekeeper.stats();
    assert_eq!((counts.accepted, counts.dropped_accounting, counts.connected), (100, 100, false));
}

#[tokio::test]
async fn a_master_that_goes_away_is_found_again() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    for _ in 0..3 {
        master.hang_up();
        eventually("the end of the connection", || !gatekeeper.stats().connected);
        assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
        master.accept();
        eventually("the master", || gatekeeper.stats().connected);
        let _ = gatekeeper.admit("b").await;
        assert_eq!(master.message()[2], "b");
    }
    delay(&gatekeeper, &mut master, "a", now() + 50_000);
    master.hang_up();
    assert!(matches!(decide(&gatekeeper, "a"), AdmissionDecision::Wait(_)), "what was said holds");
}

#[tokio::test]
async fn whoever_is_no_master_is_left_and_a_master_that_comes_later_is_found() {
    let mut master = ScriptedMaster::bind("api");
    let gatekeeper = gatekeeper_of(&master).build().unwrap();
    let huge = [&[2][..], &(1_u64 << 46).to_be_bytes()].concat();
    let endless = [1, 0].repeat(100_000);
    master.accept_and_send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    master.accept_and_send(b"");
    master.accept_as(SocketType::Other, SocketType::Other, b"");
    master.accept_as(SocketType::Sub, SocketType::Pub, &huge);
    master.accept_as(SocketType::Sub, SocketType::Pub, &endless);
    master.accept_as(SocketType::Sub, SocketType::Pub, &[0xff; 100]);
    assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
    master.accept();
    eventually("the master", || gatekeeper.stats().connected);
    let _ = gatekeeper.admit("b").await;
    assert_eq!(master.message()[2], "b");
}

#[tokio::test]
async fn what_is_no_delay_of_ours_is_ignored() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let later = (now() + 50_000).to_string();
    let later = later.as_bytes();
    for frames in [
        &[&b"api\0"[..], b"DELAY_UNTIL", b"a"][..],
        &[b"api\0", b"DELAY_UNTIL", b"a", b"NaN"],
        &[b"api\0", b"DELAY_UNTIL", b"a", b"-1"],
        &[b"api\0", b"DELAY_UNTIL", b"a", b"1"],
        &[b"api\0", b"SOMETHING", b"a", later],
        &[b"apis\0", b"DELAY_UNTIL", b"a", later],
        &[b""],
        &[b"", b"", b"", b"", b""],
        &[b"api\0", b"DELAY_UNTIL", b"\xff\xfe", later, b"more"],
    ] {
        master.publish(frames);
    }
    eventually("what the master said", || gatekeeper.stats().known_delays == 1);
    assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
    assert!(matches!(gatekeeper.decide(b"\xff\xfe", b""), AdmissionDecision::Wait(_)));
}

#[tokio::test]
async fn a_master_gets_what_it_subscribed_to() {
    let mut master = ScriptedMaster::bind("api");
    let gatekeeper = gatekeeper_of(&master).build().unwrap();
    master.accept_unsubscribed();
    master.subscribe(b"apis\0");
    master.subscribe(b"ap");
    eventually("the master", || gatekeeper.stats().connected);
    assert!(gatekeeper.stats().dropped_accounting == 0);
    master.cancel(b"ap");
    eventually("the end of the connection", || !gatekeeper.stats().connected);
    let _ = gatekeeper.admit("nobody hears of it").await;
    master.subscribe(b"");
    eventually("the master", || gatekeeper.stats().connected);
    let _ = gatekeeper.admit("a").await;
    assert_eq!(master.message()[2], "a");
    assert_eq!(gatekeeper.stats().dropped_accounting, 1);
}

#[test]
fn a_master_that_does_not_read_holds_nobody_up() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let (info, started) = (vec![b'i'; 2_000], Instant::now());
    while gatekeeper.stats().dropped_accounting < 1_000 {
        assert!(matches!(gatekeeper.decide(b"a", &info), AdmissionDecision::Pass));
        assert!(started.elapsed() < TEST_TIMEOUT, "everything was taken");
    }
    let sent = gatekeeper.stats().accepted - gatekeeper.stats().dropped_accounting;
    for _ in 0..sent {
        assert_eq!(master.message()[5].len(), info.len());
    }
    eventually("room for accounting", || {
        let dropped = gatekeeper.stats().dropped_accounting;
        let _ = gatekeeper.decide(b"b", b"");
        gatekeeper.stats().dropped_accounting == dropped
    });
    assert_eq!(master.message()[2], "b", "what was not dropped arrives, in order");
}

#[test]
fn it_answers_who_asks_whether_it_is_there() {
    let (_gatekeeper, mut master) = connected(|builder| builder);
    master.ping();
}

#[test]
fn it_says_no_more_when_the_last_clone_is_gone() {
    let (gatekeeper, mut master) = connected(|builder| builder);
    let clone = gatekeeper.clone();
    drop(gatekeeper);
    let _ = decide(&clone, "a");
    assert_eq!(master.message()[2], "a");
    drop(clone);
    master.expect_disconnect();
}
