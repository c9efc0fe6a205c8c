//! `tollway guard` in a process of its own, and clients of it.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollway_testbed::TEST_TIMEOUT;

use crate::run::tollway;
use crate::upstream::{Pieces, body_of, full};

/// Killed with the test if that did not stop it.
pub(crate) struct Guarded {
    child: Child,
    pub(crate) address: String,
    metrics: String,
}

impl Guarded {
    /// One without a master.
    pub(crate) fn start(upstream: &str, arguments: &[&str]) -> Self {
        Self::launch(upstream, &[&["--master", "127.0.0.1:1"], arguments].concat())
    }

    /// One whose master takes accounting and publishes at these addresses.
    pub(crate) fn of(upstream: &str, master: &[String; 2], arguments: &[&str]) -> Self {
        let [accounting, control] = master;
        Self::launch(upstream, &[&["--master", accounting, "--control", control], arguments].concat())
    }

    fn launch(upstream: &str, arguments: &[&str]) -> Self {
        let mut command = tollway(&["guard", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.args(["--upstream", upstream, "--domain", "api"]).args(arguments);
        let mut child = command.env("RUST_LOG", "error").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut after = |name: &str| loop {
            let line = lines.next().expect("it announces where it is").unwrap();
            if let Some((_, rest)) = line.split_once(name) {
                return rest.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
            }
        };
        let (address, metrics) = (after("listens"), after("metrics"));
        Self { child, address, metrics }
    }

    /// Asks over a connection of its own.
    pub(crate) fn ask(&self, request: Request<Pieces>) -> impl Future<Output = Response<Incoming>> + use<> {
        ask(self.address.clone(), request)
    }

    /// The same, over HTTP/2, without asking first whether that is spoken.
    pub(crate) fn ask_http2(
        &self,
        request: Request<Pieces>,
    ) -> impl Future<Output = Response<Incoming>> + use<> {
        let connected = self.http2();
        async move { connected.await.send_request(request).await.unwrap() }
    }

    /// A connection for many requests at a time, which arrive in the order in which they are sent.
    pub(crate) fn http2(&self) -> impl Future<Output = http2::SendRequest<Pieces>> + use<> {
        let address = self.address.clone();
        async move {
            let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            sender
        }
    }

    /// The value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let request = Request::get("/metrics").body(full("")).unwrap();
        let response = ask(self.metrics.clone(), request).await;
        let text = String::from_utf8(body_of(response.into_body()).await).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("tollway_guard_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits until a metric is as it should be.
    pub(crate) async fn shows(&self, name: &str, as_it_should: impl Fn(u64) -> bool) {
        let started = Instant::now();
        while !as_it_should(self.metric(name).await) {
            assert!(started.elapsed() < TEST_TIMEOUT, "{name} never is as it should be");
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// The exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ask(address: String, mut request: Request<Pieces>) -> Response<Incoming> {
    request.headers_mut().entry("host").or_insert_with(|| address.parse().unwrap());
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}
