//! Waiting for an answer without a runtime.
//!
//! ```
//! assert_eq!(tollway::block_on(async { 7 }), 7);
//! ```
//!
//! What a store answers comes from a thread of its own, so whoever waits has nothing to drive: it sleeps until it is
//! woken, or fetches the answer itself if that is quicker. Inside an async task this would hold up all others of its thread; await there instead.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static MAY_SLEEP: Cell<bool> = const { Cell::new(false) };
}

/// Is this thread waiting for what is polled now, so that it may as well do the waiting itself?
pub(crate) fn may_sleep() -> bool {
    MAY_SLEEP.get()
}

/// Says so until it is dropped.
struct MaySleep(bool);

impl MaySleep {
    fn begin() -> Self {
        Self(MAY_SLEEP.replace(true))
    }
}

impl Drop for MaySleep {
    fn drop(&mut self) {
        MAY_SLEEP.set(self.0);
    }
}

/// Sleeps until the future is ready.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let _may_sleep = MaySleep::begin();
    // Nearly always: in memory nothing is ever waited for, and making a waker costs an allocation.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // An unpark that came before this makes it return at once.
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_until_another_thread_wakes_it() {
        let (tell, told) = std::sync::mpsc::channel::<Waker>();
        let mut polls = 0;
        let future = std::future::poll_fn(|context| {
            polls += 1;
            if polls > 2 {
                return Poll::Ready(polls);
            }
            tell.send(context.waker().clone()).unwrap();
            Poll::Pending
        });
        let waker = thread::spawn(move || told.into_iter().for_each(Waker::wake));
        assert_eq!(block_on(future), 3);
        drop(tell);
        waker.join().unwrap();
    }
}
