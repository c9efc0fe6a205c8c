//! Runs real proxies with the files of `examples/proxies`, in front of a real server.
//!
//! nginx and HAProxy are installed by `cargo xtask setup`. The others are in the folder that `cargo xtask test` names
//! in `TOLLWAY_PROXIES`; without it, their tests fail.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use socket2::{Domain, Socket, Type};
use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::support::{Harness, read_all, start_with};

/// Headers by which a client tries to be somebody else, or to ask something else.
const FORGED: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nX-Forwarded-Host: other\r\n\
                      X-Forwarded-Method: PUT\r\nX-Original-Method: PUT\r\nForwarded: for=203.0.113.9\r\n";

/// Headers of a browser that sends a form of one site to another.
const BROWSER: &str = "Origin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\n\
                       Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5\r\n\r\nhello";

/// The place where the headers of an allowed answer arrive.
#[derive(Clone, Copy, PartialEq)]
enum HeadersReach {
    Client,
    Application,
}

#[test]
fn nginx_asks_first_and_tells_the_client() {
    check("nginx", HeadersReach::Client, "200");
}

#[test]
fn haproxy_asks_first_and_tells_the_client() {
    check("haproxy", HeadersReach::Client, "200");
}

#[test]
fn caddy_asks_first_and_tells_the_client() {
    check("caddy", HeadersReach::Client, "502");
}

#[test]
fn envoy_asks_first_and_tells_the_client() {
    check("envoy", HeadersReach::Client, "200");
}

#[test]
fn traefik_asks_first_and_tells_the_client() {
    check("traefik", HeadersReach::Application, "500");
}

/// Three requests of a client pass and the fourth does not, whatever it says about itself. Another client passes.
/// Without Tollway, the proxy answers `stopped`.
fn check(program: &str, reach: HeadersReach, stopped: &str) {
    let gate = start_gate(|yaml| yaml);
    let proxy = Proxy::start(program, gate.server.http_addr().unwrap(), application());
    for remaining in (0..3).rev() {
        let answer = proxy.ask("127.0.0.2", "GET /a?limit=M&cost=0&id=x HTTP/1.1", FORGED);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let (head, seen) = answer.split_once("\r\n\r\n").unwrap();
        let told = if reach == HeadersReach::Client { head } else { seen };
        let expected = format!("ratelimit: \"requestsperipaddress\";r={remaining};t=10\r\n");
        assert_eq!(format!("{told}\r\n").to_lowercase().matches(&expected).count(), 1, "{answer}");
        assert!(seen.contains("GET /a?limit=M&cost=0&id=x HTTP/1."), "the application sees all: {answer}");
    }
    let denied = proxy.ask("127.0.0.2", "GET /b HTTP/1.1", FORGED);
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    for header in ["retry-after: 10\r\n", "ratelimit: \"requestsperipaddress\";r=0;t=10\r\n"] {
        assert_eq!(denied.to_lowercase().matches(header).count(), 1, "{header}: {denied}");
    }
    let other = proxy.ask("127.0.0.3", "POST /c HTTP/1.1", "Content-Length: 5\r\n\r\nhello");
    assert!(other.starts_with("HTTP/1.1 200 ") && other.contains("POST /c HTTP/1."), "{other}");
    assert!(other.ends_with("hello"), "the body arrives: {other}");
    let form = proxy.ask("127.0.0.4", "POST /d HTTP/1.1", BROWSER);
    assert!(form.starts_with("HTTP/1.1 200 "), "a form of another site is the application's: {form}");
    gate.server.stop();
    let answer = proxy.ask("127.0.0.2", "GET / HTTP/1.1", "");
    assert!(answer.starts_with(&format!("HTTP/1.1 {stopped} ")), "{answer}");
}

/// A Tollway that hangs is asked once, and then the proxy answers for itself. Traefik is not among these: it waits for
/// 30 seconds, whatever its file says.
#[test]
fn a_proxy_answers_without_a_gate_that_hangs_and_asks_it_once() {
    for (program, status) in [("nginx", "200"), ("haproxy", "200"), ("caddy", "504"), ("envoy", "200")] {
        let (gate, connections) = hanging_gate();
        let proxy = Proxy::start(program, gate, application());
        let before = connections.load(Ordering::SeqCst);
        let answer = proxy.ask("127.0.0.2", "GET / HTTP/1.1", "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{program}: {answer}");
        assert_eq!(connections.load(Ordering::SeqCst) - before, 1, "{program} asks once");
    }
}

