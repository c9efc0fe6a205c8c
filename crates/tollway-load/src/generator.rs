//! Sends the requests of a run and counts the replies, on one thread and over sockets that never block.
//!
//! A batch is written into the connection's own copies of the template and sent in one call. What arrives is read into
//! one buffer that all connections share, and counted where it is; only an incomplete reply is kept.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use tollway_core::{Nanos, Timestamp};

use crate::awaited::Awaited;
use crate::keys::KeyChooser;
use crate::protocol::{NotAReply, Protocol, Transport};
use crate::report::{LoadError, LoadReport, shown};
use crate::run::{Phase, Run};
use crate::schedule::Schedule;
use crate::socket::{ReceiveBuffer, Socket};
use crate::stats::LoadStats;
use crate::{Load, RunProgress};

/// The longest wait for events, after which the observer is asked again.
const WAIT_MAX: Nanos = Nanos::from_millis(100);
/// The shortest wait for events: the kernel waits in whole milliseconds, and a schedule is in microseconds.
const WAIT_MIN: Nanos = Nanos::from_millis(2);
/// The time between two searches for datagrams that are overdue.
const EXPIRE_EVERY: Nanos = Nanos::from_millis(5);
/// The number of datagrams of a socket that can be awaited at once in an open loop. Older ones count as lost.
const AWAITED_MAX: usize = 1 << 16;

/// Connections to one server, and the run that they are part of.
pub(crate) struct Generator<'a, P> {
    poll: Poll,
    connections: Vec<Connection>,
    exchange: Exchange<'a, P>,
    /// The number of batches of the schedule that were given to the connections, in turn.
    released: u64,
    observed_at: Timestamp,
    expired_at: Timestamp,
}

/// The state that all connections share: what is asked, and what was answered.
struct Exchange<'a, P> {
    addr: SocketAddr,
    protocol: &'a P,
    started: Instant,
    keys: KeyChooser,
    batch: u64,
    /// The schedule of an open loop.
    schedule: Option<Schedule>,
    reply_timeout: Nanos,
    buffer: ReceiveBuffer,
    run: Run,
    stats: LoadStats,
}

struct Connection {
    index: u64,
    socket: Socket,
    /// Copies of the template, one batch of them, and the bytes of them that have yet to leave.
    requests: Vec<u8>,
    unsent: Range<usize>,
    /// The number of requests that may leave but are not yet written.
    due: u64,
    sent: u64,
    in_flight: u64,
    sent_at: Timestamp,
    /// The beginning of a reply.
    partial: Vec<u8>,
    /// The datagrams in flight.
    awaited: Awaited,
}

impl<'a, P: Protocol> Generator<'a, P> {
    pub(crate) fn connect(load: &Load, protocol: &'a P) -> Result<Self, LoadError> {
        let addr = load.addr;
        let poll = Poll::new().map_err(|source| LoadError::Socket { addr, source })?;
        let requests = protocol.template().frame().repeat(load.pipeline.into());
        let is_udp = P::TRANSPORT == Transport::Udp;
        let awaited = match load.rate {
            _ if !is_udp => 1,
            Some(_) => AWAITED_MAX,
            None => load.pipeline.into(),
        };
        let open = |index: u64| {
            let token = Token(usize::try_from(index).expect("a connection has an index"));
            let offload = load.segmentation_offload;
            let socket =
                Socket::open(P::TRANSPORT, protocol.greeting(), addr, offload, poll.registry(), token);
            let socket = socket.map_err(|source| match source.kind() {
                ErrorKind::ConnectionRefused => LoadError::Refused { addr, start: P::START },
                _ => LoadError::Connect { addr, number: index + 1, source },
            })?;
            Ok(Connection {
                index,
                socket,
                requests: requests.clone(),
                unsent: 0..0,
                due: 0,
                sent: 0,
                in_flight: 0,
                sent_at: Timestamp::EPOCH,
                partial: Vec::new(),
                awaited: Awaited::new(awaited),
            })
        };
        let connections = (0..load.connections.into()).map(open).collect::<Result<_, _>>()?;
        let (reply_timeout, batch) = (Nanos::from(load.reply_timeout), load.pipeline.into());
        let exchange = Exchange {
            addr,
            protocol,
            started: Instant::now(),
            keys: KeyChooser::new(load.key_order, protocol.template().keys()),
            batch,
            schedule: load.rate.map(|rate| Schedule {
                start: Timestamp::EPOCH,
                rate,
                connections: load.connections.into(),
                batch,
            }),
            reply_timeout,
            buffer: ReceiveBuffer::new(P::TRANSPORT),
            run: Run::new(load, is_udp.then_some(reply_timeout)),
            stats: LoadStats::new(),
        };
        let (observed_at, expired_at) = (Timestamp::EPOCH, Timestamp::EPOCH);
        Ok(Self { poll, connections, exchange, released: 0, observed_at, expired_at })
    }

