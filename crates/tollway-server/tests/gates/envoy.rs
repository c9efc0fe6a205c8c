//! Runs a real Envoy with the configuration of `examples/envoy`, in front of a real server. The tests need the program,
//! whose folder `cargo xtask test` names in `TOLLWAY_PROXIES`; without it they fail.

mod control_planes;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::proxies::installed;
use crate::support::{Harness, read_all, start_with};

/// Starts a server with the limits of the example, and an Envoy that asks it.
fn start() -> (Harness, Envoy) {
    let gate = start_with(&example("ratelimit.yaml"), |_| {});
    // A busy machine may take longer than Envoy waits by the example, and then the request passes.
    let envoy = Envoy::start(gate.server.rls_addr().unwrap(), "30s");
    (gate, envoy)
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn envoy_asks_first_and_tells_the_client() {
    let (_gate, envoy) = start();
    for remaining in (0..10).rev() {
        let answer = envoy.get("/", "alice");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("from the application"), "{answer}");
        let header = format!("ratelimit: \"envoy/web/user\";r={remaining};t=60\r\n");
        assert!(answer.contains(&header), "{answer}");
    }
    let denied = envoy.get("/", "alice");
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    for header in [
        "retry-after: 60",
        "ratelimit: \"envoy/web/user\";r=0;t=60",
        "ratelimit-policy: \"envoy/web/user\";q=10;w=60, \"envoy/web/remote_address\";q=200;w=20",
    ] {
        assert_eq!(denied.matches(&format!("{header}\r\n")).count(), 1, "{header}: {denied}");
    }
    assert!(envoy.get("/", "bob").starts_with("HTTP/1.1 200 "), "another user has a bucket of its own");
}

#[test]
fn envoy_counts_a_report_as_five() {
    let (_gate, envoy) = start();
    let statuses = [(); 3].map(|()| envoy.status("/reports", "alice"));
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn envoy_brings_the_numbers() {
    let (_gate, envoy) = start();
    let statuses = [(); 3].map(|()| envoy.status("/trial", "alice"));
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(envoy.status("/trial", "bob"), 200);
    assert_eq!(envoy.status("/", "alice"), 200, "what is configured is counted by itself");
}

#[test]
fn envoy_does_not_wait_longer_than_its_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let envoy = Envoy::start(silent.local_addr().unwrap(), "0.25s");
    let answer = envoy.get("/", "alice");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("ratelimit"), "{answer}");
}

#[test]
fn envoy_goes_on_without_the_server_and_finds_it_again() {
    let (gate, envoy) = start();
    let address = gate.server.rls_addr().unwrap();
    assert!(envoy.get("/", "alice").contains("r=9;"));
    gate.server.stop();
    let unlimited = envoy.get("/", "alice");
    assert!(unlimited.starts_with("HTTP/1.1 200 ") && !unlimited.contains("ratelimit"), "{unlimited}");
    let _gate = start_with(&example("ratelimit.yaml"), |settings| settings.gates.rls = Some(address));
    eventually("Envoy to reconnect", || envoy.get("/", "bob").contains("ratelimit"));
}

#[test]
fn a_thousand_requests_in_flight_take_exactly_the_limit() {
    let (_gate, envoy) = start();
    let connections: Vec<_> = (0..1_000).map(|_| envoy.send("/", "alice")).collect();
    let statuses: Vec<_> =
        connections.into_iter().map(|mut stream| status_of(&read_all(&mut stream))).collect();
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(429)), (10, 990));
}

fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// The application behind Envoy: answers everything, for as long as the test runs.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nfrom the application";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

struct Envoy {
    process: Child,
    address: SocketAddr,
}

impl Envoy {
    fn start(gate: SocketAddr, timeout: &str) -> Self {
        let moved = |port: u16| format!("port_value: {port} ");
        Self::run(|port| {
            example("envoy.yaml")
                .replace("timeout: 0.25s", &format!("timeout: {timeout}"))
                .replace("port_value: 9901 ", &moved(0))
                .replace("port_value: 10000 ", &moved(port))
                .replace("port_value: 3000 ", &moved(application().port()))
                .replace("port_value: 8081 ", &moved(gate.port()))
        })
    }

    /// Starts an Envoy with a configuration whose listener has the port that is given.
    fn run(config: impl FnOnce(u16) -> String) -> Self {
        // Envoy tells the port of its listener only over its own HTTP, so it gets one that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = config(address.port());
        let process = Command::new(installed("envoy"))
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning", "--config-yaml"])
            .arg(config)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut envoy = Self { process, address };
        eventually("Envoy", || {
            assert!(envoy.process.try_wait().unwrap().is_none(), "Envoy ended");
            TcpStream::connect(envoy.address).is_ok()
        });
        envoy
    }

    /// Sends a request, and returns the connection on which its answer comes.
    fn send(&self, path: &str, user: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: site\r\nx-user: {user}\r\nConnection: close\r\n\r\n")
            .unwrap();
        stream
    }

    fn get(&self, path: &str, user: &str) -> String {
        read_all(&mut self.send(path, user))
    }

    fn status(&self, path: &str, user: &str) -> u16 {
        status_of(&self.get(path, user))
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
