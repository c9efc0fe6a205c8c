//! The callers that wait until what they decided is on the disk, with `sync: always`.
//!
//! ```text
//! a caller     changes its buckets, takes the next number, wakes the thread of the journal, waits
//! the thread   reads the last number, appends all changes, syncs, wakes everybody up to that number
//! ```
//!
//! All that wait share one sync. Whoever comes while it runs takes part in the next one.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The numbers of callers that wait, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// The number of the last caller.
    asked: AtomicU64,
    /// True if the thread was woken and has not begun.
    is_woken: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The number up to which everything is on the disk.
    done: u64,
    /// True if nobody syncs any more.
    is_closed: bool,
    /// One for each caller that waits, or more if it was polled several times.
    wakers: Vec<Waker>,
}

impl Commits {
    /// Waits until all changes so far are on the disk. `wake` wakes the thread that syncs.
    pub(crate) async fn wait(&self, wake: impl FnOnce()) {
        // The changes are behind the locks of their shards, which the thread takes after it has read the number.
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            wake();
        }
        poll_fn(|context| self.poll(number, context)).await;
    }

    fn poll(&self, number: u64, context: &Context<'_>) -> Poll<()> {
        let mut waiting = self.lock();
        if waiting.done >= number || waiting.is_closed {
            return Poll::Ready(());
        }
        waiting.wakers.push(context.waker().clone());
        Poll::Pending
    }

    /// Returns the number of the last caller whose changes a round from now on has.
    pub(super) fn begin(&self) -> u64 {
        // First, and exchanged instead of stored: a caller whose exchange comes after this one wakes the thread again,
        // and the number of one that came before is seen below. A store could become visible after the load.
        self.is_woken.swap(false, Ordering::AcqRel);
        self.asked.load(Ordering::Acquire)
    }

    /// Wakes the callers up to this number.
    pub(super) fn end(&self, number: u64) {
        self.wake(|waiting| waiting.done = number);
    }

    /// Wakes all callers, now and later: there is nothing to wait for any more.
    pub(super) fn close(&self) {
        self.wake(|waiting| waiting.is_closed = true);
    }

    fn wake(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.lock();
        change(&mut waiting);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use super::*;

    fn is_ready(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_sync_is_for_those_that_came_before_it_began() {
        let (commits, woken) = (Commits::default(), Cell::new(0));
        let wake = || woken.set(woken.get() + 1);
        let (mut first, mut second) = (pin!(commits.wait(wake)), pin!(commits.wait(wake)));
        assert!(!is_ready(first.as_mut()) && !is_ready(second.as_mut()));
        assert_eq!(woken.get(), 1, "both share one sync");
        let upto = commits.begin();
        let mut late = pin!(commits.wait(wake));
        assert!(!is_ready(late.as_mut()));
        assert_eq!(woken.get(), 2);
        commits.end(upto);
        assert!(is_ready(first) && is_ready(second) && !is_ready(late.as_mut()));
        commits.end(commits.begin());
        assert!(is_ready(late));
    }

    #[test]
    fn nobody_waits_for_a_journal_that_was_closed() {
        let commits = Commits::default();
        let mut waiting = pin!(commits.wait(|| {}));
        assert!(!is_ready(waiting.as_mut()));
        commits.close();
        assert!(is_ready(waiting) && is_ready(pin!(commits.wait(|| {}))));
    }
}
