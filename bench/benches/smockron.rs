//! Benchmarks the Smockron gate against a plain reader of the same bytes, and under load from libzmq.
//!
//! Run it with `cargo xtask bench smockron`. The results of five turns or more are written into docs/benchmarks.md.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, on_client_core, pin_this_thread};
use tollway_wire::smockron::{AccountingMessage, AccountingStatus};
use tollway_wire::zmtp::{SocketType, encode_handshake, encode_subscription};

/// The number of messages that a gatekeeper sends in a turn.
const MESSAGES: usize = 1_000_000;
const WRITE: usize = 8 << 10;
const IDENTIFIERS: usize = 100_000;
const SUBSCRIBERS: usize = 4;
/// The messages a second that one core must take, and for how many seconds.
const RATE: usize = 150_000;
const RATE_SECONDS: usize = 10;
const FLOOD: usize = 3_000_000;
/// The number of concurrent senders, which together exceed what one core can take.
const FLOODERS: usize = 16;
/// A ping that follows all messages. Its answer shows that everything before it has been read.
const PING: &[u8] = b"\x04\x07\x04PING\0\0";
const PONG: &[u8] = b"\x04\x05\x04PONG";
const POLICY: &str = "domains:
  web: { rules: [{ rate: 100/s, burst: 1000 }] }
  all: { rules: [{ rate: 1/s, burst: 1 }] }
";

fn main() -> io::Result<()> {
    let programs = ["tollway", "a Python with libzmq"];
    let options = OptionSpec { programs: &programs, turns: 7, ..OptionSpec::NONE }.read()?;
    let ([program, python], turns) = (&options.programs[..], options.turns) else {
        unreachable!("two were asked for")
    };
    let scratch = ScratchDirectory::new()?;
    let mut part = format!(
        "One master on one core, the senders on the other; {turns} turns of {MESSAGES} messages, alternating:\n\
         median (lowest to highest), and ratios turn by turn.\n\n"
    );
    beside_the_bare_reader(program, &scratch, turns, &mut part)?;
    under_libzmq(program, python, &scratch, &mut part)?;
    flooded(program, &scratch, &mut part)?;
    publish(&options, "cargo xtask bench smockron", "smockron", &part)
}

/// A running master, with the addresses of its sockets and of its HTTP gate.
struct MasterServer {
    /// The process; its address is the control socket, which it binds last.
    peer: BenchServer,
    accounting: SocketAddr,
    http: SocketAddr,
}

impl MasterServer {
    fn start(program: &str, scratch: &Path) -> io::Result<Self> {
        let (accounting, control, http) = (free_address()?, free_address()?, free_address()?);
        let config = scratch.join(format!("smockron-{}.yaml", accounting.port()));
        let gates = format!(
            "gates: {{ http: '{http}', smockron: {{ accounting: '{accounting}', control: '{control}' }} }}\n"
        );
        fs::write(&config, [POLICY, &gates].concat())?;
        let mut command = Command::new(program);
        command.args(["serve", "--workers", "1", "--config"]).arg(config);
        Ok(Self { peer: BenchServer::start(command, control)?, accounting, http })
    }

    /// Returns the number of requests that the master has recorded.
    fn accounted(&self) -> io::Result<usize> {
        self.sum("tollway_smockron_requests_total{")
    }

    /// Returns the number of messages that the master has dropped.
    fn dropped(&self) -> io::Result<usize> {
        self.sum("tollway_smockron_dropped_total{what=\"accounting\"}")
    }

    /// Sends all messages, waits until they are recorded, and returns the nanoseconds a message.
    fn take(&self, messages: &[u8]) -> io::Result<f64> {
        let before = self.accounted()?;
        let started = Instant::now();
        send(self.accounting, messages)?;
        while self.accounted()? < before + MESSAGES {}
        Ok(started.elapsed().as_nanos() as f64 / MESSAGES as f64)
    }

    /// Returns the sum of the metrics whose lines start with `name`.
    fn sum(&self, name: &str) -> io::Result<usize> {
        let mut stream = TcpStream::connect(self.http)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let samples = page.lines().filter(|line| line.starts_with(name));
        Ok(samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum())
    }

