//! Starts the servers that are measured, each on a free port and one core, and stops them when dropped.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The core that servers run on. Load generators run on the other, so that they do not compete with the server.
const SERVER_CORE: &str = "0";
const CLIENT_CORE: &str = "1";

/// The time within which a server must listen.
const START_TIME: Duration = Duration::from_secs(10);

/// A server that is measured, ours or another.
pub struct BenchServer {
    process: Child,
    /// The address at which the server listens.
    pub address: SocketAddr,
}

impl BenchServer {
    /// Starts `command` on the servers' core. It must listen at `address`, which [`free_address`] gave.
    pub fn start(command: Command, address: SocketAddr) -> io::Result<Self> {
        Self::start_on(SERVER_CORE, &command, address)
    }

    /// Starts `command` on the client core: for servers that are needed but not measured.
    pub fn start_on_client_core(command: Command, address: SocketAddr) -> io::Result<Self> {
        Self::start_on(CLIENT_CORE, &command, address)
    }

    /// Starts `command` on all cores: for a server that is not measured under load.
    pub fn start_on_all_cores(command: Command, address: SocketAddr) -> io::Result<Self> {
        Self::wait_for(command, address)
    }

    fn start_on(core: &str, command: &Command, address: SocketAddr) -> io::Result<Self> {
        Self::wait_for(on_core(core, command), address)
    }

    fn wait_for(mut command: Command, address: SocketAddr) -> io::Result<Self> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let peer = Self { process, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if started.elapsed() > START_TIME {
                return Err(io::Error::other(format!("{command:?} does not listen at {address}")));
            }
            std::thread::yield_now();
        }
        Ok(peer)
    }
}

impl BenchServer {
    /// Returns the resident memory of the server, in bytes.
    pub fn resident(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| io::Error::other("nobody knows its memory"))
    }

    /// Returns the CPU time that the server's threads have used so far.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let times = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += times.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or_default();
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a command that starts nginx with one worker, this text in its `http` block, and its files in this directory.
pub fn nginx(scratch: &Path, name: &str, http: &str) -> io::Result<Command> {
    let place = scratch.join(name);
    fs::create_dir_all(&place)?;
    let (config, place) = (place.join("nginx.conf"), place.display().to_string());
    fs::write(
        &config,
        format!(
            "daemon off; master_process off; worker_processes 1; pid {place}/nginx.pid; error_log /dev/null;
             events {{ worker_connections 4096; }}
             http {{
                 access_log off; keepalive_requests 1000000000;
                 client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
                 uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
                 {http}
             }}"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&place).arg("-c").arg(config);
    Ok(command)
}

/// Starts a `redis-server` that keeps nothing on disk, with these arguments more.
pub fn start_redis(scratch: &Path, arguments: &[&str]) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port"]).arg(address.port().to_string());
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(scratch).args(arguments);
    BenchServer::start(command, address)
}

/// Returns a free TCP address on loopback.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns a free UDP address on loopback.
pub fn free_udp_address() -> io::Result<SocketAddr> {
    UdpSocket::bind("127.0.0.1:0")?.local_addr()
}

/// Returns the same command, pinned to the client core.
pub fn on_client_core(command: &Command) -> Command {
    on_core(CLIENT_CORE, command)
}

/// Pins the calling thread to a core; servers run on core 0.
pub fn pin_this_thread(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    // On a machine with one core there is nothing to choose.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

fn on_core(core: &str, command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", core]).arg(command.get_program()).args(command.get_args());
    pinned
}

/// A directory for one run, removed when dropped.
pub struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    /// Creates a new directory.
    pub fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("tollway-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
