//! A client of Envoy's rate limit service whose messages are encoded by prost, not by us.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use prost::Message;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tollway_testbed::{CertificateFiles, Certificates};
use tollway_wire::rls;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Pair>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<Limit>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

/// An entry of a descriptor, or a header.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pair {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) unit: u32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) overall_code: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(uint32, tag = "1")]
    pub(crate) code: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<Limit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Seconds>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Seconds {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
}

const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
const CODES: [&str; 3] = ["UNKNOWN", "OK", "OVER_LIMIT"];

/// A connection to the gate, which its caller waits for.
pub(crate) struct RlsClient {
    runtime: Runtime,
    channel: Channel,
    /// The name and the value of the metadata that is sent, if there is any.
    metadata: Option<(&'static str, String)>,
}

impl RlsClient {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(Endpoint::from_shared(format!("http://{address}")).unwrap())
    }

    /// Connects by TLS, and trusts the authority of these certificates. It shows a certificate if it has one.
    pub(crate) fn tls(
        address: SocketAddr,
        certificates: &Certificates,
        identity: Option<&CertificateFiles>,
    ) -> Self {
        let authority = fs::read(certificates.authority()).unwrap();
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        if let Some(CertificateFiles { cert, key }) = identity {
            tls = tls.identity(Identity::from_pem(fs::read(cert).unwrap(), fs::read(key).unwrap()));
        }
        Self::of(Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls).unwrap())
    }

    fn of(endpoint: Endpoint) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let entered = runtime.enter();
        let channel = endpoint.connect_lazy();
        drop(entered);
        Self { runtime, channel, metadata: None }
    }

    /// Sends this value of the metadata `authorization` with every call from now on.
    pub(crate) fn authorize(&mut self, authorization: &str) {
        self.metadata = Some(("authorization", authorization.to_owned()));
    }

    /// Sends this `traceparent` with every call from now on.
    #[cfg(feature = "otel")]
    pub(crate) fn trace(&mut self, trace_parent: &str) {
        self.metadata = Some(("traceparent", trace_parent.to_owned()));
    }

    /// Calls a method with any message, and returns any answer.
    pub(crate) fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.runtime.block_on(call(self.channel.clone(), path, message, self.metadata.clone()))
    }

    pub(crate) fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.call(rls::SHOULD_RATE_LIMIT, request)
    }

    /// Calls a method with a body that is sent in these pieces, and returns the status if the call failed.
    pub(crate) fn send(&self, path: &'static str, pieces: &[&[u8]]) -> Option<Status> {
        let pieces = Pieces(pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect());
        let request = tonic::codegen::http::Request::post(path)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::new(pieces))
            .unwrap();
        let mut channel = self.channel.clone();
        let response = self.runtime.block_on(async {
            std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
            channel.call(request).await.unwrap()
        });
        Status::from_header_map(response.headers())
    }

    /// Asks as many times at once, over one connection.
    pub(crate) fn ask_at_once(&self, request: &RateLimitRequest, times: usize) -> Vec<RateLimitResponse> {
        self.runtime.block_on(async {
            let asked = (0..times).map(|_| {
                tokio::spawn(call(self.channel.clone(), rls::SHOULD_RATE_LIMIT, request.clone(), None))
            });
            let mut answers = Vec::with_capacity(times);
            for asked in asked.collect::<Vec<_>>() {
                answers.push(asked.await.unwrap().unwrap());
            }
            answers
        })
    }
}

/// A body that is sent in pieces.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

async fn call<Q, A>(
    channel: Channel,
    path: &'static str,
    message: Q,
    metadata: Option<(&'static str, String)>,
) -> Result<A, Status>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    let mut request = Request::new(message);
    if let Some((name, value)) = metadata {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    grpc.unary(request, PathAndQuery::from_static(path), codec).await.map(tonic::Response::into_inner)
}

/// Returns a request with one descriptor.
pub(crate) fn request(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    let entries = entries.iter().map(|(key, value)| Pair { key: (*key).into(), value: (*value).into() });
    let descriptors = vec![Descriptor { entries: entries.collect(), ..Descriptor::default() }];
    RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
}

/// Returns the request that an event of a trace has.
pub(crate) fn from_trace(json: &str) -> RateLimitRequest {
    let value: Value = serde_json::from_str(json).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let short = |value: &Value| u32::try_from(number(value)).unwrap();
    let unit = |name: &str| (0..).zip(UNITS).find(|(_, unit)| unit.eq_ignore_ascii_case(name)).unwrap().0;
    let descriptor = |value: &Value| Descriptor {
        entries: (value["entries"].as_array().into_iter().flatten())
            .map(|entry| Pair { key: text(&entry[0]), value: text(&entry[1]) })
            .collect(),
        limit: value.get("limit").map(|limit| Limit {
            requests_per_unit: short(&limit["requests_per_unit"]),
            unit: unit(&text(&limit["unit"])),
            name: String::new(),
        }),
        hits_addend: value.get("hits_addend").map(number),
        is_negative_hits: value["is_negative_hits"] == true,
    };
    RateLimitRequest {
        domain: text(&value["domain"]),
        descriptors: value["descriptors"].as_array().into_iter().flatten().map(descriptor).collect(),
        hits_addend: short(&value["hits_addend"]),
    }
}

/// Returns an answer as a trace writes it.
pub(crate) fn to_trace(answer: &RateLimitResponse) -> String {
    let statuses = answer.statuses.iter().map(|status| {
        let mut fields = vec![format!("\"code\":{}", named(&CODES, status.code))];
        if let Some(limit) = &status.current_limit {
            let unit = named(&UNITS, limit.unit);
            let name = if limit.name.is_empty() {
                String::new()
            } else {
                format!(",\"name\":{}", json!(limit.name))
            };
            let numbers = format!("\"requests_per_unit\":{},\"unit\":{unit}{name}", limit.requests_per_unit);
            fields.push(format!("\"current_limit\":{{{numbers}}}"));
        }
        if status.current_limit.is_some() || status.limit_remaining > 0 {
            fields.push(format!("\"limit_remaining\":{}", status.limit_remaining));
        }
        if let Some(reset) = &status.duration_until_reset {
            fields.push(format!("\"duration_until_reset_s\":{}", reset.seconds));
        }
        format!("{{{}}}", fields.join(","))
    });
    let statuses = statuses.collect::<Vec<_>>().join(",");
    format!("{{\"overall_code\":{},\"statuses\":[{statuses}]}}", named(&CODES, answer.overall_code))
}

fn named(names: &[&str], number: u32) -> Value {
    json!(names[usize::try_from(number).unwrap()])
}
