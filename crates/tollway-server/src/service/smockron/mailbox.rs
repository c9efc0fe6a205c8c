//! What one gatekeeper wants to hear, and has still to be sent.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollway_wire::smockron::ControlMessage;

use super::hub::Hub;

/// Buffers that grew beyond this are given back when they are empty.
const KEPT: usize = 64 << 10;

/// One who subscribes, as those see it who publish.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    mailbox: Mutex<Mailbox>,
    mail: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    topics: Vec<Box<[u8]>>,
    outbox: Vec<u8>,
    /// Was there no room for something?
    lost: bool,
}

/// How much there may be of what waits for gatekeepers.
#[derive(Debug)]
pub(super) struct Room {
    /// For each, in bytes.
    each: usize,
    /// For all together.
    all: usize,
    taken: AtomicUsize,
}

impl Room {
    pub(super) const fn new(each: usize, all: usize) -> Self {
        Self { each, all, taken: AtomicUsize::new(0) }
    }

    fn take(&self, size: usize) -> bool {
        let fits = |taken| Some(taken + size).filter(|taken| *taken <= self.all);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, size: usize) {
        self.taken.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Subscriber {
    pub(super) fn open(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there so little that more may be sent without losing what is published meanwhile?
    pub(super) fn has_half_its_room(&self, room: &Room) -> bool {
        self.open().outbox.len() <= room.each / 2
    }

    pub(super) fn has_mail(&self) {
        self.mail.notify_one();
    }
}

impl Mailbox {
    /// As ZeroMQ has it: a topic is the beginning of what is wanted. That of a domain ends with a NUL.
    pub(super) fn wants(&self, domain: &[u8]) -> bool {
        self.topics.iter().any(|topic| match topic.split_last() {
            Some((0, name)) if name == domain => true,
            _ => domain.starts_with(topic),
        })
    }

    /// `false`, and nothing is sent, if there is no room.
    pub(super) fn post(&mut self, message: &[u8], room: &Room) -> bool {
        let fits = self.outbox.len() + message.len() <= room.each && room.take(message.len());
        if fits {
            self.outbox.extend_from_slice(message);
        }
        self.lost |= !fits;
        fits
    }
}

/// A place among the subscribers, given up when it is dropped.
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    subscriber: Arc<Subscriber>,
    unsent: Vec<u8>,
    sent: usize,
}

impl Subscription {
    pub(super) fn new(hub: Arc<Hub>, subscriber: Arc<Subscriber>) -> Self {
        Self { hub, subscriber, unsent: Vec::new(), sent: 0 }
    }

    /// Messages of this topic are wanted from now on, and those delays that already hold. `false` if that is one topic too many,
    /// or too long.
    pub(crate) fn subscribe(&self, topic: &[u8]) -> bool {
        let (topics_max, topic_max) = self.hub.topics_max();
        let mut mailbox = self.subscriber.open();
        if !mailbox.topics.iter().any(|known| **known == *topic) {
            if mailbox.topics.len() >= topics_max || topic.len() > topic_max {
                return false;
            }
            mailbox.topics.push(topic.into());
        }
        drop(mailbox);
        self.hub.remind(&self.subscriber);
        true
    }

    pub(crate) fn cancel(&self, topic: &[u8]) {
        self.subscriber.open().topics.retain(|known| **known != *topic);
    }

    /// Sends what is said to this subscriber alone, in its turn.
    pub(crate) fn reply(&self, bytes: &[u8]) {
        self.subscriber.open().post(bytes, self.hub.room());
        self.subscriber.has_mail();
    }

    /// Returns when something may have come since `unsent` was last empty.
    pub(crate) async fn mail(&self) {
        self.subscriber.mail.notified().await;
    }

    /// What is to be sent next.
    pub(crate) fn unsent(&mut self) -> &[u8] {
        if self.sent == self.unsent.len() {
            self.refill();
        }
        &self.unsent[self.sent..]
    }

    /// So much of it was sent.
    pub(crate) fn advance(&mut self, sent: usize) {
        self.sent += sent;
        self.hub.room().give_back(sent);
    }

    fn refill(&mut self) {
        self.unsent.clear();
        self.sent = 0;
        if self.unsent.capacity() > KEPT {
            self.unsent = Vec::new();
        }
        let mut mailbox = self.subscriber.open();
        mem::swap(&mut self.unsent, &mut mailbox.outbox);
        // All that waited is on its way: the time to make up for what was lost.
        if mem::take(&mut mailbox.lost) {
            drop(mailbox);
            self.hub.remind(&self.subscriber);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.unsubscribe(&self.subscriber);
        let mut mailbox = self.subscriber.open();
        // Whoever publishes to it just now finds that nothing is wanted.
        mailbox.topics.clear();
        let left = self.unsent.len() - self.sent + mem::take(&mut mailbox.outbox).len();
        self.hub.room().give_back(left);
    }
}

/// Messages, encoded once for all who want them.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    pub(super) fn push(&mut self, control: &ControlMessage<'_>) {
        control.encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_the_beginning_of_what_is_wanted() {
        for (topic, domain, expected) in [
            ("", "web", true),
            ("web\0", "web", true),
            ("web", "web", true),
            ("we", "web", true),
            ("web\0", "webs", false),
            ("webs\0", "web", false),
            ("web\0\0", "web", false),
            ("\0", "web", false),
            ("\0", "", true),
        ] {
            let topics = vec![b"other\0"[..].into(), topic.as_bytes().into()];
            let mailbox = Mailbox { topics, ..Mailbox::default() };
            assert_eq!(mailbox.wants(domain.as_bytes()), expected, "{topic:?} {domain:?}");
        }
        assert!(!Mailbox::default().wants(b"web"));
    }
}
