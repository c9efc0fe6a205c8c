//! Benchmarks the time that the middleware adds to a request that passes.
//!
//! `cargo xtask bench tower`

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use rustix::time::{ClockId, clock_gettime};
use tollway::Limiter;
use tollway_bench::id_stream::{IdDraw, Popularity};
use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, alternate};
use tollway_tower::client::gatekeeper::Gatekeeper;
use tollway_tower::{AdmissionLayer, ByAddress, Delayed, LocalLimit, LocalRule};
use tower_layer::Layer;
use tower_service::Service;

const REQUESTS: usize = 200_000;
/// The number of requests that are made in advance, outside the measured time.
const CHUNK: usize = 512;
const IDS: u32 = 1_000_000;

/// Limits that deny nothing. The period of the rule is short, because a rule keeps every request of its period.
const POLICY: &str = "
limits: { PerClient: { burst: 4000000000, count: 1, period: 1s } }
rules: { upload: 'client:20000/1ms' }
";

fn main() -> io::Result<()> {
    let options = OptionSpec { turns: 15, ..OptionSpec::NONE }.read()?;
    let standings = alternate(options.turns, &mut contestants());
    let mut table = format!(
        "Nanoseconds on a core, {} turns of {REQUESTS} requests, alternating: median (lowest to highest), and differences\n\
         turn by turn.\n\n| | a request | added by the layer |\n|---|---|---|\n",
        options.turns
    );
    for (index, standing) in standings.iter().enumerate() {
        let added =
            if index == 0 { String::new() } else { format!("{:.0}", standing.nanos_over(&standings[0])) };
        table += &format!("| {} | {:.0} | {added} |\n", standing.name, standing.nanos);
    }
    publish(&options, "cargo xtask bench tower", "tower", &table)
}

fn contestants() -> Vec<Contestant<'static>> {
    let limit = || LocalLimit::new(limiter(), "PerClient").expect("it is configured");
    let layer = AdmissionLayer::new(limit()).exempt_path("/healthz");
    let proxies = ByAddress::peer().trust_proxies(["10.0.0.0/8".parse().expect("a network")]);
    let behind = AdmissionLayer::new(limit()).identify(proxies);
    let delayed = AdmissionLayer::new(Delayed::new(limit(), Duration::from_secs(1)));
    let rule = AdmissionLayer::new(LocalRule::new(limiter(), "upload").expect("it is configured"));
    // Nothing listens at the discard port: the gatekeeper has no delays, and drops its reports.
    let gatekeeper = Gatekeeper::new("127.0.0.1:9", "api").expect("a thread");
    let gatekeeper = AdmissionLayer::new(gatekeeper);
    let one = || std::iter::repeat(v4(1));
    let many: Vec<_> =
        IdDraw::new(Popularity::Uniform, IDS, 1).stream(REQUESTS).into_iter().map(v4).collect();
    let v6 = || std::iter::repeat(Ipv6Addr::new(0x2001, 0xdb8, 0x1111, 0x2222, 0x3333, 0x4444, 5, 6).into());
    vec![
        contestant("the service alone", HelloService, one(), request),
        contestant("a limit, one address", layer.layer(HelloService), one(), request),
        contestant("a limit, one IPv6 network", layer.layer(HelloService), v6(), request),
        contestant(
            "a limit, a million addresses",
            layer.layer(HelloService),
            many.into_iter().cycle(),
            request,
        ),
        contestant(
            "a limit, behind two proxies in `X-Forwarded-For`",
            behind.layer(HelloService),
            one(),
            forwarded,
        ),
        contestant("a limit with `Delayed`", delayed.layer(HelloService), one(), request),
        contestant("a rule, one address", rule.layer(HelloService), one(), request),
        contestant("a gatekeeper without delays", gatekeeper.layer(HelloService), one(), request),
    ]
}

fn limiter() -> Limiter {
    Limiter::from_yaml(POLICY).expect("a good policy")
}

/// Measures the time that a service takes for requests that were made in advance, including dropping them.
fn contestant<'a, S, R>(
    name: &'a str,
    mut service: S,
    mut clients: impl Iterator<Item = IpAddr> + 'a,
    request: impl Fn(IpAddr) -> Request<()> + 'a,
) -> Contestant<'a>
where
    S: Service<Request<()>, Response = Response<R>, Error = Infallible> + 'a,
{
    let mut cx = Context::from_waker(Waker::noop());
    let work = move || {
        let mut took = Duration::ZERO;
        for _ in 0..REQUESTS / CHUNK {
            let requests: Vec<_> = clients.by_ref().take(CHUNK).map(&request).collect();
            let started = on_a_core();
            for request in requests {
                let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
                    panic!("nothing waits here");
                };
                assert!(black_box(response).status().is_success());
            }
            took += on_a_core() - started;
        }
        took.as_nanos() as f64 / (REQUESTS / CHUNK * CHUNK) as f64
    };
    Contestant { name, work: Box::new(work) }
}

/// Returns the CPU time of this thread, which other load on the machine does not affect.
fn on_a_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().expect("a thread has not been on a core for less than no time")
}

/// A service that answers every request with the same text.
#[derive(Clone)]
struct HelloService;

impl Service<Request<()>> for HelloService {
    type Response = Response<&'static str>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(request.uri().path());
        ready(Ok(Response::new("hello")))
    }
}

fn v4(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0xc000_0000 + number).into()
}

fn request(client: IpAddr) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static("/hello");
    request.extensions_mut().insert(SocketAddr::new(client, 4711));
    request
}

fn forwarded(client: IpAddr) -> Request<()> {
    let mut request = request(Ipv4Addr::new(10, 0, 0, 1).into());
    let chain = format!("198.51.100.7, {client}, 10.0.0.2");
    let chain = http::HeaderValue::try_from(chain).expect("addresses are ASCII");
    request.headers_mut().insert("x-forwarded-for", chain);
    request
}
