//! Asking in person: whoever sleeps until the answer comes may as well fetch it.
//!
//! ```text
//! the usual way   caller ── wakes ──> I/O thread ──> Redis ──> I/O thread ── wakes ──> caller
//! in person       caller ───────────────────────────> Redis ───────────────────────────> caller
//! ```
//!
//! Waking a thread and being woken by it takes longer than Redis does. So one caller at a time that has a single call, and
//! nothing to do until it is answered, has a connection of its own. Everybody else, and everything out of the ordinary, goes the
//! usual way: the I/O thread alone knows where Redis is and whether it is well, and mends what can be mended.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::io::tcp::TcpSettings;
use redis::{Client, Connection, ConnectionAddr, ConnectionLike, IntoConnectionInfo};

use super::Reply;
use super::dial::{CLIENT_NAME, Dialer};
use super::health::Board;
use super::meaning::Meaning;
use crate::cause::Cause;
use crate::store::redis::call::Call;
use crate::store::redis::{Address, StoreError};

/// A connection that has been idle for so long may have been closed meanwhile: it is asked before it is trusted.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// For how long nobody goes in person after one came back without an answer.
const REST: Duration = Duration::from_secs(1);

/// The connection of whoever asks in person.
pub(super) struct InPerson {
    dialer: Arc<Dialer>,
    board: Arc<Board>,
    deadline: Duration,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    connection: Option<(Address, Connection)>,
    /// That of the I/O thread's connection when this one was opened. If it has lost its own, this one is lost, too.
    life: u64,
    used: Option<Instant>,
    rests_until: Option<Instant>,
}

impl InPerson {
    pub(super) fn new(dialer: Arc<Dialer>, board: Arc<Board>, deadline: Duration) -> Self {
        Self { dialer, board, deadline, line: Mutex::default() }
    }

    /// The reply to a call, or `None` if it has to go the usual way. Then it was not executed.
    pub(super) fn ask(&self, call: &Call) -> Option<Reply> {
        let life = self.board.life.load(Ordering::Acquire);
        if life == 0 {
            return None;
        }
        let mut line = self.line.try_lock().ok()?;
        let now = Instant::now();
        if line.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        if line.connection.is_none() || line.life != life || line.is_stale(now) {
            line.connection = self.open();
            line.life = life;
        }
        line.used = Some(now);
        let Some((address, connection)) = &mut line.connection else {
            line.rest(now);
            return None;
        };
        let reply = match exchange(connection, call).map(|value| Meaning::of(value, address)) {
            Ok(Meaning::Answer(value)) => Ok(value),
            Ok(Meaning::Refused(reason)) => {
                self.board.refusals.add(1);
                Err(StoreError::Refused { address: address.to_string(), reason })
            }
            // It was not executed, and the usual way knows what to do about it.
            Ok(_) => return None,
            // It may have been executed: nobody knows, so nobody repeats it.
            Err(error) => {
                let error = self.failed(address.to_string(), error);
                line.rest(now);
                Err(error)
            }
        };
        self.board.calls.add(1);
        Some(reply)
    }

    fn open(&self) -> Option<(Address, Connection)> {
        let address = self.board.only_node()?;
        let info = ConnectionAddr::Tcp(address.host.clone(), address.port).into_connection_info().ok()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info.set_redis_settings(self.dialer.login().ok()?)).ok()?;
        let mut connection = client.get_connection_with_timeout(self.deadline).ok()?;
        connection.set_read_timeout(Some(self.deadline)).ok()?;
        connection.set_write_timeout(Some(self.deadline)).ok()?;
        // Who may not say its name has none.
        let _ = redis::cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME).exec(&mut connection);
        Some((address, connection))
    }

    fn failed(&self, address: String, error: redis::RedisError) -> StoreError {
        if error.is_timeout() {
            self.board.timeouts.add(1);
            return StoreError::TimedOut { address, waited: self.deadline };
        }
        StoreError::Unreachable { address, source: Cause::new(error) }
    }
}

impl fmt::Debug for InPerson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPerson").finish_non_exhaustive()
    }
}

impl Line {
    fn is_stale(&mut self, now: Instant) -> bool {
        let idle = self.used.is_some_and(|used| now - used > IDLE_MAX);
        idle && !self.connection.as_mut().is_some_and(|(_, connection)| connection.check_connection())
    }

    fn rest(&mut self, now: Instant) {
        self.connection = None;
        self.rests_until = Some(now + REST);
    }
}

fn exchange(connection: &mut Connection, call: &Call) -> redis::RedisResult<redis::Value> {
    connection.send_packed_command(&call.command.get_packed_command())?;
    connection.recv_response()
}
