//! The generator over UDP, with the server's own way of sending and receiving many datagrams in one call.
//!
//! In a closed loop every socket is a task that sends a batch and hears its answers. In an open loop one task sends for
//! all sockets when the schedule says, and theirs only hear. All of them run on one thread.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Stderr};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, sleep, timeout_at};
use tollway::Clock;
use tollway::core::{Nanos, Timestamp};
use tollway_server::allow_connections;
use tollway_server::datagrams::{Datagrams, Inbox, Outbox};

use super::course::{Course, Stage, Stop};
use super::interrupt::Interrupt;
use super::keys::Draw;
use super::load::Load;
use super::pace::Schedule;
use super::progress::Progress;
use super::protocol::Foreign;
use super::report::shown;
use super::tally::Tally;
use super::text::Datagram;
use super::waiting::Waiting;
use crate::command::no_server;

/// How many requests of a socket can be awaited at once in an open loop. Older ones count as lost.
const AWAITED_MAX: usize = 1 << 16;
/// How often somebody looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Timers tick in milliseconds, and a schedule is in microseconds: shorter waits are spent looking.
const SHORTEST_NAP: Nanos = Nanos::from_millis(3);

/// How to ask over UDP.
pub(super) struct Sockets {
    pub(super) addr: SocketAddr,
    pub(super) datagram: Datagram,
    /// The timeout for a reply.
    pub(super) timeout: Nanos,
    /// Does the kernel cut batches up?
    pub(super) gso: bool,
}

impl Sockets {
    /// Asks until the load is done.
    pub(super) fn run(self, load: &Load, interrupt: &Interrupt) -> anyhow::Result<(Course, Tally)> {
        allow_connections(load.connections.into());
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let local = LocalSet::new();
        let talk = local.block_on(&runtime, async {
            let sockets: Vec<_> = (0..load.connections.into())
                .map(|index| self.open(index, load))
                .collect::<anyhow::Result<_>>()?;
            let talk = Rc::new(Talk::new(self, load));
            talk.start(sockets);
            talk.watch(interrupt).await;
            anyhow::Ok(talk)
        })?;
        // With the tasks go their shares of the talk.
        drop((local, runtime));
        let talk = Rc::into_inner(talk).context("a task outlived the run")?;
        let State { course, tally, .. } = talk.state.into_inner();
        Ok((course, tally))
    }

    fn open(&self, index: u64, load: &Load) -> anyhow::Result<Rc<Socket>> {
        let any: SocketAddr = match self.addr {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        // Connected, so that the kernel keeps foreign datagrams away and says when nobody listens.
        let connected = UdpSocket::bind(any).and_then(|socket| socket.connect(self.addr).map(|()| socket));
        let datagrams = connected
            .and_then(Datagrams::new)
            .with_context(|| format!("cannot open a socket to {}", self.addr))?;
        let datagrams = if self.gso { datagrams } else { datagrams.without_offload() };
        let awaited = if load.rate.is_some() { AWAITED_MAX } else { load.pipeline.into() };
        let waiting = RefCell::new(Waiting::new(awaited));
        Ok(Rc::new(Socket { index, datagrams, waiting, sent_at: Cell::new(Timestamp::EPOCH) }))
    }
}

struct Socket {
    index: u64,
    datagrams: Datagrams,
    waiting: RefCell<Waiting>,
    sent_at: Cell<Timestamp>,
}

/// What all sockets share.
struct Talk {
    how: Sockets,
    batch: u64,
    clock: Clock,
    /// When requests leave in an open loop.
    schedule: Option<Schedule>,
    state: RefCell<State>,
}

struct State {
    draw: Draw,
    course: Course,
    tally: Tally,
    inbox: Inbox,
}

impl Talk {
    fn new(how: Sockets, load: &Load) -> Self {
        let clock = Clock::monotonic();
        let (batch, connections) = (load.pipeline.into(), load.connections.into());
        let schedule = load.rate.map(|rate| Schedule { start: clock.now(), rate, connections, batch });
        let course = Course::new(clock.clone(), load).with_last_answers_within(how.timeout);
        let draw = Draw::new(load.keys, load.zipf);
        let state = State { draw, course, tally: Tally::new(), inbox: Inbox::new() };
        Self { how, batch, clock, schedule, state: RefCell::new(state) }
    }

    fn start(self: &Rc<Self>, sockets: Vec<Rc<Socket>>) {
        for socket in &sockets {
            let (talk, socket) = (Rc::clone(self), Rc::clone(socket));
            spawn_local(async move {
                let talked = if talk.schedule.is_some() {
                    talk.listen(&socket).await
                } else {
                    talk.converse(&socket).await
                };
                talk.note(talked);
            });
        }
        if let Some(schedule) = self.schedule {
            let talk = Rc::clone(self);
            spawn_local(async move {
                let paced = talk.pace(schedule, &sockets).await;
                talk.note(paced);
            });
        }
    }

    /// Looks after the course until it is over.
    async fn watch(&self, interrupt: &Interrupt) {
        let mut progress = Progress::to_terminal(self.clock.now());
        while !self.is_over(&mut progress, interrupt) {
            sleep(LOOK_EVERY).await;
        }
        progress.clear();
    }

