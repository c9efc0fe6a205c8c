//! Answers that are still to come, for one event loop.
//!
//! ```text
//! the loop's thread     post: polls the decision once, which sends the question
//! the store's thread    the answer is there: puts down the decision's number, and rings
//! the loop's thread     collect, when it hears that: polls what was put down, and completes the futures
//! ```
//!
//! A ring is a byte through a socket that the loop watches with its others. So the store's thread never waits for the
//! interpreter's lock, and answers that came together are collected together.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::intern;
use pyo3::prelude::*;
use tollway::core::RuleDecision;

use crate::decision::Decision;
use crate::enforcer::{Enforcer, texts};

/// The decisions that one event loop waits for.
#[pyclass(frozen, module = "tollway._tollway")]
pub(crate) struct PendingCalls {
    waiting: Mutex<Waiting>,
    answered: Arc<ReadyCalls>,
    heard: UnixStream,
}

#[derive(Default)]
struct Waiting {
    by_number: HashMap<u64, PendingCall>,
    /// The number of the last.
    last: u64,
}

/// A decision, and who waits for it.
struct PendingCall {
    decision: Pin<Box<dyn Future<Output = RuleDecision> + Send>>,
    future: Py<PyAny>,
    enforcer: Py<Enforcer>,
    enforce: bool,
}

/// What the store's thread leaves for the loop's.
struct ReadyCalls {
    numbers: Mutex<Vec<u64>>,
    bell: UnixStream,
}

struct ReadyWaker {
    answered: Arc<ReadyCalls>,
    number: u64,
}

#[pymethods]
impl PendingCalls {
    #[new]
    fn new() -> io::Result<Self> {
        let (heard, bell) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let answered = Arc::new(ReadyCalls { numbers: Mutex::default(), bell });
        Ok(Self { waiting: Mutex::default(), answered, heard })
    }

    /// What the loop has to watch: when it can be read, there is something to `collect`.
    fn fileno(&self) -> i32 {
        self.heard.as_raw_fd()
    }

    /// Asks with these values. The future gets the decision; or, to `enforce` it, nothing or the exception.
    fn post(
        &self,
        py: Python<'_>,
        enforcer: &Bound<'_, Enforcer>,
        values: Vec<Bound<'_, PyAny>>,
        future: Py<PyAny>,
        enforce: bool,
    ) -> PyResult<()> {
        let decision = Box::pin(enforcer.get().decision(texts(&values)?)?);
        let mut call = PendingCall { decision, future, enforcer: enforcer.clone().unbind(), enforce };
        let number = {
            let mut waiting = lock(&self.waiting);
            waiting.last += 1;
            waiting.last
        };
        match call.poll(number, &self.answered) {
            Some(ruling) => call.deliver(py, ruling),
            None => {
                lock(&self.waiting).by_number.insert(number, call);
                Ok(())
            }
        }
    }

    /// Completes the futures of all decisions that were made meanwhile.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        let mut rings = [0; 64];
        while (&self.heard).read(&mut rings).is_ok_and(|read| read == rings.len()) {}
        let numbers = std::mem::take(&mut *lock(&self.answered.numbers));
        let mut outcome = Ok(());
        for number in numbers {
            let Some(mut call) = lock(&self.waiting).by_number.remove(&number) else { continue };
            match call.poll(number, &self.answered) {
                // What goes wrong with one is no reason to leave the others waiting.
                Some(ruling) => outcome = outcome.and(call.deliver(py, ruling)),
                None => {
                    lock(&self.waiting).by_number.insert(number, call);
                }
            }
        }
        outcome
    }
}

impl PendingCall {
    fn poll(&mut self, number: u64, answered: &Arc<ReadyCalls>) -> Option<RuleDecision> {
        let waker = Waker::from(Arc::new(ReadyWaker { answered: Arc::clone(answered), number }));
        match self.decision.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(ruling) => Some(ruling),
            Poll::Pending => None,
        }
    }

    fn deliver(self, py: Python<'_>, ruling: RuleDecision) -> PyResult<()> {
        let future = self.future.bind(py);
        // Who was cancelled no longer wants to know.
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        let outcome = match self.enforce {
            true => self.enforcer.get().admit(&ruling).map(|()| py.None()),
            false => Ok(Py::new(py, Decision::new(ruling))?.into_any()),
        };
        match outcome {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
        };
        Ok(())
    }
}

impl Wake for ReadyWaker {
    fn wake(self: Arc<Self>) {
        let mut numbers = lock(&self.answered.numbers);
        numbers.push(self.number);
        if numbers.len() == 1 {
            // It fails if the loop has a thousand rings to hear already, or is gone.
            let _ = (&self.answered.bell).write(&[0]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
