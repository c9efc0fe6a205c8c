//! One subscriber: the topics that it wants, and the queue of messages that are to be sent to it.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::publisher::Publisher;

/// One subscriber, as the publisher sees it.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    queue: Mutex<SubscriberQueue>,
}

#[derive(Debug, Default)]
pub(super) struct SubscriberQueue {
    topics: Vec<Box<[u8]>>,
    messages: Vec<u8>,
    /// True if a message was lost because the queue was full.
    has_lost: bool,
    waker: Option<Waker>,
}

/// Bounds each queue and all of them together, in bytes.
#[derive(Debug)]
pub(super) struct QueueRoom {
    each: usize,
    all: usize,
    taken: AtomicUsize,
}

impl QueueRoom {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, SubscriberQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the queue is at most half full, so that reminders do not displace what is published meanwhile.
    pub(super) fn is_half_empty(&self, room: &QueueRoom) -> bool {
        self.lock().messages.len() <= room.each / 2
    }

    /// Wakes the task that sends the queue, if there is something to send.
    pub(super) fn wake(&self) {
        let mut queue = self.lock();
        let waker = if queue.messages.is_empty() { None } else { queue.waker.take() };
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl SubscriberQueue {
    /// Returns whether a topic matches the domain. As in ZeroMQ, a topic is a prefix; that of a domain ends with a NUL.
    pub(super) fn wants(&self, domain: &[u8]) -> bool {
        self.topics.iter().any(|topic| match topic.split_last() {
            Some((0, name)) if name == domain => true,
            _ => domain.starts_with(topic),
        })
    }

    /// Appends a message. Returns false if there is no room for it.
    pub(super) fn push(&mut self, message: &[u8], room: &QueueRoom) -> bool {
        let fits = self.messages.len() + message.len() <= room.each && room.take(message.len());
        if fits {
            self.messages.extend_from_slice(message);
        }
        self.has_lost |= !fits;
        fits
    }
}

/// One connection's place among the subscribers, until it is dropped.
pub(crate) struct Subscription {
    publisher: Arc<Publisher>,
    subscriber: Arc<Subscriber>,
    /// The number of bytes that were taken from the queue and are being sent.
    in_flight: usize,
}

impl Subscription {
    pub(super) const fn new(publisher: Arc<Publisher>, subscriber: Arc<Subscriber>) -> Self {
        Self { publisher, subscriber, in_flight: 0 }
    }

    /// Subscribes to a topic, of which the delays in force are sent soon. Returns false if it is too long, or one too
    /// many.
    pub(crate) fn subscribe(&self, topic: &[u8]) -> bool {
        let (topics_max, topic_max) = self.publisher.topics_max();
        let mut queue = self.subscriber.lock();
        if !queue.topics.iter().any(|known| **known == *topic) {
            if queue.topics.len() >= topics_max || topic.len() > topic_max {
                return false;
            }
            queue.topics.push(topic.into());
        }
        drop(queue);
        self.publisher.remind(&self.subscriber);
        true
    }

    pub(super) fn cancel(&self, topic: &[u8]) {
        self.subscriber.lock().topics.retain(|known| **known != *topic);
    }

    pub(super) fn has_topics(&self) -> bool {
        !self.subscriber.lock().topics.is_empty()
    }

    /// Appends the messages of the queue to `output`. They count as queued until the next call, when they are sent.
    pub(crate) fn take(&mut self, output: &mut Vec<u8>) {
        self.publisher.room().give_back(self.in_flight);
        let mut queue = self.subscriber.lock();
        let taken = queue.messages.len();
        if output.is_empty() {
            mem::swap(&mut queue.messages, output);
        } else {
            output.append(&mut queue.messages);
        }
        // Everything that was queued is on its way: the time to make up for what was lost.
        let has_lost = mem::take(&mut queue.has_lost);
        drop(queue);
        self.in_flight = taken;
        if has_lost {
            self.publisher.remind(&self.subscriber);
        }
    }

    /// Takes the queue if it has messages. Otherwise the task is woken when it has.
    pub(super) fn poll_take(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        self.publisher.room().give_back(mem::take(&mut self.in_flight));
        let mut queue = self.subscriber.lock();
        if queue.messages.is_empty() {
            if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                queue.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        drop(queue);
        self.take(output);
        Poll::Ready(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.publisher.leave(&self.subscriber);
        let mut queue = self.subscriber.lock();
        // A publication that goes on at this moment finds that nothing is wanted.
        queue.topics.clear();
        let left = mem::take(&mut queue.messages).len();
        self.publisher.room().give_back(self.in_flight + left);
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
            let queue = SubscriberQueue { topics, ..SubscriberQueue::default() };
            assert_eq!(queue.wants(domain.as_bytes()), expected, "{topic:?} {domain:?}");
        }
        assert!(!SubscriberQueue::default().wants(b"web"));
    }
}
