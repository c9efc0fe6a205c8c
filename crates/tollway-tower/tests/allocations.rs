//! Tests that a request that passes costs no allocation: the layer's state is on the stack.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

use std::alloc::System;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{HeaderName, HeaderValue, Request, Response};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollway::Limiter;
use tollway_tower::{
    AdmissionLayer, AdmissionService, Admit, ByAddress, ByHeader, Delayed, Identify, LocalLimit,
};
use tower_layer::Layer;
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REQUESTS: usize = 100;
const POLICY: &str = "limits: { PerClient: { burst: 1000000, count: 1, period: 1h } }";

/// A service whose response is empty and needs no memory.
#[derive(Clone)]
struct Empty;

impl Service<Request<()>> for Empty {
    type Response = Response<()>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Response<()>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(())))
    }
}

fn from(peer: &str) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::new(peer.parse().unwrap(), 4711));
    request
}

fn with(header: &'static str, value: &'static str, mut request: Request<()>) -> Request<()> {
    request.headers_mut().insert(header, HeaderValue::from_static(value));
    request
}

fn per_request<A: Admit, I: Identify>(
    service: &mut AdmissionService<Empty, A, I>,
    asked: impl Fn() -> Request<()>,
) -> usize {
    let mut pass = |request| {
        let response = pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(response)) = response else { panic!("it waits") };
        assert_eq!(response.status(), 200);
    };
    pass(asked()); // The bucket is new.
    let requests: Vec<_> = (0..REQUESTS).map(|_| asked()).collect();
    let region = Region::new(ALLOCATOR);
    requests.into_iter().for_each(&mut pass);
    let change = region.change();
    let count = change.allocations + change.reallocations;
    assert!(count.is_multiple_of(REQUESTS), "{count} for {REQUESTS} requests");
    count / REQUESTS
}

#[test]
fn what_passes_allocates_nothing() {
    let limit = || LocalLimit::new(Limiter::from_yaml(POLICY).unwrap(), "PerClient").unwrap();
    let layer = AdmissionLayer::new(limit()).exempt_path("/healthz");
    for peer in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1111:2222:3333:4444:5555:6666"] {
        let count = per_request(&mut layer.layer(Empty), || from(peer));
        assert_eq!(count, 0, "by the peer's address, {peer}");
    }
    let behind = layer.clone().identify(ByAddress::peer().trust_proxies(["10.0.0.0/8".parse().unwrap()]));
    let forwarded = || with("x-forwarded-for", "192.0.2.1, 10.0.0.2", from("10.0.0.1"));
    assert_eq!(per_request(&mut behind.layer(Empty), forwarded), 0, "behind a proxy");
    let by_key = layer.identify(ByHeader::new(HeaderName::from_static("x-api-key")));
    let keyed = || with("x-api-key", "0123456789abcdef0123456789abcdef", Request::new(()));
    assert_eq!(per_request(&mut by_key.layer(Empty), keyed), 0, "by a header");
    let long = || with("x-api-key", LONG, Request::new(()));
    assert_eq!(per_request(&mut by_key.layer(Empty), long), 1, "by a long header");
    let delayed = AdmissionLayer::new(Delayed::new(limit(), std::time::Duration::from_secs(1)));
    let plain = || from("192.0.2.1");
    assert_eq!(per_request(&mut delayed.layer(Empty), plain), 0, "where others would wait");
}

/// A header that is longer than an id that is stored without an allocation.
const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