    /// Connects a subscriber that reads everything and ignores it.
    fn subscribe(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.peer.address)?;
        let mut opening = Vec::new();
        encode_handshake(SocketType::Sub, &mut opening);
        encode_subscription(b"", &mut opening);
        stream.write_all(&opening)?;
        thread::spawn(move || while stream.read(&mut [0; 64 << 10]).is_ok_and(|read| read > 0) {});
        Ok(())
    }
}

/// Measures messages a second, as fast as the master takes them.
fn beside_the_bare_reader(
    program: &str,
    scratch: &ScratchDirectory,
    turns: usize,
    part: &mut String,
) -> io::Result<()> {
    let reader = bare_reader()?;
    let master = MasterServer::start(program, scratch.path())?;
    let telling = MasterServer::start(program, scratch.path())?;
    (0..SUBSCRIBERS).try_for_each(|_| telling.subscribe())?;
    let reads = || {
        let messages = messages("web");
        let started = Instant::now();
        send(reader, &messages).expect("somebody who listens");
        started.elapsed().as_nanos() as f64 / MESSAGES as f64
    };
    let takes = |master: &MasterServer, domain| master.take(&messages(domain)).expect("a master");
    let mut contestants = [
        Contestant { name: "read and discarded", work: Box::new(reads) },
        Contestant { name: "processed, of 100,000 clients", work: Box::new(|| takes(&master, "web")) },
        Contestant {
            name: "the same, and each published to 4 gatekeepers",
            work: Box::new(|| takes(&telling, "all")),
        },
    ];
    *part += "| | messages per second | ratio to the bare reader |\n|---|---|---|\n";
    for standing in alternate(turns, &mut contestants) {
        let rate = 1e9 / standing.nanos.median;
        *part += &format!("| {} | {rate:.0} | {:.2} |\n", standing.name, standing.ratio);
    }
    let lost = |master: &MasterServer| Ok::<_, io::Error>((turns + 1) * MESSAGES - master.accounted()?);
    let published = telling.sum("tollway_smockron_published_total")?;
    let dropped = telling.sum("tollway_smockron_dropped_total{what=\"control\"}")?;
    *part += &format!(
        "\nOf the accounting, {} and {} messages were lost. {published} were published, and of their copies {dropped}\n\
         were lost by gatekeepers that read too slowly, on the sender's core.\n\n",
        lost(&master)?,
        lost(&telling)?,
    );
    Ok(())
}

/// Returns the bytes that a gatekeeper would send now.
fn messages(domain: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let received = u64::try_from(since_1970.as_millis()).unwrap_or_default();
    for number in 0..MESSAGES {
        let identifier = format!("10.{}", number % IDENTIFIERS);
        let status = AccountingStatus::Accepted { received };
        let accounting = AccountingMessage {
            domain: domain.as_bytes(),
            status,
            identifier: identifier.as_bytes(),
            log_info: b"",
        };
        accounting.encode(&mut bytes);
    }
    bytes
}

/// Sends all messages, and waits until they have been read.
fn send(address: SocketAddr, messages: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut opening = Vec::new();
    encode_handshake(SocketType::Pub, &mut opening);
    stream.write_all(&opening)?;
    messages.chunks(WRITE).try_for_each(|piece| stream.write_all(piece))?;
    stream.write_all(PING)?;
    let mut answers = Vec::new();
    while !answers.windows(PONG.len()).any(|window| window == PONG) {
        let mut bytes = [0; 256];
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => answers.extend_from_slice(&bytes[..read]),
        }
    }
    Ok(())
}

/// Starts a reader that reads like the master, on the same core, and ignores everything but the ping.
fn bare_reader() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        pin_this_thread(0);
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut bytes = vec![0; 128 << 10];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                if bytes[..read].ends_with(PING) && stream.write_all(PONG).is_err() {
                    break;
                }
            }
        }
    });
    Ok(address)
}

