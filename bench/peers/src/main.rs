//! Runs a peer of the gate for Envoy's rate limit service: `tollway-peers constant ADDRESS` or `tollway-peers
//! limitador ADDRESS`.
//!
//! Both are a plain tonic server on one thread. *Constant* answers every call with the same bytes, as many as Tollway
//! sends, and decodes nothing. *Limitador* is the library of that name behind the same server: its own server is not
//! published as a crate. It decodes with prost, checks the limit and sends the headers that the library makes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::{Buf, BufMut, Bytes};
use http::{Request, Response};
use limitador::RateLimiter;
use limitador::limit::{Context, Limit};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic_prost::ProstCodec;
use tower_service::Service;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The numbers of the only limit: so many that nobody is refused.
const REQUESTS: u32 = 4_000_000_000;
const HOUR: u64 = 3_600;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, address] = arguments.as_slice() else { return Err("pass a peer and an address".into()) };
    let address: SocketAddr = address.parse()?;
    match &**peer {
        "constant" => serve(address, Constant(constant_answer().into())).await,
        "limitador" => serve(address, Limitador::new()?).await,
        _ => Err("the peers are constant and limitador".into()),
    }
}

async fn serve<A: Answer>(address: SocketAddr, answer: A) -> Result<(), AnyError> {
    Ok(Server::builder().add_service(RateLimitService(answer)).serve(address).await?)
}

/// A method of the service, which says how its messages are encoded.
trait Answer:
    UnaryService<Self::Request, Response = Self::Reply, Future: Send> + Clone + Send + Sync + 'static
{
    type Request: Send + Sync + 'static;
    type Reply: Send + Sync + 'static;
    type Codec: Codec<Encode = Self::Reply, Decode = Self::Request> + Default + Send;
}

#[derive(Clone)]
struct RateLimitService<A>(A);

impl<A> NamedService for RateLimitService<A> {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl<A: Answer> Service<Request<Body>> for RateLimitService<A> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move { Ok(Grpc::new(A::Codec::default()).unary(answer, request).await) })
    }
}

#[derive(Clone)]
struct Constant(Bytes);

impl Answer for Constant {
    type Request = Bytes;
    type Reply = Bytes;
    type Codec = BytesCodec;
}

impl UnaryService<Bytes> for Constant {
    type Response = Bytes;
    type Future = Ready<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, _: tonic::Request<Bytes>) -> Self::Future {
        ready(Ok(tonic::Response::new(self.0.clone())))
    }
}

/// Passes messages on as bytes.
#[derive(Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[derive(Clone)]
struct Limitador(Arc<RateLimiter>);

impl Limitador {
    fn new() -> Result<Self, AnyError> {
        let limiter = RateLimiter::new(1_000_000);
        let user = "descriptors[0]['user']".try_into()?;
        limiter.add_limit(Limit::new("web", u64::from(REQUESTS), HOUR, Vec::new(), vec![user]));
        Ok(Self(Arc::new(limiter)))
    }

    fn check(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let values = |descriptor: &Descriptor| {
            descriptor.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
        };
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), request.descriptors.iter().map(values).collect());
        let hits = u64::from(request.hits_addend.max(1));
        let namespace = request.domain.clone().into();
        let checked = self.0.check_rate_limited_and_update(&namespace, &context, hits);
        let mut checked = checked.map_err(|error| Status::unavailable(error.to_string()))?;
        let headers = checked.response_header().into_iter().map(|(key, value)| Pair { key, value });
        let overall_code = if checked.limited { 2 } else { 1 };
        Ok(RateLimitResponse {
            overall_code,
            statuses: Vec::new(),
            response_headers_to_add: headers.collect(),
        })
    }
}

impl Answer for Limitador {
    type Request = RateLimitRequest;
    type Reply = RateLimitResponse;
    type Codec = ProstCodec<RateLimitResponse, RateLimitRequest>;
}

impl UnaryService<RateLimitRequest> for Limitador {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        ready(self.check(request.get_ref()).map(tonic::Response::new))
    }
}

/// Returns the answer of Tollway to the call of the benchmark.
fn constant_answer() -> Vec<u8> {
    let header = |key: &str, value: String| Pair { key: key.to_owned(), value };
    let status = DescriptorStatus {
        code: 1,
        current_limit: Some(CurrentLimit { requests_per_unit: REQUESTS, unit: 3 }),
        limit_remaining: REQUESTS - 1,
        duration_until_reset: Some(Seconds { seconds: HOUR }),
    };
    let answer = RateLimitResponse {
        overall_code: 1,
        statuses: vec![status],
        response_headers_to_add: vec![
            header("RateLimit-Policy", format!("\"envoy/web/user\";q={REQUESTS};w={HOUR}")),
            header("RateLimit", format!("\"envoy/web/user\";r={};t={HOUR}", REQUESTS - 1)),
        ],
    };
    answer.encode_to_vec()
}

#[derive(Clone, PartialEq, Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RateLimitResponse {
    #[prost(uint32, tag = "1")]
    overall_code: u32,
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    response_headers_to_add: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
struct DescriptorStatus {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(message, optional, tag = "2")]
    current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    duration_until_reset: Option<Seconds>,
}

#[derive(Clone, PartialEq, Message)]
struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    requests_per_unit: u32,
    #[prost(uint32, tag = "2")]
    unit: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Seconds {
    #[prost(uint64, tag = "1")]
    seconds: u64,
}
