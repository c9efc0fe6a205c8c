//! Tests of the layer over a server, which may be unreachable.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tollway::config::Gates;
use tollway::core::Nanos;
use tollway::{AsyncLimiter, Clock};
use tollway_client::http::Client;
use tollway_server::{Server, Settings};
use tollway_testbed::TEST_TIMEOUT;
use tollway_tower::{
    AdmissionLayer, Admit, AdmitFuture, AdmitOutcome, ByHeader, Delayed, OnFailure, RemoteLimit,
};
use tower_layer::Layer;

use crate::support::{Hello, POLICY, limiter, request, send, statuses};

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

fn serve(limiter: AsyncLimiter) -> (Server, Client) {
    let gates = Gates { http: Some("127.0.0.1:0".parse().unwrap()), ..Gates::OFF };
    let settings = Settings { gates, workers: 1, ..Settings::new(Arc::new(limiter.engine().clone())) };
    let server = Server::start(settings).unwrap();
    let address = server.http_addr().unwrap().to_string();
    (server, Client::with_timeout(&address, TEST_TIMEOUT).unwrap())
}

#[tokio::test]
async fn a_server_decides_for_all_who_ask_it() {
    let (server, client) = serve(limiter(POLICY).0);
    let layers = [(); 2].map(|()| AdmissionLayer::new(RemoteLimit::new(client.clone(), "PerClient")));
    let mut services = layers.clone().map(|layer| layer.layer(Hello));
    let from = |peer| request("/", peer, &[]);
    assert_eq!(statuses(&mut services[0], [from(ALICE)]).await, [200]);
    assert_eq!(statuses(&mut services[1], [from(ALICE), from(BOB)]).await, [200, 200]);
    let (status, headers, _) = send(&mut services[0], from(ALICE)).await;
    assert_eq!((status, headers["retry-after"].to_str().unwrap()), (429, "10"));
    assert_eq!(headers["ratelimit"], "\"PerClient\";r=0;t=10");
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    let counts = layers[0].counts();
    assert_eq!((counts.passed, counts.rejected), (1, 1));
    server.stop();
}

#[tokio::test]
async fn what_the_server_cannot_answer_is_the_layers_to_decide() {
    let (server, client) = serve(limiter(POLICY).0);
    for (limit, account) in [("PerCleint", "7"), ("PerAccount", "seven")] {
        for (on_failure, expected) in [(OnFailure::Pass, 200), (OnFailure::Reject, 503)] {
            let remote = RemoteLimit::new(client.clone(), limit).on_failure(on_failure);
            let layer = AdmissionLayer::new(remote)
                .identify(ByHeader::new(http::HeaderName::from_static("x-account")));
            let pending = request("/", ALICE, &[("x-account", account)]);
            assert_eq!(send(&mut layer.layer(Hello), pending).await.0, expected, "{limit} {account}");
        }
    }
    server.stop();
}

/// JSON cannot carry such an id, and a client must not have a way around the limit.
#[tokio::test]
async fn an_id_that_is_not_utf8_is_no_identifier() {
    let (server, client) = serve(limiter(POLICY).0);
    let remote = RemoteLimit::new(client, "PerClient");
    assert_eq!(remote.admit(b"caf\xe9").reply().await.outcome, AdmitOutcome::Unidentified);
    assert_eq!(remote.admit(b"cafe").reply().await.outcome, AdmitOutcome::Passed);
    server.stop();
}

/// All requests but the first few pass without waiting for a server that does not respond.
#[tokio::test]
async fn a_silent_server_delays_a_few_requests_and_no_more() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let client = Client::with_timeout(&address, Duration::from_millis(5)).unwrap();
    for (on_failure, expected) in [(OnFailure::Pass, 200), (OnFailure::Reject, 503)] {
        let remote = RemoteLimit::new(client.clone(), "PerClient").on_failure(on_failure);
        let layer = AdmissionLayer::new(remote);
        let mut service = layer.layer(Hello);
        let requests = (0..100).map(|_| request("/", ALICE, &[]));
        assert_eq!(statuses(&mut service, requests).await, [expected; 100]);
        let counts = layer.counts();
        assert_eq!(counts.failed_open + counts.unavailable, 100);
    }
    let mut connections = 0;
    while tokio::time::timeout(Duration::ZERO, silent.accept()).await.is_ok() {
        connections += 1;
    }
    assert!((6..20).contains(&connections), "three each, and some probes: {connections}");
}

/// A server whose clock advances by the delays that it imposes.
struct AsLongAsItTakes {
    remote: RemoteLimit,
    clock: Clock,
}

impl Admit for AsLongAsItTakes {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let (pending, clock) = (self.remote.admit(id), self.clock.clone());
        AdmitFuture::Pending(Box::pin(async move {
            let reply = pending.reply().await;
            if let AdmitOutcome::Rejected { retry_after: Some(wait) } = reply.outcome {
                clock.set(clock.now() + Nanos::new(wait.as_nanos().try_into().unwrap()));
            }
            reply
        }))
    }
}

#[tokio::test]
async fn a_server_can_be_waited_for_and_its_answer_too() {
    let (limiter, clock) = limiter("limits: { PerClient: { burst: 1, count: 1, period: 1ms } }");
    let (server, client) = serve(limiter);
    let remote = AsLongAsItTakes { remote: RemoteLimit::new(client, "PerClient"), clock };
    let layer = AdmissionLayer::new(Delayed::new(remote, TEST_TIMEOUT));
    let mut service = layer.layer(Hello);
    assert_eq!(statuses(&mut service, [ALICE; 5].map(|peer| request("/", peer, &[]))).await, [200; 5]);
    let counts = layer.counts();
    assert_eq!((counts.passed, counts.delayed, counts.rejected), (1, 4, 0));
    server.stop();
}
