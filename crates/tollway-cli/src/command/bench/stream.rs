//! The generator over TCP: one thread, sockets that never block, and no allocation per request.
//!
//! A batch is stamped into the connection's own copy of the template and written in one call. What arrives is read into
//! one buffer that all connections share, and counted where it lies; only a reply that is not yet whole is kept.

use std::io::{self, ErrorKind, Read, Stderr, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, anyhow};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use tollway::core::{Nanos, Timestamp};
use tollway_server::allow_connections;

use super::course::{Course, Stage, Stop};
use super::interrupt::Interrupt;
use super::keys::Draw;
use super::load::Load;
use super::pace::Schedule;
use super::progress::Progress;
use super::protocol::{Foreign, Protocol};
use super::report::shown;
use super::tally::Tally;
use crate::command::no_server;

/// How long a connection may take to open.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// One read takes at most this much. A reply must fit.
const INBOX: usize = 256 << 10;
/// How long to sleep at most: somebody may press Ctrl-C.
const NAP: Nanos = Nanos::from_millis(100);
/// The kernel sleeps in whole milliseconds, and a schedule is in microseconds: shorter waits are spent looking.
const SHORTEST_NAP: Nanos = Nanos::from_millis(2);

/// Connections to one server, and what they say.
pub(super) struct Streams<P> {
    poll: Poll,
    connections: Vec<Connection>,
    talk: Talk<P>,
    rate: Option<u64>,
    /// How many batches of the schedule were handed to the connections, and whose turn it is.
    released: u64,
    turn: usize,
}

/// What is asked and what was answered, the same for all connections.
struct Talk<P> {
    addr: SocketAddr,
    protocol: P,
    draw: Draw,
    batch: u64,
    /// When requests leave in an open loop.
    schedule: Option<Schedule>,
    inbox: Vec<u8>,
    tally: Tally,
}

struct Connection {
    index: u64,
    stream: TcpStream,
    /// As many requests as leave at once, and which bytes of them have yet to leave.
    outbox: Vec<u8>,
    unsent: Range<usize>,
    /// How many requests are due, and how many were sent and answered since the beginning.
    due: u64,
    sent: u64,
    answered: u64,
    sent_at: Timestamp,
    /// The beginning of a reply.
    partial: Vec<u8>,
}

impl<P: Protocol> Streams<P> {
    pub(super) fn connect(addr: SocketAddr, load: &Load, protocol: P, draw: Draw) -> anyhow::Result<Self> {
        allow_connections(load.connections.into());
        let poll = Poll::new().context("cannot create a poller")?;
        let outbox = protocol.template().repeated(load.pipeline.into());
        let connections =
            (0..load.connections.into()).map(|index| Connection::open::<P>(addr, index, &outbox, &poll));
        let connections = connections.collect::<anyhow::Result<_>>()?;
        let batch = load.pipeline.into();
        let talk =
            Talk { addr, protocol, draw, batch, schedule: None, inbox: vec![0; INBOX], tally: Tally::new() };
        Ok(Self { poll, connections, talk, rate: load.rate, released: 0, turn: 0 })
    }

    /// Asks until the course is over.
    pub(super) fn run(&mut self, mut course: Course, interrupt: &Interrupt) -> Course {
        let mut progress = Progress::to_terminal(course.clock.now());
        let mut ran = self.begin(&mut course);
        let mut events = Events::with_capacity(self.connections.len().min(1024));
        while ran.is_ok() && !self.is_over(&mut course, &mut progress, interrupt) {
            ran = self.turn(&mut course, &mut events);
        }
        if let Err(error) = ran {
            course.stop(course.clock.now(), &self.talk.tally, Stop::Failed(error));
        }
        progress.clear();
        course
    }

    pub(super) fn into_tally(self) -> Tally {
        self.talk.tally
    }

    /// In a closed loop everybody starts at once.
    fn begin(&mut self, course: &mut Course) -> anyhow::Result<()> {
        let (start, connections) = (course.clock.now(), self.connections.len() as u64);
        self.talk.schedule =
            self.rate.map(|rate| Schedule { start, rate, connections, batch: self.talk.batch });
        if self.rate.is_none() {
            for connection in &mut self.connections {
                connection.due += course.take(self.talk.batch, start);
                self.talk.send(connection, start)?;
            }
        }
        Ok(())
    }

    fn is_over(
        &mut self,
        course: &mut Course,
        progress: &mut Progress<Stderr>,
        interrupt: &Interrupt,
    ) -> bool {
        let now = course.clock.now();
        if interrupt.came() {
            course.stop(now, &self.talk.tally, Stop::Interrupted);
        }
        progress.tick(now, &self.talk.tally);
        course.stopped().is_some() || course.stage(now, &mut self.talk.tally) == Stage::Over
    }

    /// Sends what is due, and hears what there is to hear.
    fn turn(&mut self, course: &mut Course, events: &mut Events) -> anyhow::Result<()> {
        let nap = self.release(course)?;
        let nap = if nap < SHORTEST_NAP { 0 } else { nap.get() / 1_000_000 - 1 };
        match self.poll.poll(events, Some(Duration::from_millis(nap))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("cannot poll the sockets")?,
        }
        for event in &*events {
            let connection = &mut self.connections[event.token().0];
            if event.is_writable() && !connection.unsent.is_empty() {
                self.talk.send(connection, course.clock.now())?;
            }
            if event.is_readable() {
                self.talk.hear(connection, course)?;
            }
        }
        Ok(())
    }

