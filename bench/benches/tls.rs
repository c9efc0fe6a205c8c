//! Benchmarks TLS on the HTTP gate: beside the same gate in plain text, and for a client during a storm of handshakes.
//!
//! `cargo xtask bench tls`, which passes the path of Tollway's program.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, nginx, pin_this_thread};
use tollway_testbed::Certificates;

const CONNECTIONS: usize = 50;
const GET: &[u8] = b"GET /?id=alice HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The last bytes of every GIF, and so of the pixel that nginx answers with.
const GIF_END: &[u8] = b"\0\x3b";
/// The number of handshakes in a storm.
const STORM: usize = 1_000;
/// The number of storms for each turn of the other measurement. One takes a fifth of a second, in which whatever else
/// the machine does changes the p99.
const STORMS_PER_TURN: usize = 3;
/// The time before each storm in which the same client is timed.
const QUIET: Duration = Duration::from_millis(300);
/// The time between two requests of the client whose answers are timed.
const PACE: Duration = Duration::from_micros(500);
const BODY: &str = r#"{"limit":"PerUser","id":"alice","cost":1}"#;

fn main() -> io::Result<()> {
    let options = OptionSpec { programs: &["tollway"], turns: 7, seconds: 2.0, ..OptionSpec::NONE }.read()?;
    let (tollway, turn) = (&options.programs[0], Duration::from_secs_f64(options.seconds));
    let scratch = ScratchDirectory::new()?;
    let certificates = Certificates::create(scratch.path());
    let plain = start_tollway(tollway, scratch.path(), "plain", None)?;
    let secured = start_tollway(tollway, scratch.path(), "tls", Some(&certificates))?;
    let [nginx_plain, nginx_secured] =
        [start_nginx(scratch.path(), None)?, start_nginx(scratch.path(), Some(&certificates))?];
    let config = client_config(&certificates)?;
    let spend = post();
    let mut loads = [
        Load::open("nginx, plain", &nginx_plain, None, GET)?,
        Load::open("nginx, TLS", &nginx_secured, Some(&config), GET)?,
        Load::open("tollway, plain", &plain, None, &spend)?,
        Load::open("tollway, TLS", &secured, Some(&config), &spend)?,
    ];
    let mut contestants: Vec<_> = loads
        .iter_mut()
        .map(|load| Contestant {
            name: load.name,
            work: Box::new(|| load.run(turn).expect("a server answers as it did before")),
        })
        .collect();
    pin_this_thread(1);
    let standings = alternate(options.turns, &mut contestants);
    drop(contestants);
    let mut part = format!(
        "{CONNECTIONS} keep-alive connections, the server on one core and the clients on the other; {} turns of {turn:?}, \
         alternating:\nmedian (lowest to highest), and ratios turn by turn.\n\n\
         | | requests a second | CPU time of the server a request | speed of TLS / of plain text |\n|---|---|---|---|\n",
        options.turns
    );
    for (index, (standing, load)) in standings.iter().zip(&loads).enumerate() {
        let Spread { median, low, high } = standing.nanos;
        let rate = Spread { median: 1e9 / median, low: 1e9 / high, high: 1e9 / low };
        // Those by TLS come after the same in plain text.
        let ratio = if index % 2 == 0 {
            String::new()
        } else {
            format!("{:.2}", standing.ratio_to(&standings[index - 1]))
        };
        part += &format!("| {} | {rate:.0} | {:.1} µs | {ratio} |\n", standing.name, load.cpu_micros());
    }
    // Their connections are not needed any more.
    drop(loads);
    let second = start_tollway(tollway, scratch.path(), "second", Some(&certificates))?;
    part += &measure_storms([&secured, &second, &nginx_secured], &config, options.turns * STORMS_PER_TURN)?;
    publish(&options, "cargo xtask bench tls", "tls", &part)
}

/// Some connections to one server, each of which always has one request in flight. `wrk` takes more time for a TLS
/// request than the server does, so with it the client would be measured.
struct Load<'a> {
    name: &'static str,
    server: &'a BenchServer,
    request: &'a [u8],
    connections: Vec<Box<dyn Connection>>,
    requests: u64,
    cpu: Duration,
}

/// A connection in plain text or by TLS.
trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

impl<'a> Load<'a> {
    fn open(
        name: &'static str,
        server: &'a BenchServer,
        tls: Option<&Arc<ClientConfig>>,
        request: &'a [u8],
    ) -> io::Result<Self> {
        let connect = |_| -> io::Result<Box<dyn Connection>> {
            let mut connection: Box<dyn Connection> = match tls {
                None => Box::new(connect_plain(server.address)?),
                Some(config) => Box::new(connect(server.address, config)?),
            };
            send(&mut *connection, request)?;
            Ok(connection)
        };
        let connections = (0..CONNECTIONS).map(connect).collect::<io::Result<_>>()?;
        Ok(Self { name, server, request, connections, requests: 0, cpu: Duration::ZERO })
    }