/// Measures the master under load from libzmq, at the required rate and as fast as libzmq can send.
fn under_libzmq(
    program: &str,
    python: &str,
    scratch: &ScratchDirectory,
    part: &mut String,
) -> io::Result<()> {
    let sender = build_sender(python, scratch.path())?;
    *part += "| libzmq sends | messages a second | lost | of the master's core | its memory |\n|---|---|---|---|---|\n";
    for (what, count, rate) in
        [("150,000 a second", RATE * RATE_SECONDS, RATE), ("as fast as it can", FLOOD, 0)]
    {
        let master = MasterServer::start(program, scratch.path())?;
        let mut command = Command::new(&sender);
        command.arg(format!("tcp://{}", master.accounting));
        command.args([count, rate, IDENTIFIERS].map(|number| number.to_string()));
        let (started, busy) = (Instant::now(), master.peer.cpu_time()?);
        let mut sending = on_client_core(&command).stdout(Stdio::null()).spawn()?;
        let mut memory = 0;
        // The run is over when nothing arrives for a second.
        let (mut accounted, mut news) = (0, Instant::now());
        while accounted < count && news.elapsed() < Duration::from_secs(1) || sending.try_wait()?.is_none() {
            let now = master.accounted()?;
            if now > accounted {
                (accounted, news) = (now, Instant::now());
            }
            memory = memory.max(master.peer.resident()?);
            thread::sleep(Duration::from_millis(20));
        }
        let took = (news - started).as_secs_f64();
        let share = (master.peer.cpu_time()? - busy).as_secs_f64() / took;
        *part += &format!(
            "| {what} | {:.0} | {} | {:.0} % | {} MiB |\n",
            accounted as f64 / took,
            count - accounted,
            share * 100.0,
            memory >> 20
        );
    }
    Ok(())
}

/// Sends more than one core can take: the master must count what it drops, and record the rest.
fn flooded(program: &str, scratch: &ScratchDirectory, part: &mut String) -> io::Result<()> {
    let master = MasterServer::start(program, scratch.path())?;
    let messages = messages("web");
    let started = Instant::now();
    let memory = thread::scope(|scope| {
        let flood = || scope.spawn(|| send(master.accounting, &messages));
        let flooders: Vec<_> = (0..FLOODERS).map(|_| flood()).collect();
        let mut memory = 0;
        while flooders.iter().any(|flooder| !flooder.is_finished()) {
            memory = memory.max(master.peer.resident()?);
            thread::sleep(Duration::from_millis(20));
        }
        flooders.into_iter().try_for_each(|flooder| flooder.join().expect("a sender that does not panic"))?;
        Ok::<_, io::Error>(memory)
    })?;
    let sent = FLOODERS * MESSAGES;
    while master.accounted()? + master.dropped()? < sent {}
    let (accounted, took) = (master.accounted()?, started.elapsed().as_secs_f64());
    *part += &format!(
        "\nUnder {FLOODERS} gatekeepers that send {:.1} million messages per second together: {:.1} million per second processed,\n\
         the rest dropped and counted ({accounted} + {} = {sent}), {} MiB.\n",
        sent as f64 / took / 1e6,
        accounted as f64 / took / 1e6,
        master.dropped()?,
        memory >> 20
    );
    Ok(())
}

/// Compiles the sender and links it with the libzmq of the Python package.
fn build_sender(python: &str, scratch: &Path) -> io::Result<std::path::PathBuf> {
    let script =
        "import glob, os, zmq; print(glob.glob(os.path.dirname(zmq.__file__) + '/../pyzmq.libs/libzmq*')[0])";
    let found = Command::new(python).args(["-c", script]).output()?;
    let library = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let folder = Path::new(&library).parent().ok_or_else(|| io::Error::other("this Python has no libzmq"))?;
    let sender = scratch.join("libzmq_sender");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("libzmq_sender.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&sender).arg(source).arg(&library);
    let built = compiler.arg(format!("-Wl,-rpath,{},--allow-shlib-undefined", folder.display())).status()?;
    if built.success() { Ok(sender) } else { Err(io::Error::other("the sender cannot be built")) }
}