    /// Sends and receives until the run is over.
    pub(crate) fn drive(
        &mut self,
        observe: &mut dyn FnMut(&RunProgress<'_>) -> ControlFlow<()>,
    ) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(self.connections.len().min(1024));
        if self.exchange.schedule.is_none() {
            for connection in &mut self.connections {
                self.exchange.send_next(connection, Timestamp::EPOCH)?;
            }
        }
        loop {
            let (now, Exchange { addr, run, stats, .. }) = (self.exchange.now(), &mut self.exchange);
            if now.since(self.observed_at) >= WAIT_MAX {
                self.observed_at = now;
                let progress = RunProgress { elapsed: now.since(Timestamp::EPOCH).into(), stats };
                if observe(&progress).is_break() {
                    run.interrupt();
                    return Ok(());
                }
            }
            match run.phase(now, stats) {
                Phase::Sending | Phase::Draining => self.step(&mut events)?,
                Phase::Over => return Ok(()),
                Phase::Silent(waited) => {
                    return Err(LoadError::Silent { addr: *addr, waited: waited.into() });
                }
            }
        }
    }

    pub(crate) fn into_report(mut self, failure: Option<LoadError>) -> LoadReport {
        let now = self.exchange.now();
        let Exchange { run, stats, .. } = &mut self.exchange;
        let (measured_replies, measured, unanswered) = run.finish(now, stats.replies);
        let stats = self.exchange.stats;
        LoadReport { stats, measured_replies, measured: measured.into(), unanswered, failure }
    }

    /// Sends what is due, waits for events, and handles them.
    fn step(&mut self, events: &mut Events) -> Result<(), LoadError> {
        let wait = self.release()?.min(self.expire()?);
        let millis = if wait < WAIT_MIN { 0 } else { wait.get() / 1_000_000 - 1 };
        match self.poll.poll(events, Some(Duration::from_millis(millis))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled.map_err(|source| LoadError::Socket { addr: self.exchange.addr, source })?,
        }
        for event in &*events {
            let connection = &mut self.connections[event.token().0];
            if event.is_writable() && !connection.unsent.is_empty() {
                self.exchange.send(connection, self.exchange.now())?;
            }
            if event.is_readable() {
                self.exchange.receive(connection)?;
            }
        }
        Ok(())
    }

    /// Sends the batches that the schedule has released, at most one per connection, so that replies are read in
    /// between. Returns the time until the next one.
    fn release(&mut self) -> Result<Nanos, LoadError> {
        let Some(schedule) = self.exchange.schedule else { return Ok(WAIT_MAX) };
        let (now, connections) = (self.exchange.now(), self.connections.len() as u64);
        let due = schedule.due(now).min(self.released + connections);
        while self.released < due {
            let turn = usize::try_from(self.released % connections).expect("a connection has an index");
            self.exchange.send_next(&mut self.connections[turn], now)?;
            self.released += 1;
        }
        Ok(schedule.at(due).since(self.exchange.now()).min(WAIT_MAX))
    }