    /// Runs one turn, and returns the nanoseconds of a request.
    fn run(&mut self, turn: Duration) -> io::Result<f64> {
        let (began, cpu, mut requests) = (Instant::now(), self.server.cpu_time()?, 0_u64);
        while began.elapsed() < turn {
            for connection in &mut self.connections {
                receive(&mut **connection)?;
                send(&mut **connection, self.request)?;
                requests += 1;
            }
        }
        let took = began.elapsed();
        self.cpu += self.server.cpu_time()? - cpu;
        self.requests += requests;
        Ok(took.as_nanos() as f64 / requests as f64)
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_nanos() as f64 / 1e3 / self.requests as f64
    }
}

fn send(connection: &mut dyn Connection, request: &[u8]) -> io::Result<()> {
    connection.write_all(request)?;
    connection.flush()
}

/// Reads one answer: those of nginx are a pixel, and those of Tollway a JSON object.
fn receive(connection: &mut dyn Connection) -> io::Result<()> {
    let (mut answer, mut filled) = ([0; 4096], 0);
    loop {
        match connection.read(&mut answer[filled..])? {
            0 => return Err(io::Error::other("the server closed the connection")),
            read => filled += read,
        }
        let answer = &answer[..filled];
        if answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"}") || answer.ends_with(GIF_END) {
            return Ok(());
        }
    }
}

fn post() -> Vec<u8> {
    let head = "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{BODY}", BODY.len()).into_bytes()
}

fn start_tollway(
    program: &str,
    scratch: &Path,
    name: &str,
    certificates: Option<&Certificates>,
) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join(format!("{name}.yaml")));
    let tls = certificates.map(|certificates| {
        format!(
            ", tls: {{ cert: {}, key: {} }}",
            certificates.certificate().display(),
            certificates.key().display()
        )
    });
    let text = format!(
        "limits: {{ PerUser: {{ burst: 1000000000, count: 1000, period: 1s }} }}\n\
         gates: {{ http: {{ listen: '{address}'{} }} }}\n",
        tls.unwrap_or_default()
    );
    fs::write(&config, text)?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    BenchServer::start(command, address)
}

fn start_nginx(scratch: &Path, certificates: Option<&Certificates>) -> io::Result<BenchServer> {
    let address = free_address()?;
    let listen = certificates.map_or_else(
        || format!("listen {address};"),
        |certificates| {
            let (cert, key) = (certificates.certificate().display(), certificates.key().display());
            format!("listen {address} ssl; ssl_certificate {cert}; ssl_certificate_key {key};")
        },
    );
    let name = if certificates.is_some() { "nginx-tls" } else { "nginx-plain" };
    let zone = "limit_req_zone $arg_id zone=per_user:10m rate=1000000r/s;";
    let location = "location / { limit_req zone=per_user burst=1000000 nodelay; empty_gif; }";
    let command = nginx(scratch, name, &format!("{zone} server {{ {listen} {location} }}"))?;
    BenchServer::start(command, address)
}

/// A client that is timed, and the server that gets the handshakes meanwhile.
struct Arrangement<'a> {
    name: &'static str,
    live: StreamOwned<ClientConnection, TcpStream>,
    request: &'a [u8],
    storm_at: SocketAddr,
    calm: Vec<f64>,
    stormy: Vec<f64>,
    ratios: Vec<f64>,
    took: Vec<f64>,
}

impl<'a> Arrangement<'a> {
    fn new(
        name: &'static str,
        live_at: SocketAddr,
        request: &'a [u8],
        storm_at: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let live = connect(live_at, config)?;
        Ok(Self { name, live, request, storm_at, calm: vec![], stormy: vec![], ratios: vec![], took: vec![] })
    }

    /// Times the client for a while, and then during a storm.
    fn run(&mut self, config: &Arc<ClientConfig>) -> io::Result<()> {
        let (until, storm_is_over) = (Instant::now() + QUIET, AtomicBool::new(false));
        let Self { live, request, storm_at, .. } = self;
        let calm = paced(live, request, || Instant::now() < until)?;
        let (stormy, took) = thread::scope(|scope| {
            let storm = scope.spawn(|| {
                let made = storm(*storm_at, config);
                storm_is_over.store(true, Ordering::SeqCst);
                // What was opened is closed after the measurement, which is one of handshakes.
                made.map(|(time, _clients)| time)
            });
            let stormy = paced(live, request, || !storm_is_over.load(Ordering::SeqCst));
            (stormy, storm.join().expect("a storm does not panic"))
        });
        let stormy = stormy?;
        self.ratios.push(percentile(&stormy, 990) / percentile(&calm, 990));
        self.calm.extend(calm);
        self.stormy.extend(stormy);
        self.took.push(took?.as_secs_f64() * 1e3);
        Ok(())
    }
}

