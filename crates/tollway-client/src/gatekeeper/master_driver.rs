//! The thread's work: a connection on which the master is told what passes, and one on which it says who must wait. Each
//! comes back by itself, and neither waits for the other.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tollway_core::Backoff;
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::{self, SocketType, ZmtpEvent};
use tracing::{info, warn};

use super::connection::{Connection, Ended};
use super::shared::Shared;

/// How often delays that are over are looked for, a bounded number at a time.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// How long what passes is gathered before it is sent, unless nothing passed for as long. One message at a time, waking up for
/// it would take longer than the request does.
const GATHER: Duration = Duration::from_millis(1);

/// The first pause after a connection ended.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause: a master that is back is found within a second, and by a fleet not all at once.
const PAUSE_MAX: Duration = Duration::from_millis(800);

pub(super) struct Link {
    shared: Arc<Shared>,
    accounting: String,
    control: String,
    topic: Vec<u8>,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, accounting: String, control: String) -> Self {
        let topic = [shared.domain.as_bytes(), b"\0"].concat();
        Self { shared, accounting, control, topic }
    }

    /// Until there is no gatekeeper any more.
    pub(super) async fn run(self, done: oneshot::Receiver<()>) {
        tokio::select! {
            _ = done => {}
            never = self.account_for_ever() => match never {},
            never = self.listen_for_ever() => match never {},
            never = self.sweep_for_ever() => match never {},
        }
    }

    async fn account_for_ever(&self) -> Infallible {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut said = false;
        loop {
            let Err(ended) = self.account(&mut backoff).await;
            self.lost(&self.shared.tally.heard, &self.accounting, &ended, &mut said);
            self.wanted(false);
            sleep(backoff.failed(random())).await;
        }
    }

    async fn listen_for_ever(&self) -> Infallible {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut said = false;
        loop {
            let Err(ended) = self.listen(&mut backoff).await;
            self.lost(&self.shared.tally.hears, &self.control, &ended, &mut said);
            sleep(backoff.failed(random())).await;
        }
    }

    async fn sweep_for_ever(&self) -> Infallible {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.shared.sweep();
        }
    }

    /// Sends what passes to whoever subscribed to it.
    async fn account(&self, backoff: &mut Backoff) -> Result<Infallible, Ended> {
        let mut connection = Connection::open(&self.accounting, SocketType::Pub, &[]).await?;
        backoff.succeeded();
        let (mut batch, mut replies, mut subscriptions) = (Vec::new(), Vec::new(), 0_u32);
        let outbox = &self.shared.outbox;
        let mut rest = pin!(sleep(Duration::ZERO));
        let mut heard = connection.understand(|said| self.note(said, &mut subscriptions, &mut replies));
        loop {
            heard?;
            if !replies.is_empty() {
                connection.write(&replies).await?;
                replies.clear();
            }
            self.wanted(subscriptions > 0);
            let gathered = async {
                rest.as_mut().await;
                outbox.take(&mut batch).await;
            };
            heard = tokio::select! {
                heard = connection.hear(|said| self.note(said, &mut subscriptions, &mut replies)) => heard,
                () = gathered => Ok(()),
            };
            if !batch.is_empty() {
                // Whoever does not read keeps us here, and the outbox fills up to its bound.
                connection.write(&batch).await?;
                outbox.sent();
                batch.clear();
                rest.as_mut().reset(Instant::now() + GATHER);
            }
        }
    }

    /// Counts the subscriptions that are to our topic.
    fn note(&self, said: ZmtpEvent<'_>, subscriptions: &mut u32, replies: &mut Vec<u8>) {
        match said {
            ZmtpEvent::Subscribe(prefix) if self.topic.starts_with(prefix) => {
                *subscriptions = subscriptions.saturating_add(1);
            }
            ZmtpEvent::Cancel(prefix) if self.topic.starts_with(prefix) => {
                *subscriptions = subscriptions.saturating_sub(1);
            }
            ZmtpEvent::Ping(context) => zmtp::encode_pong(context, replies),
            _ => {}
        }
    }

    /// Hears who must wait until when.
    async fn listen(&self, backoff: &mut Backoff) -> Result<Infallible, Ended> {
        let mut subscription = Vec::new();
        zmtp::encode_subscription(&self.topic, &mut subscription);
        let mut connection = Connection::open(&self.control, SocketType::Sub, &subscription).await?;
        backoff.succeeded();
        self.shared.met();
        self.found(&self.shared.tally.hears, &self.control);
        let mut replies = Vec::new();
        let mut heard = connection.understand(|said| self.obey(said, &mut replies));
        loop {
            heard?;
            connection.write(&replies).await?;
            replies.clear();
            heard = connection.hear(|said| self.obey(said, &mut replies)).await;
        }
    }

    /// What is no control message, or for another domain, is nothing to us: masters may learn to say more.
    fn obey(&self, said: ZmtpEvent<'_>, replies: &mut Vec<u8>) {
        match said {
            ZmtpEvent::Message(frames) => {
                if let Ok(control) = ControlMessage::decode(frames)
                    && control.domain == self.shared.domain.as_bytes()
                {
                    self.shared.told(&control);
                }
            }
            ZmtpEvent::Ping(context) => zmtp::encode_pong(context, replies),
            _ => {}
        }
    }

    /// Accounting goes out, or it is dropped where it is made.
    fn wanted(&self, wanted: bool) {
        let tally = &self.shared.tally;
        let dropped = self.shared.outbox.set_open(wanted);
        tally.dropped.fetch_add(dropped, Ordering::Relaxed);
        match wanted {
            true => self.found(&tally.heard, &self.accounting),
            false => tally.heard.store(false, Ordering::Relaxed),
        }
    }

    fn found(&self, flag: &AtomicBool, address: &str) {
        if !flag.swap(true, Ordering::Relaxed) {
            info!(domain = self.shared.domain, address, "the master is there");
        }
    }

    /// Said once, not at every attempt, and also if there never was a master: perhaps the address is wrong.
    fn lost(&self, flag: &AtomicBool, address: &str, why: &Ended, said: &mut bool) {
        let was_there = flag.swap(false, Ordering::Relaxed);
        if was_there || !mem::replace(said, true) {
            warn!(domain = self.shared.domain, address, %why, "no master; everybody passes");
        }
    }
}

/// A number that no other gatekeeper draws at the same time. Nobody gains by guessing it.
fn random() -> u32 {
    (RandomState::new().hash_one(()) >> 32) as u32
}
