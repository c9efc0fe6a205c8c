//! Publishes delays to all subscribers, on whichever worker they are.
//!
//! A publication is encoded once and appended to the queue of each subscriber that wants it; the subscriber's own
//! worker sends it. A full queue loses what comes, which is counted, and made up for when the queue is empty. Times are
//! those of the store until they are encoded; on the wire they are those of the wall clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tollway::clock::{WallClock, WallOffset};
use tollway::engine::Engine;
use tollway::reports::{KnownDelays, PublishedDelay};
use tollway_wire::smockron::ControlMessage;

use super::in_flight::{ReportInFlight, ReportsInFlight};
use super::subscriber::{QueueRoom, Subscriber, Subscription};
use crate::bounds::Bounds;
use crate::metrics::SmockronCounters;

/// The number of delays that are sent again before other tasks get their turn.
const REMINDERS: usize = 2_048;

pub(crate) struct Publisher {
    subscribers: ArcSwap<Vec<Arc<Subscriber>>>,
    room: QueueRoom,
    topics_max: (usize, usize),
    /// The delays that were published. With a journal, it keeps them, and knows those of the process before.
    delays: Arc<KnownDelays>,
    /// The number of publications that were made.
    published: AtomicU64,
    reports: ReportsInFlight,
    /// The subscribers that are to hear of the delays in force.
    reminders: Mutex<VecDeque<Reminder>>,
    reminder_added: Notify,
    limiter: Arc<Engine>,
    wall: WallClock,
}

struct Reminder {
    subscriber: Weak<Subscriber>,
    /// The number of the publication that the subscriber was in time for: later ones it has heard.
    published: u64,
    /// The part of the delays that comes next.
    part: usize,
}

impl Publisher {
    pub(super) fn new(bounds: &Bounds, limiter: Arc<Engine>) -> Self {
        let delays = limiter.journaled_delays().unwrap_or_else(|| Arc::new(KnownDelays::new(bounds.delays)));
        delays.set_max(bounds.delays);
        Self {
            subscribers: ArcSwap::default(),
            room: QueueRoom::new(bounds.queue, bounds.queues),
            topics_max: (bounds.topics, bounds.topic),
            delays,
            published: AtomicU64::new(0),
            reports: ReportsInFlight::new(),
            reminders: Mutex::default(),
            reminder_added: Notify::new(),
            wall: WallClock::new(limiter.clock().clone()),
            limiter,
        }
    }

    /// Adds a subscriber, which wants nothing yet.
    pub(crate) fn join(self: &Arc<Self>) -> Subscription {
        let subscriber = Arc::default();
        self.subscribers.rcu(|known| {
            let mut all = Vec::with_capacity(known.len() + 1);
            all.extend(known.iter().cloned());
            all.push(Arc::clone(&subscriber));
            all
        });
        Subscription::new(Arc::clone(self), subscriber)
    }

    pub(super) fn leave(&self, subscriber: &Arc<Subscriber>) {
        let others = |all: &Arc<Vec<_>>| -> Vec<_> {
            all.iter().filter(|other| !Arc::ptr_eq(other, subscriber)).cloned().collect()
        };
        self.subscribers.rcu(others);
    }

    /// Returns the difference between the wall clock, which messages on the wire use, and the clock of the store. A
    /// shared store has a wall clock of its own.
    pub(super) fn wall_offset(&self) -> WallOffset {
        if self.limiter.is_shared() { WallOffset::default() } else { self.wall.offset() }
    }

    /// Returns the time of the store, in milliseconds since 1970.
    fn now_millis(&self) -> u64 {
        let now = self.limiter.clock().now().as_nanos() / 1_000_000;
        if self.limiter.is_shared() { self.wall.offset().to_wall_millis(now) } else { now }
    }

    /// Returns the number of subscribers.
    pub(super) fn subscribers(&self) -> usize {
        self.subscribers.load().len()
    }

    /// Returns the number of delays that are kept for subscribers that come later.
    pub(super) fn delays(&self) -> usize {
        self.delays.len()
    }

    pub(super) const fn room(&self) -> &QueueRoom {
        &self.room
    }

    /// Returns how many topics a subscriber may have, and how long each may be.
    pub(super) const fn topics_max(&self) -> (usize, usize) {
        self.topics_max
    }

    /// Publishes delays, with times of the store.
    pub(crate) fn publish(&self, delays: &[ControlMessage<'_>], metrics: &SmockronCounters) {
        if delays.is_empty() {
            return;
        }
        // Before topics are read: a subscriber that comes meanwhile may hear it twice, but not miss it.
        let published = self.published.fetch_add(1, Ordering::SeqCst) + 1;
        let (offset, mut name) = (self.wall_offset(), Vec::new());
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(delays.len()));
        for delay in delays {
            on_the_wire(*delay, offset).encode(&mut bytes);
            ends.push(bytes.len());
            metrics.delays_forgotten.add(u64::from(!self.delays.keep(&known(*delay), published, &mut name)));
        }
        metrics.published.add(delays.len() as u64);
        for subscriber in &**self.subscribers.load() {
            let mut queue = subscriber.lock();
            let (mut start, mut lost) = (0, 0);
            // Delays that come together are mostly of one domain.
            let mut last: Option<(&[u8], bool)> = None;
            for (delay, end) in delays.iter().zip(&ends) {
                let wanted = match last {
                    Some((domain, wanted)) if domain == delay.domain => wanted,
                    _ => queue.wants(delay.domain),
                };
                last = Some((delay.domain, wanted));
                lost += u64::from(wanted && !queue.push(&bytes[start..*end], &self.room));
                start = *end;
            }
            drop(queue);
            metrics.lost.add(lost);
            subscriber.wake();
        }
    }