/// Times the requests of a client with an open connection while nothing else happens and during storms. A storm is also
/// work of the client, on the same machine, so it is made at another server, too. A difference between those two rows
/// means something only if it is larger than the spread of single storms.
fn measure_storms(
    [secured, second, nginx]: [&BenchServer; 3],
    config: &Arc<ClientConfig>,
    storms: usize,
) -> io::Result<String> {
    let (secured, second, nginx, spend) = (secured.address, second.address, nginx.address, post());
    let mut arrangements = [
        Arrangement::new("tollway", secured, &spend, secured, config)?,
        Arrangement::new("tollway, handshakes at a second one", secured, &spend, second, config)?,
        Arrangement::new("nginx", nginx, GET, nginx, config)?,
    ];
    let mut table = format!(
        "\nA client with a request every {PACE:?} by TLS, for {QUIET:?} without handshakes and then while {STORM} are made at \
         once,\n{storms} times, alternating. The storm's own work is in all rows: its client has the core of the client \
         that is timed.\n\n\
         | the client asks | p99 without handshakes | p99 while they are made | ratio | ratio of one storm | 99.9 % within | all handshakes took |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for _ in 0..storms {
        for arrangement in &mut arrangements {
            arrangement.run(config)?;
        }
    }
    for Arrangement { name, calm, stormy, ratios, took, .. } in arrangements {
        let [calm, stormy, worst] =
            [percentile(&calm, 990), percentile(&stormy, 990), percentile(&stormy, 999)];
        let (ratios, took) = (Spread::of(ratios), Spread::of(took));
        table += &format!(
            "| {name} | {calm:.0} µs | {stormy:.0} µs | {:.2} | {ratios:.2} | {worst:.0} µs | {took:.0} ms |\n",
            stormy / calm
        );
    }
    Ok(table)
}

/// Sends requests at a fixed pace while the condition holds, and returns the microseconds that each waited.
fn paced(
    live: &mut dyn Connection,
    request: &[u8],
    mut goes_on: impl FnMut() -> bool,
) -> io::Result<Vec<f64>> {
    let (mut waited, mut due) = (Vec::new(), Instant::now());
    while goes_on() {
        // A request that is late because of the answer before has waited since it was due. One that is late because
        // this thread was not woken in time has not.
        let now = Instant::now();
        let began = if now < due {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        send(live, request)?;
        receive(live)?;
        waited.push(began.elapsed().as_nanos() as f64 / 1e3);
        due = began + PACE;
    }
    Ok(waited)
}

/// Returns the time that this part of the requests, of a thousand, waited at most.
fn percentile(waited: &[f64], per_mille: usize) -> f64 {
    let mut waited = waited.to_vec();
    waited.sort_by(f64::total_cmp);
    waited[waited.len() * per_mille / 1_000]
}

/// Makes many handshakes at once, and returns the time until the last was done, and the open connections.
fn storm(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<(Duration, Vec<(TcpStream, ClientConnection)>)> {
    pin_this_thread(1);
    // The other client of this core is the one that is timed, and must not wait for this thread. On Linux this is the
    // priority of the thread alone, and a thread that does not yield goes on for milliseconds in spite of it.
    rustix::process::nice(19)?;
    let began = Instant::now();
    let mut clients = Vec::with_capacity(STORM);
    for _ in 0..STORM {
        clients.push((TcpStream::connect(address)?, client(config)?));
        thread::yield_now();
    }
    for (socket, client) in &mut clients {
        client.write_tls(socket)?;
        thread::yield_now();
    }
    for (socket, client) in &mut clients {
        while client.is_handshaking() {
            client.complete_io(socket)?;
            thread::yield_now();
        }
    }
    Ok((began.elapsed(), clients))
}

fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    Ok(StreamOwned::new(client(config)?, connect_plain(address)?))
}

fn connect_plain(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn client(config: &Arc<ClientConfig>) -> io::Result<ClientConnection> {
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)
}

fn client_config(certificates: &Certificates) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(certificates.authority()).map_err(io::Error::other)?;
    roots.add(authority).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Every handshake of a storm is a full one.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}
