//! Starts services for a proxy to protect.

use std::convert::Infallible;
use std::future::Future;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tollway_testbed::{Certificates, TEST_TIMEOUT};

pub(crate) type BoxedBody = BoxBody<Bytes, hyper::Error>;

#[derive(Clone)]
enum Protocol {
    Http1,
    Http2,
    Https(TlsAcceptor),
}

pub(crate) struct Upstream {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn http1<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Response<BoxedBody>> + Send + 'static,
    {
        Self::serve(answer, Protocol::Http1).await
    }

    pub(crate) async fn http2<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Response<BoxedBody>> + Send + 'static,
    {
        Self::serve(answer, Protocol::Http2).await
    }

    /// Starts a service with HTTP/1.1 over TLS.
    pub(crate) async fn https<F>(
        certificates: &Certificates,
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Response<BoxedBody>> + Send + 'static,
    {
        let chain = CertificateDer::pem_file_iter(certificates.certificate()).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(certificates.key()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.collect(), key)
            .unwrap();
        Self::serve(answer, Protocol::Https(Arc::new(config).into())).await
    }

    async fn serve<F>(
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        protocol: Protocol,
    ) -> Self
    where
        F: Future<Output = Response<BoxedBody>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&connections);
        let serving = async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answering = answer(request);
                    async { Ok::<_, Infallible>(answering.await) }
                });
                let protocol = protocol.clone();
                tokio::spawn(async move {
                    let http1 = hyper::server::conn::http1::Builder::new();
                    match protocol {
                        Protocol::Http1 => {
                            let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                        }
                        Protocol::Http2 => {
                            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
                        }
                        Protocol::Https(tls) => {
                            // A client that does not trust the certificate ends the handshake.
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let _ = http1.serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        };
        // By itself: a client may block the test's thread.
        thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving)
        });
        Self { address, connections }
    }

    /// Starts a service that runs a script on each connection.
    pub(crate) fn raw(script: impl Fn(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                script(stream);
            }
        });
        Self { address, connections: Arc::default() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(crate) fn answer(text: impl Into<String>) -> Response<BoxedBody> {
    Response::new(full(text))
}

pub(crate) fn full(text: impl Into<String>) -> BoxedBody {
    Full::new(Bytes::from(text.into())).map_err(|never| match never {}).boxed()
}

pub(crate) async fn body_of(body: Incoming) -> Vec<u8> {
    body.collect().await.unwrap().to_bytes().to_vec()
}

/// Reads the head of a message, up to the empty line.
pub(crate) fn head(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