    fn is_over(&self, progress: &mut Progress<Stderr>, interrupt: &Interrupt) -> bool {
        let (now, State { course, tally, .. }) = (self.clock.now(), &mut *self.state.borrow_mut());
        if interrupt.came() {
            course.stop(now, tally, Stop::Interrupted);
        }
        progress.tick(now, tally);
        course.stopped().is_some() || course.stage(now, tally) == Stage::Over
    }

    /// A failure ends the run.
    fn note(&self, talked: anyhow::Result<()>) {
        if let Err(error) = talked {
            let State { course, tally, .. } = &mut *self.state.borrow_mut();
            course.stop(self.clock.now(), tally, Stop::Failed(error));
        }
    }

    /// A closed loop: a batch, its answers, the next.
    async fn converse(&self, socket: &Socket) -> anyhow::Result<()> {
        let mut outbox = Outbox::new();
        while self.ask(socket, &mut outbox).await? {
            let give_up_at = Instant::now() + Duration::from(self.how.timeout);
            while socket.waiting.borrow().open() > 0 {
                match timeout_at(give_up_at, socket.datagrams.readable()).await {
                    Ok(ready) => {
                        ready?;
                        self.hear(socket)?;
                    }
                    Err(_late) => self.state.borrow_mut().course.lost(socket.waiting.borrow_mut().give_up()),
                }
            }
        }
        Ok(())
    }

    /// An open loop, the hearing part.
    async fn listen(&self, socket: &Socket) -> anyhow::Result<()> {
        loop {
            socket.datagrams.readable().await?;
            self.hear(socket)?;
        }
    }

    /// An open loop, the asking part: sockets in turn, as the schedule says.
    async fn pace(&self, schedule: Schedule, sockets: &[Rc<Socket>]) -> anyhow::Result<()> {
        let mut outbox = Outbox::new();
        for (batch, socket) in (0..).zip(sockets.iter().cycle()) {
            // However late it is, everybody is heard once in a round.
            if socket.index == 0 {
                yield_now().await;
            }
            self.until(schedule.at(batch)).await;
            if !self.ask(socket, &mut outbox).await? {
                break;
            }
        }
        Ok(())
    }

    async fn until(&self, at: Timestamp) {
        loop {
            match at.since(self.clock.now()) {
                Nanos::ZERO => return,
                long if long >= SHORTEST_NAP => sleep(long.saturating_sub(SHORTEST_NAP).into()).await,
                _ => yield_now().await,
            }
        }
    }

    /// Sends a batch. Is there anything left to ask?
    async fn ask(&self, socket: &Socket, outbox: &mut Outbox) -> anyhow::Result<bool> {
        let now = self.clock.now();
        if self.fill(socket, outbox, now) == 0 {
            return Ok(false);
        }
        socket.sent_at.set(now);
        let unsent = socket.datagrams.send_again(outbox).await;
        // Refused before anything was answered. Later it is a matter of luck, and counts as unanswered.
        if unsent > 0 && self.state.borrow().tally.replies == 0 {
            return Err(self.nobody());
        }
        Ok(true)
    }

    /// Makes the next batch. Returns how many requests it has.
    fn fill(&self, socket: &Socket, outbox: &mut Outbox, now: Timestamp) -> usize {
        let State { course, draw, .. } = &mut *self.state.borrow_mut();
        let (mut waiting, frame) = (socket.waiting.borrow_mut(), self.how.datagram.frame());
        let requests = usize::try_from(course.take(self.batch, now)).unwrap_or_default();
        if requests != outbox.len() {
            outbox.clear();
            let peer = self.how.addr.into();
            (0..requests).for_each(|_| outbox.push(&peer, |out| out.extend_from_slice(frame)));
        }
        for frame in outbox.bytes_mut().chunks_exact_mut(frame.len()) {
            let (id, displaced) = waiting.send();
            if displaced {
                course.lost(1);
            }
            self.how.datagram.stamp(frame, id, draw.next());
        }
        requests
    }

    /// Counts what has arrived at a socket.
    fn hear(&self, socket: &Socket) -> anyhow::Result<()> {
        let State { course, tally, inbox, .. } = &mut *self.state.borrow_mut();
        match socket.datagrams.try_receive(inbox) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(self.nobody());
            }
            Err(error) => {
                return Err(error).context(format!("cannot receive from {}", self.how.addr));
            }
        }
        let (now, mut waiting, mut replies) = (self.clock.now(), socket.waiting.borrow_mut(), 0);
        for (_, reply) in inbox.iter() {
            let (id, over) = self.how.datagram.read(reply).map_err(|Foreign| self.foreign(reply))?;
            // What comes late or twice answers nothing.
            let Some(number) = waiting.answer(id) else { continue };
            replies += 1;
            tally.denied += u64::from(over);
            if let Some(schedule) = &self.schedule {
                tally.took(now.since(schedule.request_at(number, socket.index)), 1);
            }
        }
        if self.schedule.is_none() {
            tally.took(now.since(socket.sent_at.get()), replies);
        }
        tally.replies += replies;
        course.heard(replies, now);
        Ok(())
    }

    fn nobody(&self) -> anyhow::Error {
        no_server(self.how.addr, self.how.datagram.start())
    }

    fn foreign(&self, reply: &[u8]) -> anyhow::Error {
        anyhow!("the reply of {} is not {}: {}", self.how.addr, self.how.datagram.replies(), shown(reply))
    }
}
