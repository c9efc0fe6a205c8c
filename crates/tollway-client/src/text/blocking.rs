//! The client for programs without a runtime.
//!
//! ```no_run
//! use tollway_client::text::blocking::Client;
//!
//! let mut client = Client::connect("127.0.0.1:2000")?;
//! let may_pass = !client.over_limit("ws ip=192.0.2.1")?.over();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use tollway_wire::text::{CheckLimit, DATAGRAM_MAX, TextCommand};

use super::question::{datagram, decision, first_id, pong, raw_datagram, reply, size, stats};
use super::{AskError, Decision, KeyStats, TIMEOUT};

/// Asks one server, one question at a time.
#[derive(Debug)]
pub struct Client {
    socket: UdpSocket,
    server: SocketAddr,
    timeout: Duration,
    next_id: u64,
}

impl Client {
    /// A client of the server at this address. That it can be asked does not mean that anybody is there.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::with_timeout(address, TIMEOUT)
    }

    /// A client that waits this long for an answer.
    pub fn with_timeout(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<Self> {
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let server = address.to_socket_addrs()?.next().ok_or_else(no_address)?;
        let socket = UdpSocket::bind(any_port_beside(server))?;
        // Connected, the socket hears nobody else, and hears of it when there is nobody.
        socket.connect(server)?;
        Ok(Self { socket, server, timeout, next_id: first_id() })
    }

    /// Makes one use of a key. Without an answer it is as though it were under its limit.
    pub fn over_limit(&mut self, key: impl AsRef<[u8]>) -> Result<Decision, AskError> {
        decision(self.ask_command(TextCommand::OverLimit { key: key.as_ref() }))
    }

    /// Makes one use of the keys of a user agent, an address and everybody, up to the first that is over.
    pub fn check_limit(&mut self, check: CheckLimit<'_>) -> Result<Decision, AskError> {
        decision(self.ask_command(TextCommand::CheckLimit(check)))
    }

    /// What the server knows about a key.
    pub fn get_stats(&mut self, key: impl AsRef<[u8]>) -> Result<KeyStats, AskError> {
        stats(&self.ask_command(TextCommand::GetStats { key: key.as_ref() })?)
    }

    /// How many keys the server remembers.
    pub fn get_size(&mut self) -> Result<u64, AskError> {
        size(&self.ask_command(TextCommand::GetSize)?)
    }

    /// Is anybody there?
    pub fn ping(&mut self) -> Result<(), AskError> {
        pong(&self.ask_command(TextCommand::Ping)?)
    }

    /// Asks in the protocol's own words, `over_limit ws global`, and returns the words of the answer. An id is put in
    /// front of the one and taken off the other.
    pub fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>, AskError> {
        let id = self.take_id();
        self.exchange(id, &raw_datagram(id, question)?)
    }

    fn ask_command(&mut self, command: TextCommand<'_>) -> Result<Vec<u8>, AskError> {
        let id = self.take_id();
        self.exchange(id, &datagram(id, command)?)
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    fn exchange(&self, id: u64, datagram: &[u8]) -> Result<Vec<u8>, AskError> {
        let waited = self.timeout;
        let unanswered = |source| AskError::Unanswered { address: self.server.to_string(), waited, source };
        self.send(datagram).map_err(|error| unanswered(Some(error)))?;
        self.receive(id).map_err(|error| unanswered(Some(error)))?.ok_or_else(|| unanswered(None))
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            // Word that nobody got an earlier datagram. There may be somebody by now.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.socket.send(datagram),
            sent => sent,
        }?;
        Ok(())
    }

    /// Waits for the answer with this id, and lets go by whatever else comes.
    fn receive(&self, id: u64) -> io::Result<Option<Vec<u8>>> {
        let began = Instant::now();
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            let left = self.timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut buffer) {
                Ok(len) => match reply(&buffer[..len]) {
                    Some((to, body)) if to == id => return Ok(Some(body.to_vec())),
                    _ => {}
                },
                Err(error) if is_a_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_a_wait(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Where a socket listens that is to talk with `peer`.
pub(super) const fn any_port_beside(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}
