//! The client for programs without a runtime.
//!
//! ```no_run
//! use std::time::Duration;
//! use tollway_client::throttr::Request;
//! use tollway_client::throttr::blocking::Client;
//!
//! let mut client = Client::new("127.0.0.1:9000");
//! client.insert("alice", "/downloads", 100, Duration::from_secs(3600))?;
//! let replies = client.pipeline(&[Request::query("alice", "/downloads"), Request::purge("bob", "/downloads")])?;
//! assert_eq!(replies.len(), 2);
//! # Ok::<(), tollway_client::throttr::CallError>(())
//! ```

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use tollway_core::algorithm::Change;
use tollway_wire::throttr::ThrottrReply;

use super::call::{Due, Misunderstanding, done, found};
use super::{Attribute, CallError, IN_FLIGHT_MAX, Quota, Request, TIMEOUT, TIMEOUT_MAX};

/// How long a connection may lie idle and still be trusted without a look: servers close those that do.
const TRUSTED_FOR: Duration = Duration::from_secs(1);
/// How much is read at a time.
const READ_SIZE: usize = 16 << 10;

/// Asks one server, over a connection that is opened when it is needed.
#[derive(Debug)]
pub struct Client {
    address: String,
    timeout: Duration,
    next_id: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    stream: TcpStream,
    used_at: Instant,
}

impl Client {
    /// A client of the server at this address, a host and a port.
    pub fn new(address: impl Into<String>) -> Self {
        Self::with_timeout(address, TIMEOUT)
    }

    /// A client whose calls take this long at most, connecting included, and a day at the very most.
    pub fn with_timeout(address: impl Into<String>, timeout: Duration) -> Self {
        Self { address: address.into(), timeout: timeout.min(TIMEOUT_MAX), next_id: 0, open: None }
    }

    /// Makes a quota. False, and nothing changed, if there is a live one (and the server is not told to start over).
    pub fn insert(
        &mut self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        quota: u64,
        ttl: Duration,
    ) -> Result<bool, CallError> {
        self.call(Request::insert(&consumer, &resource, quota, ttl)).map(done)
    }

    /// What is left of a quota, if it is live.
    pub fn query(
        &mut self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<Option<Quota>, CallError> {
        self.call(Request::query(&consumer, &resource)).map(found)
    }

    /// Changes a quota. False if there is no live one. A time is in the unit that the quota was made with.
    pub fn update(
        &mut self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
        attribute: Attribute,
        change: Change,
        value: u64,
    ) -> Result<bool, CallError> {
        self.call(Request::update(&consumer, &resource, attribute, change, value)).map(done)
    }

    /// Forgets a quota. False if there was no live one.
    pub fn purge(
        &mut self,
        consumer: impl AsRef<[u8]>,
        resource: impl AsRef<[u8]>,
    ) -> Result<bool, CallError> {
        self.call(Request::purge(&consumer, &resource)).map(done)
    }

    /// Asks this.
    pub fn call(&mut self, request: Request<'_>) -> Result<ThrottrReply, CallError> {
        let replies = self.pipeline(&[request])?;
        Ok(replies[0])
    }

    /// Asks all of these, up to [`IN_FLIGHT_MAX`] in one write, and returns a reply to each. All of it is one call, with one
    /// deadline; without the last reply there is none.
    pub fn pipeline(&mut self, requests: &[Request<'_>]) -> Result<Vec<ThrottrReply>, CallError> {
        let deadline = Instant::now() + self.timeout;
        requests.iter().try_for_each(Request::fits)?;
        let mut replies = Vec::with_capacity(requests.len());
        for batch in requests.chunks(IN_FLIGHT_MAX) {
            self.exchange(batch, deadline, &mut replies).map_err(|failure| self.explain(failure))?;
        }
        Ok(replies)
    }

    fn exchange(
        &mut self,
        batch: &[Request<'_>],
        deadline: Instant,
        replies: &mut Vec<ThrottrReply>,
    ) -> Result<(), Failure> {
        let mut outbox = Vec::new();
        let mut dues = Vec::with_capacity(batch.len());
        for request in batch {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            dues.push(request.put(id, &mut outbox).map_err(Failure::Call)?);
        }
        // Put back only if all went well: a connection that lost its place is dropped here.
        let mut stream = match self.open.take().filter(Open::is_alive) {
            Some(open) => open.stream,
            None => self.connect(deadline)?,
        };
        send(&mut stream, &outbox, deadline)?;
        receive(&mut stream, &dues, deadline, replies)?;
        self.open = Some(Open { stream, used_at: Instant::now() });
        Ok(())
    }

    /// Tries every address of the name, each for what is left of the time.
    fn connect(&self, deadline: Instant) -> Result<TcpStream, Failure> {
        let unreachable =
            |source| Failure::Call(CallError::Unreachable { address: self.address.clone(), source });
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(unreachable)?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(unreachable(failed))
    }

    fn explain(&self, failure: Failure) -> CallError {
        let address = self.address.clone();
        match failure {
            Failure::Call(error) => error,
            Failure::Late => CallError::TimedOut { address, waited: self.timeout },
            Failure::Io(error) if is_a_wait(&error) => CallError::TimedOut { address, waited: self.timeout },
            Failure::Io(error) => CallError::HungUp { address, source: Some(error) },
            Failure::HungUp => CallError::HungUp { address, source: None },
            Failure::Misunderstood(source) => CallError::Misunderstood { address, source },
        }
    }
}

/// Why an exchange came to nothing, before it is known with whom it was.
enum Failure {
    Call(CallError),
    Late,
    Io(io::Error),
    HungUp,
    Misunderstood(Misunderstanding),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Open {
    /// Has the server neither closed it nor said anything unasked since it was used?
    fn is_alive(&self) -> bool {
        if self.used_at.elapsed() < TRUSTED_FOR {
            return true;
        }
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let silent = matches!(looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        silent && self.stream.set_nonblocking(false).is_ok()
    }
}

fn send(stream: &mut TcpStream, mut outbox: &[u8], deadline: Instant) -> Result<(), Failure> {
    while !outbox.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(outbox) {
            Ok(0) => return Err(Failure::HungUp),
            Ok(written) => outbox = &outbox[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn receive(
    stream: &mut TcpStream,
    dues: &[Due],
    deadline: Instant,
    replies: &mut Vec<ThrottrReply>,
) -> Result<(), Failure> {
    let mut inbox = Vec::new();
    let mut buffer = [0; READ_SIZE];
    let (mut start, mut waiting) = (0, dues.iter());
    while let Some(due) = waiting.as_slice().first() {
        if let Some((reply, len)) = due.take(&inbox[start..]).map_err(Failure::Misunderstood)? {
            replies.push(reply);
            start += len;
            waiting.next();
            continue;
        }
        inbox.drain(..std::mem::take(&mut start));
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(Failure::HungUp),
            Ok(len) => inbox.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    if start < inbox.len() { Err(Failure::Misunderstood(Misunderstanding::Unasked)) } else { Ok(()) }
}

/// What is left of the time. A socket takes no timeout of zero.
fn left(deadline: Instant) -> Result<Duration, Failure> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Failure::Late) } else { Ok(left) }
}

fn is_a_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}