    /// Sends what the schedule says, once around the connections at most, so that they are heard in between. Returns
    /// how long there will be nothing to send.
    fn release(&mut self, course: &mut Course) -> anyhow::Result<Nanos> {
        let Some(schedule) = self.talk.schedule else { return Ok(NAP) };
        let now = course.clock.now();
        let due = schedule.due(now).min(self.released + self.connections.len() as u64);
        while self.released < due {
            let connection = &mut self.connections[self.turn];
            connection.due += course.take(self.talk.batch, now);
            self.talk.send(connection, now)?;
            self.released += 1;
            self.turn = (self.turn + 1) % self.connections.len();
        }
        Ok(schedule.at(due).since(course.clock.now()).min(NAP))
    }
}

impl<P: Protocol> Talk<P> {
    /// Sends what is due, as far as the socket takes it.
    fn send(&mut self, connection: &mut Connection, now: Timestamp) -> anyhow::Result<()> {
        while connection.due > 0 || !connection.unsent.is_empty() {
            if connection.unsent.is_empty() {
                self.stamp(connection, now);
            }
            match connection.stream.write(&connection.outbox[connection.unsent.clone()]) {
                Ok(written) => connection.unsent.start += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.hung_up(connection, Some(error))),
            }
        }
        Ok(())
    }

    /// Makes the next batch.
    fn stamp(&mut self, connection: &mut Connection, now: Timestamp) {
        let template = self.protocol.template();
        let (size, requests) = (template.frame().len(), connection.due.min(self.batch));
        #[expect(clippy::cast_possible_truncation, reason = "a batch is of 4096, and numbers come around")]
        let (count, first) = (requests as usize, connection.sent as u32);
        let mut number = first;
        for frame in connection.outbox[..count * size].chunks_exact_mut(size) {
            template.stamp(frame, self.draw.next());
            self.protocol.number(frame, number);
            number = number.wrapping_add(1);
        }
        connection.unsent = 0..count * size;
        connection.due -= requests;
        connection.sent += requests;
        connection.sent_at = now;
    }

    /// Counts what has arrived, and asks again when all is answered.
    fn hear(&mut self, connection: &mut Connection, course: &mut Course) -> anyhow::Result<()> {
        loop {
            let kept = connection.partial.len();
            self.inbox[..kept].copy_from_slice(&connection.partial);
            let filled = match connection.stream.read(&mut self.inbox[kept..]) {
                Ok(0) => return Err(self.hung_up(connection, None)),
                Ok(read) => kept + read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.hung_up(connection, Some(error))),
            };
            let now = course.clock.now();
            let replies = self.count(connection, filled, now)?;
            course.heard(replies, now);
            if self.schedule.is_none() && connection.answered == connection.sent {
                connection.due += course.take(self.batch, now);
                self.send(connection, now)?;
            }
            // Less than there was room for: there is no more, and what comes next will say so.
            if filled < self.inbox.len() {
                return Ok(());
            }
        }
    }

    /// Counts the whole replies among the first `filled` bytes of the inbox, and keeps the rest.
    fn count(&mut self, connection: &mut Connection, filled: usize, now: Timestamp) -> anyhow::Result<u64> {
        let (heard, before) = (&self.inbox[..filled], self.tally.replies);
        let most = connection.sent - connection.answered;
        #[expect(clippy::cast_possible_truncation, reason = "numbers come around")]
        let used = self.protocol.scan(heard, connection.answered as u32, most, &mut self.tally);
        let used = used.map_err(|Foreign| self.foreign(heard))?;
        let replies = self.tally.replies - before;
        let rest = &heard[used..];
        // A reply that nobody asked for, or one without end.
        if (replies == most && !rest.is_empty()) || rest.len() == self.inbox.len() {
            return Err(self.foreign(rest));
        }
        connection.partial.clear();
        connection.partial.extend_from_slice(rest);
        self.record(connection, replies, now);
        connection.answered += replies;
        Ok(replies)
    }

    /// How long the next `replies` replies took.
    fn record(&mut self, connection: &Connection, replies: u64, now: Timestamp) {
        let Some(schedule) = self.schedule else {
            return self.tally.took(now.since(connection.sent_at), replies);
        };
        let mut next = connection.answered;
        let end = next + replies;
        while next < end {
            let together = (self.batch - next % self.batch).min(end - next);
            self.tally.took(now.since(schedule.request_at(next, connection.index)), together);
            next += together;
        }
    }

    fn foreign(&self, heard: &[u8]) -> anyhow::Error {
        anyhow!("the reply of {} is not {}: {}", self.addr, P::REPLIES, shown(heard))
    }

    fn hung_up(&self, connection: &Connection, error: Option<io::Error>) -> anyhow::Error {
        let hung_up = anyhow!(
            "{} closed a connection after {} of {} requests",
            self.addr,
            connection.answered,
            connection.sent
        );
        match error {
            Some(error) => anyhow!(error).context(hung_up),
            None => hung_up,
        }
    }
}

impl Connection {
    fn open<P: Protocol>(addr: SocketAddr, index: u64, outbox: &[u8], poll: &Poll) -> anyhow::Result<Self> {
        let stream =
            std::net::TcpStream::connect_timeout(&addr, CONNECT_TIME).map_err(|error| {
                match error.kind() {
                    ErrorKind::ConnectionRefused => no_server(addr, P::START),
                    _ => anyhow!(error).context(format!("cannot open connection {} to {addr}", index + 1)),
                }
            })?;
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        let mut stream = TcpStream::from_std(stream);
        let token = Token(usize::try_from(index).expect("an index"));
        let interest = Interest::READABLE | Interest::WRITABLE;
        prepared
            .and_then(|()| poll.registry().register(&mut stream, token, interest))
            .context("cannot register a connection")?;
        Ok(Self {
            index,
            stream,
            outbox: outbox.to_vec(),
            unsent: 0..0,
            due: 0,
            sent: 0,
            answered: 0,
            sent_at: Timestamp::EPOCH,
            partial: Vec::new(),
        })
    }
}
