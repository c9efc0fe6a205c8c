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
    AdmissionLayer, Admit, AdmitFuture, AdmitOutcome, ByHeader, Delayed, OnFailure, RemoteLimit, Unidentified,
};
use tower_layer::Layer;

use crate::support::{ErrorLog, Hello, POLICY, limiter, request, send, statuses};

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
async fn a_limit_that_the_server_lacks_is_an_error_that_is_counted() {
    let (server, client) = serve(limiter(POLICY).0);
    let log = ErrorLog::capture();
    for (on_failure, expected) in [(OnFailure::Pass, 200), (OnFailure::Reject, 503)] {
        let remote = RemoteLimit::new(client.clone(), "PerCleint").on_failure(on_failure);
        let layer = AdmissionLayer::new(remote);
        let requests = [ALICE; 3].map(|peer| request("/", peer, &[]));
        assert_eq!(statuses(&mut layer.layer(Hello), requests).await, [expected; 3]);
        let counts = layer.counts();
        assert_eq!((counts.passed, counts.failed_open + counts.unavailable), (0, 3));
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "one each: {lines:?}");
    assert!(
        lines[0].contains("limit \"PerCleint\" does not exist (did you mean \"PerClient\"?)"),
        "{lines:?}"
    );
    server.stop();
}

#[tokio::test]
async fn a_limit_that_the_server_lacks_is_known_at_the_start() {
    let (server, client) = serve(limiter(POLICY).0);
    let misspelt = RemoteLimit::connect(client.clone(), "PerCleint").await.unwrap_err();
    assert!(misspelt.to_string().contains("did you mean \"PerClient\"?"), "{misspelt}");
    for limit in ["PerClient", "PerAccount"] {
        RemoteLimit::connect(client.clone(), limit).await.unwrap();
    }
    server.stop();
    assert!(RemoteLimit::connect(client, "PerClient").await.is_err(), "the server is gone");
}

/// A client must not have a way around the limit, whatever happens while the server is unreachable.
#[tokio::test]
async fn an_id_that_the_limit_does_not_accept_is_rejected() {
    let (server, client) = serve(limiter(POLICY).0);
    let layer = AdmissionLayer::new(RemoteLimit::new(client, "PerAccount"))
        .identify(ByHeader::new(http::HeaderName::from_static("x-account")));
    let mut service = layer.layer(Hello);
    for (account, expected) in [(&b"7"[..], 200), (b"seven", 400), (b"\xe9", 400), (b"\xe8", 400)] {
        let mut request = request("/", ALICE, &[]);
        request.headers_mut().insert("x-account", http::HeaderValue::from_bytes(account).unwrap());
        assert_eq!(send(&mut service, request).await.0, expected, "{account:?}");
    }
    assert_eq!((layer.counts().passed, layer.counts().unidentified), (1, 3));
    server.stop();
}

/// JSON cannot carry such an id, and a client must not have a way around the limit.
#[tokio::test]
async fn an_id_that_is_not_utf8_is_no_identifier() {
    let (server, client) = serve(limiter(POLICY).0);
    let remote = RemoteLimit::new(client, "PerClient");
    let invalid = AdmitOutcome::Unidentified(Unidentified::Invalid);
    assert_eq!(remote.admit(b"caf\xe9").reply().await.outcome, invalid);
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