    /// Notes that reports are sent to the store. What is returned is kept until their delays are published.
    pub(super) fn begin_report(&self) -> ReportInFlight {
        self.reports.begin()
    }

    /// Publishes delays that were just found in the store, except those for which a newer one was published meanwhile.
    pub(super) async fn recall(&self, mut delays: Vec<ControlMessage<'_>>, metrics: &SmockronCounters) {
        // The store may have them from reports whose own answer is on its way. Published twice, a delay would count
        // twice: a gatekeeper that receives a time again moves its next request by one more interval.
        self.reports.done().await;
        delays.retain(|delay| !self.delays.has(&known(*delay)));
        self.publish(&delays, metrics);
    }

    /// Sends the delays in force to this subscriber soon.
    pub(super) fn remind(&self, subscriber: &Arc<Subscriber>) {
        let published = self.published.load(Ordering::SeqCst);
        let reminder = Reminder { subscriber: Arc::downgrade(subscriber), published, part: 0 };
        let mut reminders = self.reminders();
        match reminders.iter_mut().find(|known| known.subscriber.ptr_eq(&reminder.subscriber)) {
            Some(known) => *known = reminder,
            None => reminders.push_back(reminder),
        }
        drop(reminders);
        self.reminder_added.notify_one();
    }

    /// Returns when a subscriber is to be reminded.
    pub(super) async fn reminder_added(&self) {
        self.reminder_added.notified().await;
    }

    /// Sends some of the delays in force. Returns false when all are sent to all.
    pub(super) fn remind_some(&self, metrics: &SmockronCounters) -> bool {
        let turns = self.reminders().len();
        let mut count = 0;
        for _ in 0..turns {
            let Some(mut reminder) = self.reminders().pop_front() else { break };
            let Some(subscriber) = reminder.subscriber.upgrade() else { continue };
            let mut more = true;
            while more && count < REMINDERS && subscriber.is_half_empty(&self.room) {
                more = self.remind_part(&subscriber, &reminder, &mut count, metrics);
                reminder.part += 1;
            }
            if more {
                self.reminders().push_back(reminder);
            }
        }
        !self.reminders().is_empty()
    }

    fn remind_part(
        &self,
        subscriber: &Subscriber,
        reminder: &Reminder,
        count: &mut usize,
        metrics: &SmockronCounters,
    ) -> bool {
        let mut queue = subscriber.lock();
        let (offset, mut message) = (self.wall_offset(), Vec::new());
        let more = self.delays.for_each_in(reminder.part, reminder.published, self.now_millis(), |delay| {
            if queue.wants(delay.domain) {
                message.clear();
                on_the_wire(message_of(delay), offset).encode(&mut message);
                metrics.lost.add(u64::from(!queue.push(&message, &self.room)));
                *count += 1;
            }
        });
        drop(queue);
        subscriber.wake();
        more
    }

    /// Drops the delays of one part that are over.
    pub(super) fn sweep(&self, part: usize) {
        self.delays.sweep(part, self.now_millis());
    }

    fn reminders(&self) -> MutexGuard<'_, VecDeque<Reminder>> {
        self.reminders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a message as the delays that are kept have it.
const fn known(message: ControlMessage<'_>) -> PublishedDelay<'_> {
    let ControlMessage { domain, identifier, delay_until } = message;
    PublishedDelay { domain, identifier, until_millis: delay_until }
}

/// Returns the message that tells of a delay.
const fn message_of(delay: PublishedDelay<'_>) -> ControlMessage<'_> {
    let PublishedDelay { domain, identifier, until_millis } = delay;
    ControlMessage { domain, identifier, delay_until: until_millis }
}

/// Returns a message whose time is that of the store, with the time of the wall clock.
const fn on_the_wire(delay: ControlMessage<'_>, offset: WallOffset) -> ControlMessage<'_> {
    ControlMessage { delay_until: offset.to_wall_millis(delay.delay_until), ..delay }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tollway::Clock;
    use tollway::store::memory::Memory;
    use tollway_core::{Policy, Timestamp};

    use super::*;

    const DELAY: ControlMessage<'static> =
        ControlMessage { domain: b"d", identifier: b"x", delay_until: 1_000 };

    fn publisher() -> Publisher {
        let limiter = Engine::with(Policy::default(), Memory::new(1), Clock::manual(Timestamp::EPOCH));
        Publisher::new(&Bounds::default(), Arc::new(limiter))
    }

    #[test]
    fn a_delay_that_is_found_in_the_store_before_its_report_is_answered_is_published_once() {
        let (publisher, metrics) = (publisher(), SmockronCounters::default());
        let report = publisher.begin_report();
        let mut recall = pin!(publisher.recall(vec![DELAY], &metrics));
        let mut context = Context::from_waker(Waker::noop());
        assert!(recall.as_mut().poll(&mut context).is_pending(), "the report is in flight");
        let _later = publisher.begin_report();
        publisher.publish(&[DELAY], &metrics);
        drop(report);
        assert!(recall.as_mut().poll(&mut context).is_ready(), "a later report is not waited for");
        assert_eq!(metrics.published.get(), 1);
    }

    #[test]
    fn a_delay_of_an_earlier_master_is_published_at_once() {
        let (publisher, metrics) = (publisher(), SmockronCounters::default());
        let mut recall = pin!(publisher.recall(vec![DELAY], &metrics));
        assert!(recall.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(metrics.published.get(), 1);
    }
}