#[test]
fn each_file_has_the_timeouts_that_the_page_promises() {
    let page = fs::read_to_string(root().join("docs/proxies.md")).unwrap();
    for (program, file, timeouts) in [
        ("nginx", "nginx.conf", &["proxy_connect_timeout 100ms;", "proxy_read_timeout 100ms;"][..]),
        ("Caddy", "Caddyfile", &["dial_timeout 100ms", "response_header_timeout 100ms"]),
        ("Envoy", "envoy.yaml", &["cluster: tollway, timeout: 0.1s }"]),
        ("HAProxy", "haproxy.cfg", &["timeout connect 100ms", "timeout server 100ms"]),
    ] {
        let mut rows = page.lines().filter(|line| line.starts_with(&format!("| [{program}]")));
        assert!(rows.next().unwrap().ends_with(" | 100 ms |"), "{program}");
        let text = example(file);
        assert!(timeouts.iter().all(|timeout| text.contains(timeout)), "{file}");
    }
}

/// Starts a gate that accepts connections and never answers, for as long as the test runs. Returns its address and the
/// number of its connections.
fn hanging_gate() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            open.push(stream);
        }
    });
    (address, connections)
}

/// `on_store_failure: deny` denies behind every proxy, also where an error of Tollway lets requests pass.
#[test]
fn every_proxy_denies_if_the_policy_denies_without_the_store() {
    for (program, status) in
        [("nginx", "503"), ("haproxy", "503"), ("caddy", "503"), ("traefik", "503"), ("envoy", "429")]
    {
        let gate = start_gate(|yaml| {
            format!(
                "store: redis://127.0.0.1:1\n{}",
                yaml.replace("id: ip", "id: ip, on_store_failure: deny")
            )
        });
        let proxy = Proxy::start(program, gate.server.http_addr().unwrap(), application());
        let denied = proxy.ask("127.0.0.2", "GET / HTTP/1.1", "");
        assert!(denied.starts_with(&format!("HTTP/1.1 {status} ")), "{program}: {denied}");
        let lower = denied.to_lowercase();
        assert!(lower.contains("retry-after: 1\r\n") && !lower.contains("ratelimit"), "{program}: {denied}");
        if matches!(program, "nginx" | "haproxy") {
            assert!(denied.ends_with("\r\n\r\nTry again in 1 s.\n"), "{program}: {denied}");
        }
    }
}

/// A client of IPv6 that uses another of its addresses for each request gets no further than with one.
#[test]
fn the_policy_of_the_page_and_the_built_in_one_count_a_network_of_ipv6() {
    for policy in [&*example("tollway.yaml"), tollway::Config::DEFAULT_YAML] {
        let gate = start_with(policy, |_| {});
        let ask = |host: u32, network: &str| {
            let id = format!("2001:db8:0:{network}::{host:x}");
            gate.get(&format!("/v1/gate?limit=RequestsPerIPAddress&id={id}&deny_status=403")).status
        };
        let denied = (0..1_000).position(|host| ask(host, "1") == 403);
        assert!(denied.is_some_and(|allowed| allowed >= 100), "{denied:?}");
        assert_ne!(ask(1, "2"), 403, "another network has a bucket of its own");
    }
}

/// The page shows the files as they are. No two servers in them listen at the same port, and none at a port that
/// Tollway has by default.
#[test]
fn the_page_shows_the_files_that_are_tested() {
    let page = fs::read_to_string(root().join("docs/proxies.md")).unwrap();
    let taken = [2000, 9000, 10004, 10005, 8081, 6380, 8082].map(|port| format!(":{port}"));
    for file in fs::read_dir(root().join("examples/proxies")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let text = example(&name);
        assert!(page.contains(&format!("\n{text}```")), "docs/proxies.md does not have {name} as it is");
        assert!(taken.iter().all(|port| !text.contains(port)), "{name}");
    }
}

