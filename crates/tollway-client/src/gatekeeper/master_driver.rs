//! The thread of a gatekeeper: one connection to report requests to the master, and one to receive its delays.
//!
//! Each is opened again when it ends, and neither waits for the other.

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

use super::shared::Shared;
use super::zmtp_connection::{ZmtpConnection, ZmtpConnectionError};

/// The time between two sweeps of past delays, each of a bounded number.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The time for which messages are collected before they are sent, unless the last were sent longer ago. To wake up for
/// every message would take longer than a request does.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// The first pause after a connection ended.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause between attempts: a master that is back is found within a second, and not by a whole fleet at
/// once.
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// Drives both connections to the master.
pub(super) struct MasterDriver {
    shared: Arc<Shared>,
    accounting: String,
    control: String,
    topic: Vec<u8>,
}

impl MasterDriver {
    pub(super) fn new(shared: Arc<Shared>, accounting: String, control: String) -> Self {
        let topic = [shared.domain.as_bytes(), b"\0"].concat();
        Self { shared, accounting, control, topic }
    }

    /// Runs until the last clone of the gatekeeper is dropped.
    pub(super) async fn run(self, done: oneshot::Receiver<()>) {
        tokio::select! {
            _ = done => {}
            never = self.account_forever() => match never {},
            never = self.listen_forever() => match never {},
            never = self.sweep_forever() => match never {},
        }
    }

    async fn account_forever(&self) -> Infallible {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut reported = false;
        loop {
            let Err(ended) = self.account(&mut backoff).await;
            self.lost(&self.shared.counters.accounting_connected, &self.accounting, &ended, &mut reported);
            self.set_subscribed(false);
            sleep(backoff.failed(random())).await;
        }
    }

    async fn listen_forever(&self) -> Infallible {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut reported = false;
        loop {
            let Err(ended) = self.listen(&mut backoff).await;
            self.lost(&self.shared.counters.control_connected, &self.control, &ended, &mut reported);
            sleep(backoff.failed(random())).await;
        }
    }

    async fn sweep_forever(&self) -> Infallible {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.shared.sweep();
        }
    }

    /// Sends accounting messages while the master is subscribed to them.
    async fn account(&self, backoff: &mut Backoff) -> Result<Infallible, ZmtpConnectionError> {
        let mut connection = ZmtpConnection::open(&self.accounting, SocketType::Pub, &[]).await?;
        backoff.succeeded();
        let (mut batch, mut replies, mut subscriptions) = (Vec::new(), Vec::new(), 0_u32);
        let queue = &self.shared.accounting;
        let mut pause = pin!(sleep(Duration::ZERO));
        let mut received = connection.events(|event| self.note(event, &mut subscriptions, &mut replies));
        loop {
            received?;
            if !replies.is_empty() {
                connection.write(&replies).await?;
                replies.clear();
            }
            self.set_subscribed(subscriptions > 0);
            let batched = async {
                pause.as_mut().await;
                queue.take(&mut batch).await;
            };
            received = tokio::select! {
                received = connection.next_events(|event| self.note(event, &mut subscriptions, &mut replies)) => received,
                () = batched => Ok(()),
            };
            if !batch.is_empty() {
                // A master that does not read blocks this write, and the queue fills up to its bound.
                connection.write(&batch).await?;
                queue.sent();
                batch.clear();
                pause.as_mut().reset(Instant::now() + BATCH_TIME);
            }
        }
    }

    /// Counts the subscriptions to the topic of the domain.
    fn note(&self, event: ZmtpEvent<'_>, subscriptions: &mut u32, replies: &mut Vec<u8>) {
        match event {
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

    /// Receives delays.
    async fn listen(&self, backoff: &mut Backoff) -> Result<Infallible, ZmtpConnectionError> {
        let mut subscription = Vec::new();
        zmtp::encode_subscription(&self.topic, &mut subscription);
        let mut connection = ZmtpConnection::open(&self.control, SocketType::Sub, &subscription).await?;
        backoff.succeeded();
        self.shared.start_session();
        self.found(&self.shared.counters.control_connected, &self.control);
        let mut replies = Vec::new();
        let mut received = connection.events(|event| self.obey(event, &mut replies));
        loop {
            received?;
            connection.write(&replies).await?;
            replies.clear();
            received = connection.next_events(|event| self.obey(event, &mut replies)).await;
        }
    }

    /// Records a delay. Other messages, and those for other domains, are ignored: a newer master may send more.
    fn obey(&self, event: ZmtpEvent<'_>, replies: &mut Vec<u8>) {
        match event {
            ZmtpEvent::Message(frames) => {
                if let Ok(control) = ControlMessage::decode(frames)
                    && control.domain == self.shared.domain.as_bytes()
                {
                    self.shared.record(&control);
                }
            }
            ZmtpEvent::Ping(context) => zmtp::encode_pong(context, replies),
            _ => {}
        }
    }

    /// Opens or closes the accounting queue. While it is closed, messages are dropped and counted.
    fn set_subscribed(&self, subscribed: bool) {
        let counters = &self.shared.counters;
        let dropped = self.shared.accounting.set_open(subscribed);
        counters.dropped.fetch_add(dropped, Ordering::Relaxed);
        match subscribed {
            true => self.found(&counters.accounting_connected, &self.accounting),
            false => counters.accounting_connected.store(false, Ordering::Relaxed),
        }
    }

    fn found(&self, flag: &AtomicBool, address: &str) {
        if !flag.swap(true, Ordering::Relaxed) {
            info!(domain = self.shared.domain, address, "connected to the master");
        }
    }

    /// Logs a lost connection once, not at every attempt. The first failed attempt is logged too: the address may be
    /// wrong.
    fn lost(&self, flag: &AtomicBool, address: &str, why: &ZmtpConnectionError, reported: &mut bool) {
        let was_there = flag.swap(false, Ordering::Relaxed);
        if was_there || !mem::replace(reported, true) {
            warn!(domain = self.shared.domain, address, %why, "the master is unreachable; every request passes");
        }
    }
}

/// Returns a random number for the jitter of a pause. It need not be hard to guess.
fn random() -> u32 {
    (RandomState::new().hash_one(()) >> 32) as u32
}
