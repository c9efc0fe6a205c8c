//! Over HTTP from a program on tokio, many questions at a time.
//!
//! ```no_run
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! use tollway_client::core::Verb;
//! use tollway_client::http::awaiting::Client;
//! use tollway_client::http::{ServerResponse, ChargeRequest};
//!
//! let client = Client::new("127.0.0.1:8080");
//! let answer = client.ask(Verb::Spend, &[ChargeRequest::new("Login", "alice", 1)]).await?;
//! let may_log_in = matches!(answer, ServerResponse::Decision { allowed: true, .. });
//! # Ok(())
//! # }
//! ```
//!
//! Connections are kept and each carries one question at a time. A question is never sent twice: one that got no answer
//! may have been answered all the same, and a spend must not be paid for twice.

mod response;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollway_core::Verb;
use tollway_wire::http::{ChargeRequest, ResponseError, ServerResponse};

use self::response::Response;
pub use self::response::Unreadable;

/// How long an answer may take unless told otherwise, from the moment it is asked for.
pub const TIMEOUT: Duration = Duration::from_millis(100);
/// How many questions may be under way at a time, each on a connection of its own. Further ones wait for their turn, and
/// not longer than for an answer.
pub const CONNECTIONS_MAX: usize = 64;

/// Asks one server. Clones share the connections, and any number of tasks may ask at a time.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    address: Box<str>,
    turns: Semaphore,
    /// Those that nobody uses now, the one used last at the end. Never more than there are turns.
    idle: Mutex<Vec<TcpStream>>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The server cannot be reached, or hung up.
    #[error("no answer from {address}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened.
        source: io::Error,
    },
    /// No answer came in time.
    #[error("no answer from {address} within {waited:?}")]
    TimedOut {
        /// Who was asked.
        address: String,
        /// How long was waited.
        waited: Duration,
    },
    /// What answered is no Tollway.
    #[error("what answered at {address} is no Tollway: {source}")]
    Unreadable {
        /// Who was asked.
        address: String,
        /// What is wrong with the answer.
        source: Unreadable,
    },
    /// The server answered that it has no answer.
    #[error(transparent)]
    Answer(#[from] ResponseError),
}

impl Client {
    /// A client of the server at `address`, a host and a port. Nobody need be there yet.
    pub fn new(address: &str) -> Self {
        Self::with_timeout(address, TIMEOUT)
    }

    /// A client that waits this long for an answer.
    pub fn with_timeout(address: &str, timeout: Duration) -> Self {
        let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/').into();
        let shared = Shared { address, turns: Semaphore::new(CONNECTIONS_MAX), idle: Mutex::default() };
        Self { shared: Arc::new(shared), timeout }
    }

    /// Who is asked.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Asks for all of `charges` together.
    pub async fn ask(&self, verb: Verb, charges: &[ChargeRequest<'_>]) -> Result<ServerResponse, AskError> {
        let request = self.shared.request(verb, charges);
        let answered = timeout(self.timeout, self.shared.exchange(&request)).await;
        let timed_out = |_| AskError::TimedOut { address: self.address().to_owned(), waited: self.timeout };
        let Response { status, body, .. } = answered.map_err(timed_out)??;
        Ok(ServerResponse::from_json(status, &body)?)
    }
}

impl Shared {
    fn request(&self, verb: Verb, charges: &[ChargeRequest<'_>]) -> Vec<u8> {
        let body = super::body(verb, charges);
        let mut request = format!(
            "POST /v1/{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            verb.name(),
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(&body);
        request
    }

    async fn exchange(&self, request: &[u8]) -> Result<Response, AskError> {
        let unreachable = |source| AskError::Unreachable { address: self.address.to_string(), source };
        let _turn = self.turns.acquire().await.map_err(|error| unreachable(io::Error::other(error)))?;
        let mut stream = match self.kept() {
            Some(stream) => stream,
            None => self.connect().await.map_err(unreachable)?,
        };
        stream.write_all(request).await.map_err(unreachable)?;
        let mut inbox = Vec::with_capacity(512);
        loop {
            if stream.read_buf(&mut inbox).await.map_err(unreachable)? == 0 {
                return Err(unreachable(io::ErrorKind::UnexpectedEof.into()));
            }
            let unreadable = |source| AskError::Unreadable { address: self.address.to_string(), source };
            if let Some(response) = response::read(&inbox).map_err(unreadable)? {
                if response.keep {
                    self.idle().push(stream);
                }
                return Ok(response);
            }
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection that is open and on which nothing is due. Servers close those that were idle for long, and a question
    /// sent into a closed one would be lost.
    fn kept(&self) -> Option<TcpStream> {
        let mut idle = self.idle();
        while let Some(stream) = idle.pop() {
            match stream.try_read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(stream),
                _ => {}
            }
        }
        None
    }

    fn idle(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
