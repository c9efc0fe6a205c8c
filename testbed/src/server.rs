//! Starts a single Redis server for tests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certificate::Certificates;
use crate::port;
use crate::process::SupervisedProcess;
use crate::wait::{TEST_TIMEOUT, eventually, holds_in_time};

/// The number of attempts to start a server, each with new ports, before the test fails.
const ATTEMPTS: usize = 5;

/// A Redis server that a test has started. By default it keeps nothing on disk.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    arguments: Vec<String>,
    // Before the directory: what runs in it must have ended when it goes.
    process: Option<SupervisedProcess>,
    directory: TempDir,
    certificates: Option<Box<Certificates>>,
}

impl RedisServer {
    /// Starts a server, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments, such as `--appendonly yes`, which override the defaults.
    pub fn start_with(arguments: &[&str]) -> Self {
        retry(|| {
            let [port] = port::free();
            Self::at(port, arguments, directory(), None)
        })
    }

    /// Starts a server that accepts only TLS. Clients must trust its `certificate_authority`.
    pub fn start_tls() -> Self {
        Self::start_tls_with("no")
    }

    /// Starts a server that accepts only TLS, from clients whose certificate its authority has signed.
    pub fn start_mtls() -> Self {
        Self::start_tls_with("yes")
    }

    fn start_tls_with(auth_clients: &str) -> Self {
        retry(|| {
            let directory = directory();
            let certificates = Certificates::create(directory.path());
            let [port] = port::free();
            let arguments = certificates.arguments(port, auth_clients);
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            Self::at(port, &arguments, directory, Some(Box::new(certificates)))
        })
    }

    /// Starts a server at this port. Returns `None` if it does not answer there.
    pub(crate) fn at(
        port: u16,
        arguments: &[&str],
        directory: TempDir,
        certificates: Option<Box<Certificates>>,
    ) -> Option<Self> {
        let port_argument = port.to_string();
        let ours = ["--port", &port_argument, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"];
        let arguments = ours.iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
        let mut server = Self { port, arguments, process: None, directory, certificates };
        server.run().then_some(server)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL, `redis://127.0.0.1:PORT`, or `rediss://localhost:PORT` with TLS.
    pub fn url(&self) -> String {
        match self.certificates {
            None => format!("redis://127.0.0.1:{}", self.port),
            Some(_) => format!("rediss://localhost:{}", self.port),
        }
    }

    /// Returns the file that a client of a TLS server must trust.
    pub fn certificate_authority(&self) -> &Path {
        self.certificates().authority()
    }

    /// Returns the authority of a TLS server, which can sign certificates of clients.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a server that speaks TLS")
    }

    /// Returns the directory of the server's files.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Runs a command and returns what `redis-cli` prints: one line a value, without types.
    pub fn cli(&self, command: &[&str]) -> String {
        match &self.certificates {
            None => cli(self.port, command),
            Some(certificates) => {
                // The certificate of the server is good for a client too, where one is asked for.
                let [authority, cert, key] =
                    [certificates.authority(), certificates.certificate(), certificates.key()]
                        .map(|path| path.to_str().expect("temporary names are text"));
                let tls = ["-h", "localhost", "--tls", "--cacert", authority, "--cert", cert, "--key", key];
                cli(self.port, &[&tls, command].concat())
            }
        }
    }

    /// Returns one number of `INFO`, such as `total_connections_received`.
    pub fn info(&self, field: &str) -> u64 {
        let info = self.cli(&["INFO", "everything"]);
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("INFO has no number {field}"))
    }

    /// Returns the number of calls of a command, successful or not. A subcommand is written `script|load`.
    pub fn times_called(&self, command: &str) -> u64 {
        let info = self.cli(&["INFO", "commandstats"]);
        let name = format!("cmdstat_{command}:calls=");
        let calls = info.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next()?.parse().ok());
        calls.unwrap_or_default()
    }

    /// Stops the process (`SIGSTOP`): it keeps its connections and does not answer.
    pub fn freeze(&self) {
        self.running().signal(Signal::STOP);
    }

    /// Continues the process after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.running().signal(Signal::CONT);
    }

    /// Kills the server, like a crash.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts the server down with `SIGTERM`, so that it writes what it is configured to keep.
    pub fn stop(&mut self) {
        self.running().signal(Signal::TERM);
        eventually("the end of redis-server", || self.running().has_exited());
        self.process = None;
    }

    /// Kills the server if it is running, and starts it again with the same port and files.
    pub fn restart(&mut self) {
        self.process = None;
        assert!(self.run(), "redis-server does not come back at port {}", self.port);
    }

    /// Returns whether the server is running. A frozen server is running.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    fn running(&self) -> &SupervisedProcess {
        self.process.as_ref().expect("a server that was not killed")
    }

    /// Starts the process, and returns whether it answers in time.
    fn run(&mut self) -> bool {
        let process = SupervisedProcess::start(self.directory.path(), "redis-server", &self.arguments);
        let answers = holds_in_time(|| self.answers() || process.has_exited()) && !process.has_exited();
        let printed = process.output();
        assert!(
            answers || printed.contains("in use"),
            "redis-server does not start; if it is missing, `cargo xtask setup` installs it. It said:\n{printed}"
        );
        self.process = answers.then_some(process);
        answers
    }

    fn answers(&self) -> bool {
        match self.certificates {
            None => ping(self.port)
                .is_ok_and(|reply| reply.starts_with(b"+PONG") || reply.starts_with(b"-NOAUTH")),
            Some(_) => self.cli(&["PING"]) == "PONG",
        }
    }
}

/// Runs `redis-cli` and returns what it prints.
pub(crate) fn cli(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", &port.to_string()]).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("redis-cli, of the Debian package redis-tools: {error}"));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Retries `start` with other ports, in case another process takes them first.
pub(crate) fn retry<T>(mut start: impl FnMut() -> Option<T>) -> T {
    (0..ATTEMPTS).find_map(|_| start()).expect("redis-server, at a port that nobody else takes")
}

pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new().prefix("tollway-redis-").tempdir().expect("a directory for temporary files")
}

fn ping(port: u16) -> std::io::Result<[u8; 7]> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_with_whoever_started_it() {
        let server = RedisServer::start();
        let port = server.port();
        drop(server);
        assert!(ping(port).is_err());
    }

    #[test]
    fn a_frozen_server_answers_when_it_is_thawed() {
        let server = RedisServer::start();
        server.freeze();
        eventually("the frost", || server.running().state() == Some('T'));
        server.thaw();
        assert_eq!(server.cli(&["PING"]), "PONG");
    }

    #[test]
    fn what_is_written_to_disk_survives_a_restart() {
        let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        server.cli(&["SET", "a", "1"]);
        server.restart();
        assert_eq!(server.cli(&["GET", "a"]), "1");
    }

    #[test]
    fn a_tls_server_is_trusted_by_its_authority() {
        let server = RedisServer::start_tls();
        assert_eq!(server.cli(&["PING"]), "PONG");
        assert!(ping(server.port()).is_err());
    }
}