    /// In a closed loop over UDP, gives up batches that are overdue and sends the next. Returns the time until the
    /// next search.
    fn expire(&mut self) -> Result<Nanos, LoadError> {
        if P::TRANSPORT == Transport::Tcp || self.exchange.schedule.is_some() {
            return Ok(WAIT_MAX);
        }
        let now = self.exchange.now();
        if now.since(self.expired_at) >= EXPIRE_EVERY {
            self.expired_at = now;
            for connection in self.connections.iter_mut().filter(|connection| connection.in_flight > 0) {
                if now.since(connection.sent_at) >= self.exchange.reply_timeout {
                    self.exchange.run.lost(std::mem::take(&mut connection.in_flight));
                    connection.awaited.clear();
                    self.exchange.send_next(connection, now)?;
                }
            }
        }
        Ok(EXPIRE_EVERY)
    }
}

impl<P: Protocol> Exchange<'_, P> {
    fn now(&self) -> Timestamp {
        since(self.started)
    }

    /// Sends the next batch, as far as the run allows one and the socket takes it.
    fn send_next(&mut self, connection: &mut Connection, now: Timestamp) -> Result<(), LoadError> {
        connection.due += self.run.take(self.batch, now);
        self.send(connection, now)
    }

    /// Sends what is due, as far as the socket takes it.
    fn send(&mut self, connection: &mut Connection, now: Timestamp) -> Result<(), LoadError> {
        let len = self.protocol.template().frame().len();
        while connection.due > 0 || !connection.unsent.is_empty() {
            if connection.unsent.is_empty() {
                self.write_batch(connection, now);
            }
            match connection.socket.send(&connection.requests[connection.unsent.clone()], len) {
                Ok(taken) => connection.unsent.start += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(connection, error)),
            }
        }
        Ok(())
    }

    /// Writes keys and numbers into the copies of the template.
    fn write_batch(&mut self, connection: &mut Connection, now: Timestamp) {
        let (template, requests) = (self.protocol.template(), connection.due.min(self.batch));
        let len = template.frame().len();
        let end = usize::try_from(requests).expect("a batch is at most 65,535") * len;
        for frame in connection.requests[..end].chunks_exact_mut(len) {
            template.write_key(frame, self.keys.next());
            self.protocol.write_number(frame, connection.sent);
            if P::TRANSPORT == Transport::Udp && connection.awaited.send(connection.sent) {
                self.run.lost(1);
                connection.in_flight -= 1;
            }
            connection.sent += 1;
        }
        connection.unsent = 0..end;
        connection.due -= requests;
        connection.in_flight += requests;
        connection.sent_at = now;
    }

    /// Counts what has arrived. In a closed loop, sends the next batch when all is answered.
    fn receive(&mut self, connection: &mut Connection) -> Result<(), LoadError> {
        loop {
            let received = match connection.socket {
                Socket::Tcp(_) => self.receive_stream(connection),
                Socket::Udp { .. } => self.receive_datagrams(connection),
            };
            let Some(more) = received? else { return Ok(()) };
            if self.schedule.is_none() && connection.in_flight == 0 {
                self.send_next(connection, self.now())?;
            }
            // Otherwise there was room left, so there is no more, and an event will say when there is.
            if !more {
                return Ok(());
            }
        }
    }

    /// Counts the complete replies of a connection, and keeps the rest. Returns whether there may be more to read, or
    /// `None` if nothing has arrived.
    fn receive_stream(&mut self, connection: &mut Connection) -> Result<Option<bool>, LoadError> {
        let Socket::Tcp(stream) = &mut connection.socket else { return Ok(None) };
        let read = self.buffer.read(stream, &connection.partial);
        let (received, more) = match read {
            Ok(read) => read,
            Err(error) => return self.unread(connection, error),
        };
        let now = since(self.started);
        let first = connection.sent - connection.in_flight;
        let (mut rest, mut number) = (received, first);
        while number < connection.sent {
            let reply = self.protocol.reply(rest).map_err(|NotAReply| not_a_reply::<P>(self.addr, rest))?;
            let Some(reply) = reply else { break };
            if reply.number != number % P::NUMBERS {
                return Err(not_a_reply::<P>(self.addr, rest));
            }
            self.stats.count(&reply.kind);
            rest = &rest[reply.len..];
            number += 1;
        }
        // A reply that nobody asked for, or one without end.
        if (number == connection.sent && !rest.is_empty()) || (more && rest.len() == received.len()) {
            return Err(not_a_reply::<P>(self.addr, rest));
        }
        connection.partial.clear();
        connection.partial.extend_from_slice(rest);
        connection.in_flight -= number - first;
        self.run.replied(number - first, now);
        let Some(schedule) = self.schedule else {
            self.stats.record(now.since(connection.sent_at), number - first);
            return Ok(Some(more));
        };
        let mut next = first;
        while next < number {
            // Requests of one batch have one scheduled time.
            let together = (self.batch - next % self.batch).min(number - next);
            self.stats.record(now.since(schedule.request_at(next, connection.index)), together);
            next += together;
        }
        Ok(Some(more))
    }

    /// Counts the replies among the datagrams that have arrived. Returns whether there may be more to receive, or
    /// `None` if nothing has arrived.
    fn receive_datagrams(&mut self, connection: &mut Connection) -> Result<Option<bool>, LoadError> {
        let Socket::Udp { socket, state, .. } = &connection.socket else { return Ok(None) };
        let more = match self.buffer.receive(socket, state) {
            Ok(more) => more,
            Err(error) => return self.unread(connection, error),
        };
        let (now, mut replies) = (since(self.started), 0);
        for datagram in self.buffer.datagrams() {
            let reply = match self.protocol.reply(datagram) {
                Ok(Some(reply)) if reply.len == datagram.len() => reply,
                _ => return Err(not_a_reply::<P>(self.addr, datagram)),
            };
            // A late or doubled reply answers nothing.
            let Some(number) = connection.awaited.answer(reply.number, P::NUMBERS, connection.sent) else {
                continue;
            };
            self.stats.count(&reply.kind);
            replies += 1;
            if let Some(schedule) = &self.schedule {
                self.stats.record(now.since(schedule.request_at(number, connection.index)), 1);
            }
        }
        if self.schedule.is_none() {
            self.stats.record(now.since(connection.sent_at), replies);
        }
        connection.in_flight -= replies;
        self.run.replied(replies, now);
        Ok(Some(more))
    }

    /// Maps a failed read: nothing has arrived, it is to be tried again, or the connection is lost.
    fn unread(&self, connection: &Connection, error: io::Error) -> Result<Option<bool>, LoadError> {
        match error.kind() {
            ErrorKind::WouldBlock => Ok(None),
            ErrorKind::Interrupted => Ok(Some(true)),
            _ => Err(self.failed(connection, error)),
        }
    }

    /// Returns the error of a connection that the server closed, or of a server that is not there.
    fn failed(&self, connection: &Connection, error: io::Error) -> LoadError {
        match (&connection.socket, error.kind()) {
            (Socket::Udp { .. }, ErrorKind::ConnectionRefused) => {
                LoadError::Refused { addr: self.addr, start: P::START }
            }
            (Socket::Udp { .. }, _) => LoadError::Socket { addr: self.addr, source: error },
            (Socket::Tcp(_), kind) => LoadError::Closed {
                addr: self.addr,
                answered: connection.sent - connection.in_flight,
                sent: connection.sent,
                source: (kind != ErrorKind::UnexpectedEof).then_some(error),
            },
        }
    }
}

/// Returns the time since a run began, as a timestamp.
fn since(started: Instant) -> Timestamp {
    Timestamp::EPOCH + Nanos::from(started.elapsed())
}

fn not_a_reply<P: Protocol>(addr: SocketAddr, received: &[u8]) -> LoadError {
    LoadError::NotAReply { addr, expected: P::NAME, received: shown(received) }
}
