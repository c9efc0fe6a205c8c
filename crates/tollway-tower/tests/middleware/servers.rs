//! Tests of the layer in axum, hyper and tonic, over real sockets, with a clock that stands still.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tollway_testbed::TEST_TIMEOUT;
use tollway_tower::{AdmissionLayer, Admit, ByAddress, Delayed, OnUnidentified};
use tower_layer::Layer;

use crate::support::{Hello, per_client};

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends a request with a foreign client, and returns the status, `Retry-After` and the body.
pub(crate) async fn get_from(
    address: SocketAddr,
    path: &str,
    headers: &'static [(&str, &str)],
) -> (u16, String, String) {
    let url = format!("http://{address}{path}");
    let asked = tokio::task::spawn_blocking(move || {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TEST_TIMEOUT));
        let mut request = ureq::Agent::from(config.build()).get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.call().unwrap();
        let retry_after = response.headers().get("retry-after").map_or("", |value| value.to_str().unwrap());
        let retry_after = retry_after.to_owned();
        (response.status().as_u16(), retry_after, response.body_mut().read_to_string().unwrap())
    });
    asked.await.unwrap()
}

async fn serve_axum<A: Admit>(layer: AdmissionLayer<A, ByAddress>) -> SocketAddr {
    let (listener, address) = listen().await;
    let app = Router::new().route("/", get(|| async { "hello" })).route("/healthz", get(|| async { "ok" }));
    let app = app.layer(layer).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test]
async fn in_axum() {
    let layer = AdmissionLayer::new(per_client()).exempt_path("/healthz");
    let address = serve_axum(layer.clone()).await;
    let (hello, too_soon) =
        ((200, String::new(), "hello".to_owned()), (429, "10".to_owned(), "too many requests\n".to_owned()));
    assert_eq!(get_from(address, "/", &[]).await, hello);
    assert_eq!(get_from(address, "/", &[]).await, hello);
    assert_eq!(get_from(address, "/", &[]).await, too_soon);
    // The peer is not a trusted proxy, so its header is ignored.
    assert_eq!(get_from(address, "/", &[("x-forwarded-for", "198.51.100.1")]).await, too_soon);
    assert_eq!(get_from(address, "/healthz", &[]).await.0, 200);
    let counts = layer.counts();
    assert_eq!((counts.passed, counts.rejected, counts.exempt), (2, 2, 1));
}

/// Serving without the addresses of clients is the mistake that used to limit nobody.
#[tokio::test]
async fn in_axum_without_addresses() {
    for (on_unidentified, expected) in [(OnUnidentified::Reject, 500), (OnUnidentified::Pass, 200)] {
        let (listener, address) = listen().await;
        let layer = AdmissionLayer::new(per_client()).on_unidentified(on_unidentified);
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        let (status, _, body) = get_from(address, "/", &[]).await;
        assert_eq!(status, expected);
        assert_eq!(body.contains("into_make_service_with_connect_info"), expected == 500, "{body}");
    }
}

#[tokio::test]
async fn in_axum_behind_a_proxy() {
    let by_address = ByAddress::peer().trust_proxies(["127.0.0.0/8".parse().unwrap()]);
    let address = serve_axum(AdmissionLayer::new(per_client()).identify(by_address)).await;
    for (headers, status) in [
        (&[("x-forwarded-for", "198.51.100.1")][..], 200),
        (&[("x-forwarded-for", "203.0.113.7, 198.51.100.1")], 200),
        (&[("x-forwarded-for", "203.0.113.8, 198.51.100.1")], 429),
        (&[("x-forwarded-for", "198.51.100.2")], 200),
    ] {
        assert_eq!(get_from(address, "/", headers).await.0, status, "{headers:?}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_waits_no_longer() {
    let gate = Delayed::new(per_client(), Duration::from_secs(3_600));
    let layer = AdmissionLayer::new(gate.clone());
    let address = serve_axum(layer.clone()).await;
    for _ in 0..2 {
        assert_eq!(get_from(address, "/", &[]).await.0, 200);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let waits = async |count| {
        while gate.waiting() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waits(1)).await.unwrap();
    drop(stream);
    tokio::time::timeout(TEST_TIMEOUT, waits(0)).await.unwrap();
    assert_eq!(layer.counts().abandoned, 1);
}

#[tokio::test]
async fn in_hyper() {
    let (listener, address) = listen().await;
    let layer = AdmissionLayer::new(per_client());
    let service = TowerToHyperService::new(layer.layer(Hello));
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let service = service.clone();
            // Hyper does not pass on the peer's address.
            let service =
                hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(peer);
                    hyper::service::Service::call(&service, request)
                });
            let serve =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serve);
        }
    });
    for status in [200, 200, 429] {
        assert_eq!(get_from(address, "/", &[]).await.0, status);
    }
    assert_eq!((layer.counts().passed, layer.counts().rejected), (2, 1));
}

mod grpc {
    //! A gRPC service without generated code, which echoes each request.

    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::{Buf, BufMut};
    use tonic::body::Body;
    use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
    use tonic::server::{Grpc, NamedService, UnaryService};
    use tonic::{Request, Response, Status};

    #[derive(Clone)]
    pub(super) struct Echo;

    impl NamedService for Echo {
        const NAME: &'static str = "test.Echo";
    }

    impl tower_service::Service<http::Request<Body>> for Echo {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            Box::pin(async { Ok(Grpc::new(Bytes).unary(Self, request).await) })
        }
    }

    impl UnaryService<Vec<u8>> for Echo {
        type Response = Vec<u8>;
        type Future = Ready<Result<Response<Vec<u8>>, Status>>;

        fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
            ready(Ok(Response::new(request.into_inner())))
        }
    }

    #[derive(Default)]
    pub(super) struct Bytes;

    impl Codec for Bytes {
        type Encode = Vec<u8>;
        type Decode = Vec<u8>;
        type Encoder = Self;
        type Decoder = Self;

        fn encoder(&mut self) -> Self {
            Self
        }

        fn decoder(&mut self) -> Self {
            Self
        }
    }

    impl Encoder for Bytes {
        type Item = Vec<u8>;
        type Error = Status;

        fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
            buffer.put_slice(&item);
            Ok(())
        }
    }

    impl Decoder for Bytes {
        type Item = Vec<u8>;
        type Error = Status;

        fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
            Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
        }
    }
}

#[tokio::test]
async fn in_tonic() {
    use tonic::transport::server::TcpIncoming;
    let (listener, address) = listen().await;
    let layer = AdmissionLayer::new(per_client());
    let server = tonic::transport::Server::builder().layer(layer.clone()).add_service(grpc::Echo);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = tonic::transport::Endpoint::try_from(format!("http://{address}")).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    let mut answers = Vec::new();
    for _ in 0..3 {
        client.ready().await.unwrap();
        let request = tonic::Request::new(b"hello".to_vec());
        let path = http::uri::PathAndQuery::from_static("/test.Echo/Echo");
        answers.push(client.unary(request, path, grpc::Bytes).await.map(tonic::Response::into_inner));
    }
    assert_eq!(answers[0].as_deref().unwrap(), b"hello");
    assert_eq!(answers[1].as_deref().unwrap(), b"hello");
    let status = answers.pop().unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "too many requests"));
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "10000");
    assert_eq!(status.metadata().get("ratelimit").unwrap(), "\"PerClient\";r=0;t=10");
    assert_eq!((layer.counts().passed, layer.counts().rejected), (2, 1));
}
