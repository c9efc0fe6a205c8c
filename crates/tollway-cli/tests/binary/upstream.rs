//! Services to protect.

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
use tollway_testbed::TEST_TIMEOUT;

pub(crate) type Pieces = BoxBody<Bytes, hyper::Error>;

pub(crate) struct Upstream {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn http1<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Response<Pieces>> + Send + 'static,
    {
        Self::serve(answer, false).await
    }

    pub(crate) async fn http2<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Response<Pieces>> + Send + 'static,
    {
        Self::serve(answer, true).await
    }

    async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static, http2: bool) -> Self
    where
        F: Future<Output = Response<Pieces>> + Send + 'static,
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
                let stream = TokioIo::new(stream);
                tokio::spawn(async move {
                    if http2 {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = server.serve_connection(stream, service).await;
                    } else {
                        let server = hyper::server::conn::http1::Builder::new();
                        let _ = server.serve_connection(stream, service).await;
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

    /// One that does with each connection what it likes.
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

pub(crate) fn answer(text: impl Into<String>) -> Response<Pieces> {
    Response::new(full(text))
}

pub(crate) fn full(text: impl Into<String>) -> Pieces {
    Full::new(Bytes::from(text.into())).map_err(|never| match never {}).boxed()
}

pub(crate) async fn body_of(body: Incoming) -> Vec<u8> {
    body.collect().await.unwrap().to_bytes().to_vec()
}

/// Lines up to the first that is empty.
pub(crate) fn head(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
