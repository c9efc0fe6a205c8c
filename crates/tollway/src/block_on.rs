//! Waits for a future on a thread that has no runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Puts the calling thread to sleep until the future is ready, and returns its output.
///
/// ```
/// assert_eq!(tollway::block_on(async { 7 }), 7);
/// ```
///
/// The answers of a shared store come from a thread of its own, so the caller has nothing to drive. Inside an async
/// task this would stop all other tasks of the thread: await there instead.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    // Nearly always ready: in memory nothing is waited for, and a real waker costs an allocation.
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
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
