//! Tells when the reports that are being recorded have been recorded, and their delays published.

use std::convert::Infallible;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The reports that are in flight: sent to the store, or recorded there, and their delays not yet published.
///
/// Each holds a sender of one channel, which nothing is ever sent to. The channel ends when the last of them is done.
#[derive(Debug)]
pub(super) struct ReportsInFlight {
    latest: Mutex<(Sender<Infallible>, Receiver<Infallible>)>,
}

/// Reports that are in flight until this is dropped.
#[derive(Debug)]
pub(super) struct ReportInFlight {
    _sender: Sender<Infallible>,
}

impl ReportsInFlight {
    pub(super) fn new() -> Self {
        Self { latest: Mutex::new(channel(1)) }
    }

    /// Adds reports, before they are sent to the store.
    pub(super) fn begin(&self) -> ReportInFlight {
        ReportInFlight { _sender: self.lock().0.clone() }
    }

    /// Returns when all reports that are in flight now are done. It does not wait for those that begin meanwhile.
    pub(super) async fn done(&self) {
        let (sender, mut receiver) = mem::replace(&mut *self.lock(), channel(1));
        drop(sender);
        receiver.recv().await;
    }

    fn lock(&self) -> MutexGuard<'_, (Sender<Infallible>, Receiver<Infallible>)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