/// A server with the limits of the examples, but fewer requests, by a clock that stands still.
fn start_gate(change: impl FnOnce(String) -> String) -> Harness {
    let policy = example("tollway.yaml");
    let fewer = policy.replace("burst: 100, count: 20, period: 1s", "burst: 3, count: 3, period: 30s");
    assert_ne!(policy, fewer);
    start_with(&change(fewer), |_| {})
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(name: &str) -> String {
    fs::read_to_string(root().join("examples/proxies").join(name)).unwrap()
}

/// The site behind the proxy: answers with what it was sent, for as long as the test runs.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            while !is_complete(&request) {
                let mut bytes = [0; 4096];
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => request.extend_from_slice(&bytes[..count]),
                }
            }
            let length = request.len();
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(&request);
        }
    });
    address
}

/// Returns whether the head has arrived, and the five bytes of a body if there is one.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    !head.contains("content-length: 5") || body.len() == 5
}

struct Proxy {
    process: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy with its file, in which only the addresses are changed.
    fn start(program: &str, gate: SocketAddr, application: SocketAddr) -> Self {
        let path = installed(program);
        let directory = tempfile::tempdir().unwrap();
        // Proxies cannot be given port 0, so each gets one that was free a moment ago.
        let [address, inner] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [address, inner] = [address, inner].map(|free| free.local_addr().unwrap());
        for file in fs::read_dir(root().join("examples/proxies")).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let mut text = example(&name);
            let new_ports = [
                (8080, gate.port()),
                (8079, inner.port()),
                (8000, address.port()),
                (3000, application.port()),
            ];
            for (port, new) in new_ports {
                text = text.replace(&format!(":{port}"), &format!(":{new}"));
                text = text.replace(&format!("port_value: {port}"), &format!("port_value: {new}"));
            }
            fs::write(directory.path().join(&name), around(&name, &text)).unwrap();
        }
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(&path)
            .args(arguments(program))
            .current_dir(directory.path())
            .env("HOME", directory.path())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs {program}; `cargo xtask setup` installs it: {error}")
            });
        let mut proxy = Self { process, address, directory };
        eventually(program, || {
            assert!(proxy.process.try_wait().unwrap().is_none(), "{program} ended: {}", proxy.log());
            // Traefik listens before it has its routes.
            TcpStream::connect(proxy.address).is_ok()
                && !proxy.ask("127.0.0.9", "GET / HTTP/1.1", "").starts_with("HTTP/1.1 404 ")
        });
        proxy
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Sends a request from an address of this machine, and returns the answer.
    fn ask(&self, from: &str, line: &str, headers: &str) -> String {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let end = if headers.contains("\r\n\r\n") { "" } else { "\r\n" };
        write!(stream, "{line}\r\nHost: site\r\nConnection: close\r\n{headers}{end}").unwrap();
        read_all(&mut stream)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Returns the path of a proxy that `cargo xtask` installs.
pub(crate) fn installed(program: &str) -> PathBuf {
    if matches!(program, "nginx" | "haproxy") {
        return program.into();
    }
    let folder = env::var_os("TOLLWAY_PROXIES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| panic!("TOLLWAY_PROXIES names no folder; run `cargo xtask test`"));
    folder.join("bin").join(program)
}

fn arguments(program: &str) -> &'static [&'static str] {
    match program {
        "nginx" => &["-e", "log", "-c", "nginx.conf", "-p", "."],
        "haproxy" => &["-db", "-f", "haproxy.cfg"],
        "caddy" => &["run", "--adapter", "caddyfile", "--config", "Caddyfile"],
        "traefik" => &["--configFile=traefik.yaml"],
        _ => &["--config-path", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"],
    }
}

/// Adds what a site's file is included into, so that a proxy uses nothing outside of its own folder.
fn around(name: &str, text: &str) -> String {
    match name {
        "nginx.conf" => format!(
            "daemon off; master_process off; pid nginx.pid; error_log log;
            events {{ }}
            http {{
                access_log off;
                client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                {text}
            }}"
        ),
        "Caddyfile" => format!("{{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}}\n{text}"),
        "traefik.yaml" => format!("{text}global: {{ checkNewVersion: false, sendAnonymousUsage: false }}\n"),
        _ => text.to_owned(),
    }
}
