//! Runs `tollway guard` in a process of its own, and sends it requests.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::run::tollway;
use crate::upstream::{BoxedBody, body_of, full};

/// A proxy that ends with the test.
pub(crate) struct GuardProcess {
    child: Child,
    pub(crate) address: String,
    metrics: String,
    log: Arc<Mutex<String>>,
}

impl GuardProcess {
    /// Starts a proxy whose master is unreachable.
    pub(crate) fn start(upstream: &str, arguments: &[&str]) -> Self {
        Self::launch(upstream, &[&["--domain", "api", "--master", "127.0.0.1:1"], arguments].concat())
    }

    /// Starts a proxy with a limit or a rule of a configuration file.
    pub(crate) fn local(upstream: &str, config: &str, arguments: &[&str]) -> Self {
        Self::launch(upstream, &[&["--config", config], arguments].concat())
    }

    /// Starts a proxy whose master takes accounting and publishes at these addresses.
    pub(crate) fn of(upstream: &str, master: &[String; 2], arguments: &[&str]) -> Self {
        let [accounting, control] = master;
        let master = ["--domain", "api", "--master", accounting, "--control", control];
        Self::launch(upstream, &[&master, arguments].concat())
    }

    fn launch(upstream: &str, arguments: &[&str]) -> Self {
        let mut command = tollway(&["guard", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.args(["--upstream", upstream]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.env("RUST_LOG", "info").spawn().unwrap();
        let log = Arc::<Mutex<String>>::default();
        let (mut stderr, lines_of) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        // All of it is read, so that the process never waits for a reader.
        thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|len| len > 0) {
                lines_of.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut after = |name: &str| loop {
            let line = lines.next().expect("it announces where it is").unwrap();
            if let Some((_, rest)) = line.split_once(name) {
                return rest.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
            }
        };
        let (address, metrics) = (after("listens"), after("metrics"));
        Self { child, address, metrics, log }
    }

    /// Sends a request over a connection of its own.
    pub(crate) fn ask(
        &self,
        request: Request<BoxedBody>,
    ) -> impl Future<Output = Response<Incoming>> + use<> {
        ask(self.address.clone(), request)
    }

    /// Sends a request over HTTP/2, with prior knowledge.
    pub(crate) fn ask_http2(
        &self,
        request: Request<BoxedBody>,
    ) -> impl Future<Output = Response<Incoming>> + use<> {
        let connected = self.http2();
        async move { connected.await.send_request(request).await.unwrap() }
    }

    /// Opens an HTTP/2 connection. Requests arrive in the order in which they are sent.
    pub(crate) fn http2(&self) -> impl Future<Output = http2::SendRequest<BoxedBody>> + use<> {
        let address = self.address.clone();
        async move {
            let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            sender
        }
    }

    /// Returns the value of a metric.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.admin("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("tollway_guard_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Returns the status and the body of a path on the port for metrics.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        let response = ask(self.metrics.clone(), Request::get(path).body(full("")).unwrap()).await;
        let status = response.status().as_u16();
        (status, String::from_utf8(body_of(response.into_body()).await).unwrap())
    }

    /// Waits until the log has this text.
    pub(crate) fn logs(&self, text: &str) {
        eventually(text, || self.log.lock().unwrap().contains(text));
    }

    /// Waits until the value of a metric fulfils a condition.
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

    /// Waits for the end of the process, and returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ask(address: String, mut request: Request<BoxedBody>) -> Response<Incoming> {
    request.headers_mut().entry("host").or_insert_with(|| address.parse().unwrap());
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}
