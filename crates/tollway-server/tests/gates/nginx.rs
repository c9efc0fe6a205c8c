//! Runs a real nginx with the configuration of `docs/nginx.md`, in front of a real server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::support::{read_all, start_with};

const POLICY: &str = "limits: { RequestsPerIPAddress: { burst: 3, count: 3, period: 30s, id: ip } }";

#[test]
fn nginx_asks_first_and_tells_the_client() {
    let gate = start_with(POLICY, |_| {});
    let application = application();
    let nginx = Nginx::start(gate.server.http_addr().unwrap(), application);
    for remaining in (0..3).rev() {
        let answer = nginx.get("/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(
            answer.contains(&format!("RateLimit: \"RequestsPerIPAddress\";r={remaining};t=")),
            "{answer}"
        );
        assert!(answer.ends_with("from the application"), "{answer}");
    }
    let denied = nginx.get("/");
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    for header in [
        "Retry-After: 10",
        "RateLimit: \"RequestsPerIPAddress\";r=0;t=10",
        "RateLimit-Policy: \"RequestsPerIPAddress\";q=3;w=30",
    ] {
        assert_eq!(denied.matches(&format!("{header}\r\n")).count(), 1, "{header}: {denied}");
    }
    gate.server.stop();
    let unlimited = nginx.get("/");
    assert!(
        unlimited.starts_with("HTTP/1.1 200 ") && unlimited.ends_with("from the application"),
        "{unlimited}"
    );
}

#[test]
fn nginx_does_not_blame_the_client_for_an_unreachable_store() {
    let limits = POLICY.replace("id: ip", "id: ip, on_store_failure: deny");
    let gate = start_with(&format!("store: redis://127.0.0.1:1\n{limits}"), |_| {});
    let nginx = Nginx::start(gate.server.http_addr().unwrap(), application());
    let denied = nginx.get("/");
    assert!(denied.starts_with("HTTP/1.1 503 "), "{denied}");
    assert!(denied.contains("Retry-After: 1\r\n") && !denied.contains("RateLimit"), "{denied}");
    assert!(denied.ends_with("\r\n\r\nTry again in 1 seconds.\n"), "{denied}");
}

/// A client of IPv6 that uses another of its addresses for each request gets no further than with one.
#[test]
fn the_policy_of_the_page_and_the_built_in_one_count_a_network_of_ipv6() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nginx.md")).unwrap();
    let policy = page.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    for policy in [policy, tollway::Config::DEFAULT_YAML] {
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

/// No two servers of the page listen at the same port, and none at a port that Tollway has by default.
#[test]
fn the_ports_of_the_page_are_free() {
    let site = documented();
    let taken = [2000, 9000, 10004, 10005, 8081, 6380, 8082].map(|port| format!(":{port}"));
    assert!(taken.iter().all(|port| !site.contains(port)), "{site}");
}

/// The site behind nginx: answers everything, for as long as the test runs.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nfrom the application");
        }
    });
    address
}

struct Nginx {
    process: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Nginx {
    fn start(gate: SocketAddr, application: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // nginx cannot be given port 0, so it gets one that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let site = documented()
            .replace("127.0.0.1:8080", &gate.to_string())
            .replace("127.0.0.1:8000", &address.to_string())
            .replace("127.0.0.1:3000", &application.to_string());
        fs::write(directory.path().join("nginx.conf"), whole(&site)).unwrap();
        let process = Command::new("nginx")
            .args(["-e", "error.log", "-c", "nginx.conf", "-p"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs nginx; `cargo xtask setup` installs it: {error}")
            });
        let mut nginx = Self { process, address, directory };
        nginx.wait_until_it_listens();
        nginx
    }

    fn wait_until_it_listens(&mut self) {
        eventually("nginx", || {
            assert!(self.process.try_wait().unwrap().is_none(), "nginx ended: {}", self.log());
            TcpStream::connect(self.address).is_ok()
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("error.log")).unwrap_or_default()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").unwrap();
        read_all(&mut stream)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the configuration on the page.
fn documented() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nginx.md");
    let page = fs::read_to_string(page).unwrap();
    page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0.to_owned()
}

/// With what a site's configuration is included into: one process, everything in its own directory.
fn whole(site: &str) -> String {
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;
        events {{ }}
        http {{
            access_log off;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            {site}
        }}"
    )
}
