//! Tests of the layer over a gatekeeper, whose master is a stand-in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tollway_client::gatekeeper::{Gatekeeper, GatekeeperBuilder};
use tollway_testbed::{ScriptedMaster, eventually};
use tollway_tower::AdmissionLayer;
use tower_layer::Layer;
use tower_service::Service;

use crate::support::{Hello, request, send, statuses};

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

/// Returns the builder of a gatekeeper that connects to this master.
fn gatekeeper_of(master: &ScriptedMaster) -> GatekeeperBuilder {
    let [accounting, control] = master.addresses();
    Gatekeeper::builder(&accounting, "api").control_address(&control)
}

/// Returns a gatekeeper that is connected to its master.
fn connected() -> (Gatekeeper, ScriptedMaster) {
    let mut master = ScriptedMaster::bind("api");
    let gatekeeper = gatekeeper_of(&master).max_delay(Duration::from_secs(60)).build().unwrap();
    master.accept();
    eventually("the master", || gatekeeper.stats().connected);
    (gatekeeper, master)
}

/// Makes the master delay a client, and waits until the gatekeeper has the delay.
fn delay(gatekeeper: &Gatekeeper, master: &mut ScriptedMaster, id: &str, by: Duration) {
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + by;
    let known = gatekeeper.stats().known_delays;
    master.delay_until(id, u64::try_from(until.as_millis()).unwrap());
    eventually("what the master said", || gatekeeper.stats().known_delays > known);
}

#[tokio::test(start_paused = true)]
async fn the_master_hears_of_what_passes_and_delays_whom_it_likes() {
    // The gatekeeper hears of delays by the machine's clock, which is not paused.
    let started = std::time::Instant::now();
    let (gatekeeper, mut master) = connected();
    let layer = AdmissionLayer::new(gatekeeper.clone());
    let mut service = layer.layer(Hello);
    assert_eq!(statuses(&mut service, [ALICE, BOB].map(|peer| request("/", peer, &[]))).await, [200, 200]);
    assert_eq!(master.message()[..3], ["api\\x00", "ACCEPTED", ALICE]);
    assert_eq!(master.message()[..3], ["api\\x00", "ACCEPTED", BOB]);

    let began = Instant::now();
    delay(&gatekeeper, &mut master, ALICE, Duration::from_secs(30));
    assert_eq!(send(&mut service, request("/", ALICE, &[])).await.0, 200);
    let most = Duration::from_secs(31) + started.elapsed();
    assert!((Duration::from_secs(29)..=most).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(master.message()[1..3], ["DELAYED", ALICE]);
    assert_eq!((layer.counts().passed, layer.counts().delayed), (2, 1));
}

#[tokio::test]
async fn the_master_is_told_what_may_be_logged() {
    let (gatekeeper, mut master) = connected();
    let layer = AdmissionLayer::new(gatekeeper);
    let by_path = layer.clone().log_info(|head| head.uri.path().as_bytes().into());
    let nothing = layer.clone().log_info(|_| Default::default());
    let curl = || request("/path", ALICE, &[("user-agent", "curl/8.5")]);
    send(&mut layer.layer(Hello), curl()).await;
    send(&mut by_path.layer(Hello), curl()).await;
    send(&mut nothing.layer(Hello), curl()).await;
    send(&mut layer.layer(Hello), request("/", ALICE, &[])).await;
    assert_eq!([0; 4].map(|_| master.message()[5].clone()), ["curl/8.5", "/path", "", ""]);
}

#[tokio::test]
async fn too_long_a_wait_is_a_503_that_says_when_to_come_again() {
    let (gatekeeper, mut master) = connected();
    delay(&gatekeeper, &mut master, ALICE, Duration::from_secs(3_600));
    let layer = AdmissionLayer::new(gatekeeper);
    let (status, headers, _) = send(&mut layer.layer(Hello), request("/", ALICE, &[])).await;
    assert_eq!(status, 503);
    let retry_after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(master.message()[1..3], ["REJECTED", ALICE]);
}

#[tokio::test]
async fn who_hangs_up_waits_no_longer() {
    let (gatekeeper, mut master) = connected();
    delay(&gatekeeper, &mut master, ALICE, Duration::from_secs(50));
    let layer = AdmissionLayer::new(gatekeeper.clone());
    let waiting = layer.layer(Hello).call(request("/", ALICE, &[]));
    assert_eq!(gatekeeper.stats().waiting, 1);
    drop(waiting);
    assert_eq!((gatekeeper.stats().waiting, layer.counts().abandoned), (0, 1));
}

#[tokio::test]
async fn without_a_master_everybody_passes() {
    let silent = ScriptedMaster::bind("api");
    let layer = AdmissionLayer::new(gatekeeper_of(&silent).build().unwrap());
    assert_eq!(
        statuses(&mut layer.layer(Hello), [ALICE; 5].map(|peer| request("/", peer, &[]))).await,
        [200; 5]
    );
}
