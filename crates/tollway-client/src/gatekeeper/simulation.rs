//! Runs a gatekeeper without sockets, threads or a clock, for the simulator.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tollway_core::Timestamp;
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp;

use super::shared::Shared;

/// The two clocks of a gatekeeper, as the simulator sets them.
#[derive(Debug, Default)]
pub struct SimulatedTime {
    steady: AtomicU64,
    wall: AtomicU64,
}

impl SimulatedTime {
    /// Sets both clocks.
    pub fn set(&self, steady: Timestamp, wall: Timestamp) {
        self.steady.store(steady.as_nanos(), Ordering::Relaxed);
        self.wall.store(wall.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> (Timestamp, Timestamp) {
        let [steady, wall] = [&self.steady, &self.wall].map(|clock| clock.load(Ordering::Relaxed));
        (Timestamp::from_nanos(steady), Timestamp::from_nanos(wall))
    }
}

/// The connections of a gatekeeper to its master, as bytes.
#[derive(Debug)]
pub struct SimulatedLink {
    shared: Arc<Shared>,
}

impl SimulatedLink {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens both connections.
    pub fn connect(&self) {
        self.shared.start_session();
        let _ = self.shared.accounting.set_open(true);
    }

    /// Ends both connections. Reports that were not taken are dropped.
    pub fn disconnect(&self) {
        let _ = self.shared.accounting.set_open(false);
    }

    /// Takes the reports that wait to be sent.
    pub fn take_reports(&self) -> Vec<u8> {
        let mut batch = Vec::new();
        let taken =
            pin!(self.shared.accounting.take(&mut batch)).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(()) = taken {
            self.shared.accounting.sent();
        }
        batch
    }

    /// Receives the messages of the master.
    pub fn receive(&self, bytes: &[u8]) {
        for frames in zmtp::messages(bytes) {
            if let Ok(control) = ControlMessage::decode(frames) {
                self.shared.record(&control);
            }
        }
    }

    /// Removes delays that are over, as a timer does.
    pub fn sweep(&self) {
        self.shared.sweep();
    }
}
