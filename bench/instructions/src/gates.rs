//! Sends requests to the gates of a server with one worker, whose thread is the one that is counted.
//!
//! A request to the text and the HTTP gate is sent when the one before is answered. The others get 64 in one write,
//! which loopback delivers in one read.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tollway::Clock;
use tollway::config::{Config, Gates};
use tollway::core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway::engine::Engine;
use tollway_server::{Server, Settings};
use tollway_wire::throttr::{QuotaAttribute, ThrottrCommand, encode_request};

/// The requests of a path with one request at a time.
pub(crate) const SINGLE_REQUESTS: usize = 4_096;
/// The requests of a path with a batch at a time.
pub(crate) const BATCHED_REQUESTS: usize = BATCH * 256;

const BATCH: usize = 64;
const IDS: usize = 1_024;
/// The time within which an answer must come. Under a tool that counts, everything takes fifty times as long.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONFIG: &str = "
limits: { PerUser: { burst: 1000000, count: 1, period: 1h } }
keys: [{ match: '^ws ip=', limit: 22, period: 20s, strict: true }]
";

/// Sends `over_limit` for one key after another.
pub(crate) fn text() -> Result<(), Box<dyn Error>> {
    let gates = Gates { text: Some(any()), ..Gates::OFF };
    let server = start(gates)?;
    let socket = UdpSocket::bind(any())?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(server.text_addr().ok_or("no text gate")?)?;
    let mut answer = [0; 512];
    for request in 0..SINGLE_REQUESTS {
        socket.send(format!("{request} over_limit ws ip=10.0.{}", id(request)).as_bytes())?;
        let size = socket.recv(&mut answer)?;
        if !answer[..size].starts_with(format!("{request} ok ").as_bytes()) {
            return Err(String::from_utf8_lossy(&answer[..size]).into());
        }
    }
    server.stop();
    Ok(())
}

/// Takes one from quotas that exist.
pub(crate) fn throttr() -> Result<(), Box<dyn Error>> {
    let server = start(Gates { throttr: Some(any()), ..Gates::OFF })?;
    let mut stream = connect(server.throttr_addr().ok_or("no Throttr gate")?)?;
    let lifetime = QuotaTtl { value: 86_400, unit: TtlUnit(2) };
    let insert = ThrottrCommand::Insert { quota: 1 << 40, lifetime };
    let update =
        ThrottrCommand::Update { attribute: QuotaAttribute::Quota, change: Change::Decrease, value: 1 };
    let commands = (0..IDS).map(|request| (request, &insert));
    let commands: Vec<_> =
        commands.chain((0..BATCHED_REQUESTS - IDS).map(|request| (request, &update))).collect();
    let mut answer = [0; 5 * BATCH];
    for batch in commands.chunks(BATCH) {
        let mut frames = Vec::new();
        for (request, command) in batch {
            encode_request(7, command, id(*request).as_bytes(), b"r", &mut frames)?;
        }
        stream.write_all(&frames)?;
        stream.read_exact(&mut answer)?;
        // The number of the request, and 1.
        if answer.chunks(5).any(|answer| answer != [7, 0, 0, 0, 1]) {
            return Err(format!("the quotas did not suffice: {answer:?}").into());
        }
    }
    server.stop();
    Ok(())
}

/// Sends `CL.THROTTLE` with the numbers of the limit.
pub(crate) fn resp() -> Result<(), Box<dyn Error>> {
    let server = start(Gates { resp: Some(any()), ..Gates::OFF })?;
    let mut stream = connect(server.resp_addr().ok_or("no RESP gate")?)?;
    for batch in 0..BATCHED_REQUESTS / BATCH {
        let command = |request| {
            let numbers = "$4\r\n1000\r\n$4\r\n1000\r\n$4\r\n3600\r\n";
            format!("*5\r\n$11\r\nCL.THROTTLE\r\n$9\r\n{}\r\n{numbers}", id(request))
        };
        let commands: String = (batch * BATCH..(batch + 1) * BATCH).map(command).collect();
        stream.write_all(commands.as_bytes())?;
        let (mut answers, mut lines) = (Vec::new(), 0);
        // Five integers, below a line that says so.
        while lines < 6 * BATCH {
            let mut read = [0; 4_096];
            let size = stream.read(&mut read)?;
            lines += read[..size].iter().filter(|byte| **byte == b'\n').count();
            answers.extend_from_slice(&read[..size]);
            if size == 0 {
                return Err("the connection ended".into());
            }
        }
        let allowed = answers.windows(8).filter(|window| *window == b"*5\r\n:0\r\n").count();
        if allowed != BATCH {
            return Err(String::from_utf8_lossy(&answers).into());
        }
    }
    server.stop();
    Ok(())
}

/// Sends `POST /v1/spend`.
pub(crate) fn http() -> Result<(), Box<dyn Error>> {
    let server = start(Gates { http: Some(any()), ..Gates::OFF })?;
    let mut stream = connect(server.http_addr().ok_or("no HTTP gate")?)?;
    let mut answer = [0; 4_096];
    for request in 0..SINGLE_REQUESTS {
        let body = format!(r#"{{"limit":"PerUser","id":"{}","cost":1}}"#, id(request));
        let head = "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        // A small answer comes in one piece.
        let size = stream.read(&mut answer)?;
        if !answer[..size].starts_with(b"HTTP/1.1 200 ") || !answer[..size].ends_with(b"}") {
            return Err(String::from_utf8_lossy(&answer[..size]).into());
        }
    }
    server.stop();
    Ok(())
}

fn start(gates: Gates) -> Result<Server, Box<dyn Error>> {
    let engine = Engine::open(Config::parse(CONFIG, "instructions.yaml")?, Clock::monotonic())?;
    Ok(Server::start(Settings { gates, workers: 1, ..Settings::new(Arc::new(engine)) })?)
}

fn connect(address: SocketAddr) -> Result<TcpStream, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns loopback with any free port.
fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Returns the id of a request. All have the same length, and none comes soon again.
fn id(request: usize) -> String {
    format!("user-{:04}", request * 7_919 % IDS)
}
