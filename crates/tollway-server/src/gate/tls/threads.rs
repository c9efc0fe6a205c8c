//! The threads that do the work of handshakes.
//!
//! A worker sends the state of a connection, with what its client has sent, and gets it back with what is to be sent.
//! The sockets stay with their workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use rustls::ServerConnection;
use tokio::sync::oneshot;
use tracing::error;

/// The number of workers that one thread is enough for. Handshakes are rare: most clients keep their connections.
const WORKERS_PER_THREAD: usize = 4;
/// The priority of the threads, as a number that is added to that of the process. When there are more threads to run
/// than cores, the workers run first.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Runs the threads that compute the TLS handshakes of all gates.
pub(crate) struct HandshakeThreads {
    /// Each handshake has at most one job here, and the number of handshakes has a bound.
    jobs: Sender<Job>,
}

struct Job {
    connection: Box<ServerConnection>,
    done: oneshot::Sender<Processed>,
}

/// A connection after its work was done, and whether that went well. After an error it has an alert to send.
pub(super) type Processed = (Box<ServerConnection>, Result<(), rustls::Error>);

impl HandshakeThreads {
    /// Starts the threads for a server of so many workers. They end when this is dropped.
    pub(crate) fn start(workers: usize) -> io::Result<Arc<Self>> {
        let (jobs, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..workers.div_ceil(WORKERS_PER_THREAD).max(1) {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new().name("tollway-tls".to_owned()).spawn(move || run(&receiver))?;
        }
        Ok(Arc::new(Self { jobs }))
    }

    /// Processes what the client has sent. Returns `None` if that panicked.
    pub(super) async fn process(&self, connection: Box<ServerConnection>) -> Option<Processed> {
        let (done, processed) = oneshot::channel();
        self.jobs.send(Job { connection, done }).ok()?;
        processed.await.ok()
    }
}

fn run(jobs: &Mutex<Receiver<Job>>) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut connection, done }) = job else { return };
        // The client has gone, or its time is over.
        if done.is_closed() {
            continue;
        }
        let work = move || {
            let processed = connection.process_new_packets().map(|_| ());
            let _ = done.send((connection, processed));
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            error!("a TLS handshake panicked; its connection is closed");
        }
        // A worker that was woken meanwhile on this core runs now. Linux lets a thread go on for milliseconds
        // otherwise, in spite of its low priority: with 1,000 handshakes at once, a client waited 20 times as long.
        thread::yield_now();
    }
}
