//! The calls to a store that one event loop waits for.
//!
//! ```text
//! the loop's thread     start: polls the call once, which sends the request
//! the store's thread    the answer is there: queues the call's number, and writes a byte to a socket
//! the loop's thread     complete_ready, when the socket can be read: polls the queued calls, and completes their futures
//! ```
//!
//! The loop watches that socket with its others. So the store's thread never waits for the interpreter's lock, and
//! answers that came together are completed together.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::intern;
use pyo3::prelude::*;

use crate::limiter::NativeLimiter;
use crate::rule_call::RuleCall;

/// Makes the Python object, or the exception, that completes a future.
pub(crate) type Reply = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A reply that the store has not sent yet.
pub(crate) type PendingPyReply = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The calls that one event loop waits for.
#[pyclass(frozen, module = "tollway._tollway")]
pub(crate) struct PendingCalls {
    table: Mutex<CallTable>,
    ready: Arc<ReadyQueue>,
    notified: UnixStream,
}

#[derive(Default)]
struct CallTable {
    calls: HashMap<u64, PendingCall>,
    /// The number that the last call was given.
    last: u64,
}

/// A call, and the Python future that it completes.
struct PendingCall {
    reply: PendingPyReply,
    future: Py<PyAny>,
}

/// The numbers of the calls that can be polled. The store's thread adds them.
struct ReadyQueue {
    numbers: Mutex<Vec<u64>>,
    notify: UnixStream,
}

struct ReadyWaker {
    ready: Arc<ReadyQueue>,
    number: u64,
}

#[pymethods]
impl PendingCalls {
    #[new]
    fn new() -> io::Result<Self> {
        let (notified, notify) = UnixStream::pair()?;
        notified.set_nonblocking(true)?;
        notify.set_nonblocking(true)?;
        let ready = Arc::new(ReadyQueue { numbers: Mutex::default(), notify });
        Ok(Self { table: Mutex::default(), ready, notified })
    }

    /// Returns the file descriptor that the loop watches. When it can be read, the loop calls `complete_ready`.
    fn fileno(&self) -> i32 {
        self.notified.as_raw_fd()
    }

    /// Asks the store for a call of a limited function or block. The future gets `None` when the call can go on.
    fn start_rule(&self, py: Python<'_>, call: &Bound<'_, RuleCall>, future: Py<PyAny>) -> PyResult<()> {
        self.start(py, RuleCall::store_answer(call)?, future)
    }

    /// Starts a call of a limiter: `spend`, `check`, `refund` or `reset` of these charges and rules.
    fn start_bill(
        &self,
        py: Python<'_>,
        limiter: &Bound<'_, NativeLimiter>,
        verb: &str,
        charges: Vec<Bound<'_, PyAny>>,
        rules: Vec<Bound<'_, PyAny>>,
        future: Py<PyAny>,
    ) -> PyResult<()> {
        self.start(py, limiter.get().reply(verb, &charges, &rules)?, future)
    }

    /// Completes the futures of all calls that were answered.
    fn complete_ready(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        while (&self.notified).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let numbers = std::mem::take(&mut *lock(&self.ready.numbers));
        let mut outcome = Ok(());
        for number in numbers {
            let Some(mut call) = lock(&self.table).calls.remove(&number) else { continue };
            match call.poll(number, &self.ready) {
                // The other futures are completed even if one of them raises.
                Some(reply) => outcome = outcome.and(call.complete(py, reply)),
                None => {
                    lock(&self.table).calls.insert(number, call);
                }
            }
        }
        outcome
    }
}

impl PendingCalls {
    fn start(&self, py: Python<'_>, reply: PendingPyReply, future: Py<PyAny>) -> PyResult<()> {
        let mut call = PendingCall { reply, future };
        let number = {
            let mut table = lock(&self.table);
            table.last += 1;
            table.last
        };
        match call.poll(number, &self.ready) {
            Some(reply) => call.complete(py, reply),
            None => {
                // The number may be queued by now. `complete_ready` runs later in this thread, and finds the call.
                lock(&self.table).calls.insert(number, call);
                Ok(())
            }
        }
    }
}

impl PendingCall {
    fn poll(&mut self, number: u64, ready: &Arc<ReadyQueue>) -> Option<Reply> {
        let waker = Waker::from(Arc::new(ReadyWaker { ready: Arc::clone(ready), number }));
        match self.reply.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => None,
        }
    }

    fn complete(self, py: Python<'_>, reply: Reply) -> PyResult<()> {
        let future = self.future.bind(py);
        // A cancelled future is done, and would raise if it were completed again.
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        match reply(py) {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
        };
        Ok(())
    }
}

impl Wake for ReadyWaker {
    fn wake(self: Arc<Self>) {
        let mut numbers = lock(&self.ready.numbers);
        numbers.push(self.number);
        if numbers.len() == 1 {
            // The write fails if the buffer is full, and then the loop is notified anyway, or if the loop is gone.
            let _ = (&self.ready.notify).write(&[0]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
