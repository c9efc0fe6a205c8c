//! A server on a free port, by a clock that stands still, and bytes to and from it.

pub(crate) mod config_file;
pub(crate) mod http2;
pub(crate) mod rls;
pub(crate) mod tls;
pub(crate) mod tokens;
pub(crate) mod zeromq;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tollway::config::{Gates, SmockronGate};
use tollway::core::Timestamp;
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_server::{Bounds, Server, Settings};
use tollway_testbed::TEST_TIMEOUT;

pub(crate) const POLICY: &str = "
limits:
  Login: { burst: 5, count: 5, period: 1m }
  Fast: { burst: 20, count: 20, period: 1s }
  Report: { burst: 3, count: 3, period: 3s, id: regId }
  Fixed: { algorithm: fixed_window, count: 5, period: 200000h, offset: 90m }
  Sliding: { algorithm: sliding_window, count: 5, period: 200000h }
overrides:
  Login:vip: { burst: 100, count: 100, period: 1m }
rules:
  upload: Or('10/s', 'user:1/m')
  closed: And()
";

pub(crate) struct Harness {
    pub(crate) server: Server,
    pub(crate) clock: Clock,
    pub(crate) limiter: Arc<Engine>,
}

pub(crate) fn start() -> Harness {
    start_with(POLICY, |_| {})
}

pub(crate) fn start_with(policy: &str, change: impl FnOnce(&mut Settings)) -> Harness {
    let config = Config::parse(policy, "policy.yaml").expect("a good policy");
    let clock = Clock::manual(Timestamp::EPOCH);
    let gates = config.gates.clone();
    let limiter = Engine::open(config, clock).expect("a store that can be opened");
    start_limiter(limiter, |settings| {
        settings.gates.http_settings = gates.http_settings;
        settings.gates.admin_hosts = gates.admin_hosts;
        settings.gates.throttr_settings = gates.throttr_settings;
        change(settings);
    })
}

/// Puts every gate on a free port.
pub(crate) fn any_ports() -> Gates {
    let any = Some("127.0.0.1:0".parse().unwrap());
    let smockron = any.map(SmockronGate::at);
    Gates { http: any, text: any, throttr: any, resp: any, smockron, rls: any, ..Gates::OFF }
}

pub(crate) fn start_limiter(limiter: Engine, change: impl FnOnce(&mut Settings)) -> Harness {
    let (clock, limiter) = (limiter.clock().clone(), Arc::new(limiter));
    let mut settings = Settings {
        gates: any_ports(),
        workers: 2,
        bounds: Bounds { drain_idle: Duration::from_millis(5), ..Bounds::default() },
        ..Settings::new(Arc::clone(&limiter))
    };
    change(&mut settings);
    Harness { server: Server::start(settings).expect("a free port"), clock, limiter }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Harness {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.http_addr().unwrap())
    }

    /// A connection, for what no client library would send.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.http_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.request("POST", path, Some(body))
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        Self::request_at(&self.url(path), method, body)
    }

    /// Asks any gate that speaks HTTP.
    pub(crate) fn request_at(url: &str, method: &str, body: Option<&str>) -> Reply {
        Self::request_with(url, method, body, None)
    }

    /// Asks any gate that speaks HTTP, with a token or without.
    pub(crate) fn request_with(url: &str, method: &str, body: Option<&str>, token: Option<&str>) -> Reply {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(TEST_TIMEOUT))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = match body {
            Some(body) => {
                agent.run(request.header("content-type", "application/json").body(body.to_owned()).unwrap())
            }
            None => agent.run(request.body(()).unwrap()),
        };
        let mut response = response.unwrap_or_else(|error| panic!("{method} {url}: {error}"));
        let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap().to_owned();
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: response.body_mut().read_to_string().unwrap(),
        }
    }

    /// Sends raw bytes and reads until the server closes.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        read_all(&mut stream)
    }

    /// Asserts that the next request is served.
    pub(crate) fn assert_alive(&self) {
        assert_eq!(self.get("/healthz").status, 200);
    }
}

/// All that comes until the other side closes, or resets what it has told enough.
pub(crate) fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}
