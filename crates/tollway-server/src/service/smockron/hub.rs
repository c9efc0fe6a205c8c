//! From whoever publishes to all who subscribed, on whichever worker they are.
//!
//! A publication is encoded once and appended to the mailbox of everybody who wants it; their own workers send it. Nobody
//! waits for anybody: a mailbox that is full loses what comes, which is counted, and is made up for when it is empty.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tollway_wire::smockron::ControlMessage;

use super::delays::Delays;
use super::mailbox::{Mailbox, Messages, Room, Subscriber, Subscription};
use crate::bounds::Bounds;
use crate::metrics::SmockronCounters;

/// How many delays are told again before others get their turn.
const REMINDERS: usize = 2_048;

pub(crate) struct Hub {
    subscribers: ArcSwap<Vec<Arc<Subscriber>>>,
    room: Room,
    topics_max: (usize, usize),
    delays: Delays,
    /// How often something was told.
    told: AtomicU64,
    /// Who is to hear which delays hold.
    reminders: Mutex<VecDeque<Reminder>>,
    newcomers: Notify,
}

struct Reminder {
    subscriber: Weak<Subscriber>,
    /// What was told later it has heard.
    told: u64,
    /// The part of the delays that comes next.
    part: usize,
}

impl Hub {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            subscribers: ArcSwap::default(),
            room: Room::new(bounds.mailbox, bounds.mailboxes),
            topics_max: (bounds.topics, bounds.topic),
            delays: Delays::new(bounds.delays),
            told: AtomicU64::new(0),
            reminders: Mutex::default(),
            newcomers: Notify::new(),
        }
    }

    /// A place for one more subscriber, who wants nothing yet.
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

    pub(super) fn unsubscribe(&self, subscriber: &Arc<Subscriber>) {
        let others = |all: &Arc<Vec<_>>| -> Vec<_> {
            all.iter().filter(|other| !Arc::ptr_eq(other, subscriber)).cloned().collect()
        };
        self.subscribers.rcu(others);
    }

    /// How many there are.
    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.load().len()
    }

    /// How many delays are remembered.
    pub(crate) fn delays(&self) -> usize {
        self.delays.len()
    }

    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// How many topics each may have, and how long.
    pub(super) const fn topics_max(&self) -> (usize, usize) {
        self.topics_max
    }

    /// Tells everybody who wants to know.
    pub(crate) fn publish(&self, controls: &[ControlMessage<'_>], metrics: &SmockronCounters) {
        if controls.is_empty() {
            return;
        }
        // Before anybody's topics are looked at: who subscribes meanwhile may hear it twice, but never not at all.
        let told = self.told.fetch_add(1, Ordering::SeqCst) + 1;
        let (mut messages, mut name) = (Messages::default(), Vec::new());
        for control in controls {
            messages.push(control);
            metrics.delays_forgotten.add(u64::from(!self.delays.remember(control, told, &mut name)));
        }
        metrics.published.add(controls.len() as u64);
        for subscriber in &**self.subscribers.load() {
            let Posted { sent, lost } = self.post(&mut subscriber.open(), controls, &messages);
            metrics.lost.add(lost);
            if sent > 0 {
                subscriber.has_mail();
            }
        }
    }

    /// Tells everybody what was found in the store, except where something newer was told meanwhile.
    pub(crate) fn recall(&self, mut controls: Vec<ControlMessage<'_>>, metrics: &SmockronCounters) {
        controls.retain(|control| !self.delays.has(control));
        self.publish(&controls, metrics);
    }

    fn post(&self, mailbox: &mut Mailbox, controls: &[ControlMessage<'_>], messages: &Messages) -> Posted {
        let mut posted = Posted::default();
        // What comes together is mostly of one domain.
        let mut last: Option<(&[u8], bool)> = None;
        for (control, message) in controls.iter().zip(messages.iter()) {
            let wanted = match last {
                Some((domain, wanted)) if domain == control.domain => wanted,
                _ => mailbox.wants(control.domain),
            };
            last = Some((control.domain, wanted));
            if wanted {
                let sent = mailbox.post(message, &self.room);
                posted.sent += u64::from(sent);
                posted.lost += u64::from(!sent);
            }
        }
        posted
    }

    /// Has the subscriber told which delays hold, soon.
    pub(super) fn remind(&self, subscriber: &Arc<Subscriber>) {
        let told = self.told.load(Ordering::SeqCst);
        let reminder = Reminder { subscriber: Arc::downgrade(subscriber), told, part: 0 };
        let mut reminders = self.reminders();
        match reminders.iter_mut().find(|known| known.subscriber.ptr_eq(&reminder.subscriber)) {
            Some(known) => *known = reminder,
            None => reminders.push_back(reminder),
        }
        drop(reminders);
        self.newcomers.notify_one();
    }

    /// Returns when somebody is to be reminded.
    pub(crate) async fn newcomer(&self) {
        self.newcomers.notified().await;
    }

    /// Tells some of the delays that hold to whom it may concern. `false` when there is nobody left.
    pub(crate) fn remind_some(&self, now: u64, metrics: &SmockronCounters) -> bool {
        let turns = self.reminders().len();
        let mut count = 0;
        for _ in 0..turns {
            let Some(mut reminder) = self.reminders().pop_front() else { break };
            let Some(subscriber) = reminder.subscriber.upgrade() else { continue };
            let mut more = true;
            while more && count < REMINDERS && subscriber.has_half_its_room(&self.room) {
                more = self.remind_part(&subscriber, &reminder, now, &mut count, metrics);
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
        now: u64,
        count: &mut usize,
        metrics: &SmockronCounters,
    ) -> bool {
        let mut mailbox = subscriber.open();
        let mut message = Vec::new();
        let more = self.delays.look_through(reminder.part, reminder.told, now, |control| {
            if mailbox.wants(control.domain) {
                message.clear();
                control.encode(&mut message);
                metrics.lost.add(u64::from(!mailbox.post(&message, &self.room)));
                *count += 1;
            }
        });
        drop(mailbox);
        subscriber.has_mail();
        more
    }

    /// Forgets the delays of one part that are over.
    pub(crate) fn sweep(&self, part: usize, now: u64) {
        self.delays.sweep(part, now);
    }

    fn reminders(&self) -> MutexGuard<'_, VecDeque<Reminder>> {
        self.reminders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Posted {
    sent: u64,
    lost: u64,
}
