//! Direct calls: a thread that sleeps until its answer comes does the I/O itself.
//!
//! ```text
//! by the driver   caller ── wakes ──> driver ──> Redis ──> driver ── wakes ──> caller
//! directly        caller ─────────────────────> Redis ─────────────────────> caller
//! ```
//!
//! Waking a thread and being woken by it takes longer than Redis does. So one blocking caller at a time, with a single
//! call, has a connection of its own. All other callers, and everything out of the ordinary, go by the driver: it alone
//! knows where Redis is and whether it is reachable, and it recovers.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::io::tcp::TcpSettings;
use redis::{Client, Connection, ConnectionAddr, ConnectionLike, IntoConnectionInfo};

use super::Reply;
use super::dial::{CLIENT_NAME, Dialer};
use super::disposition::Disposition;
use super::health::SharedHealth;
use crate::cause::Cause;
use crate::store::redis::call::Call;
use crate::store::redis::{Address, StoreError};

/// A connection that was idle for this time is pinged before it is used: it may have been closed.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The pause without direct calls after one got no answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The connection that blocking callers use.
pub(super) struct DirectConnection {
    dialer: Arc<Dialer>,
    health: Arc<SharedHealth>,
    deadline: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<(Address, Connection)>,
    /// The generation of the driver's connection when this one was opened. If the driver has lost its own, this one is
    /// not used any more.
    generation: u64,
    used: Option<Instant>,
    paused_until: Option<Instant>,
}

impl DirectConnection {
    pub(super) fn new(dialer: Arc<Dialer>, health: Arc<SharedHealth>, deadline: Duration) -> Self {
        Self { dialer, health, deadline, state: Mutex::default() }
    }

    /// Returns the reply to a call, or `None` if the call was not executed and has to go by the driver.
    pub(super) fn call(&self, call: &Call) -> Option<Reply> {
        let generation = self.health.generation.load(Ordering::Acquire);
        if generation == 0 {
            return None;
        }
        let mut state = self.state.try_lock().ok()?;
        let now = Instant::now();
        if state.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        if state.connection.is_none() || state.generation != generation || state.is_stale(now) {
            state.connection = self.open();
            state.generation = generation;
        }
        state.used = Some(now);
        let Some((address, connection)) = &mut state.connection else {
            state.pause(now);
            return None;
        };
        let reply = match exchange(connection, call).map(|value| Disposition::of(value, address)) {
            Ok(Disposition::Answer(value)) => Ok(value),
            Ok(Disposition::Refused(reason)) => {
                self.health.refusals.add(1);
                Err(StoreError::Refused { address: address.to_string(), reason })
            }
            // It was not executed, and the driver knows what to do.
            Ok(_) => return None,
            // It may have been executed: nobody knows, so nobody repeats it.
            Err(error) => {
                let error = self.failed(address.to_string(), error);
                state.pause(now);
                Err(error)
            }
        };
        self.health.calls.add(1);
        Some(reply)
    }

    fn open(&self) -> Option<(Address, Connection)> {
        let address = self.health.only_node()?;
        let info = ConnectionAddr::Tcp(address.host.clone(), address.port).into_connection_info().ok()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info.set_redis_settings(self.dialer.login().ok()?)).ok()?;
        let mut connection = client.get_connection_with_timeout(self.deadline).ok()?;
        connection.set_read_timeout(Some(self.deadline)).ok()?;
        connection.set_write_timeout(Some(self.deadline)).ok()?;
        // Without the permission to set its name, the connection has none.
        let _ = redis::cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME).exec(&mut connection);
        Some((address, connection))
    }

    fn failed(&self, address: String, error: redis::RedisError) -> StoreError {
        if error.is_timeout() {
            self.health.timeouts.add(1);
            return StoreError::TimedOut { address, waited: self.deadline };
        }
        StoreError::Unreachable { address, source: Cause::new(error) }
    }
}

impl fmt::Debug for DirectConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectConnection").finish_non_exhaustive()
    }
}

impl State {
    fn is_stale(&mut self, now: Instant) -> bool {
        let idle = self.used.is_some_and(|used| now - used > IDLE_MAX);
        idle && !self.connection.as_mut().is_some_and(|(_, connection)| connection.check_connection())
    }

    fn pause(&mut self, now: Instant) {
        self.connection = None;
        self.paused_until = Some(now + PAUSE);
    }
}

fn exchange(connection: &mut Connection, call: &Call) -> redis::RedisResult<redis::Value> {
    connection.send_packed_command(&call.command.get_packed_command())?;
    connection.recv_response()
}
