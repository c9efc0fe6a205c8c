//! The exporter of a program that was built without the feature `otel`: there is none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use super::Message;
use crate::metrics::Metrics;

/// Returns an error, because nothing can be exported.
pub(super) fn start(
    endpoint: &str,
    _queue: Receiver<Message>,
    _stopping: Arc<AtomicBool>,
    _metrics: Arc<Metrics>,
) -> io::Result<JoinHandle<()>> {
    check(endpoint).map(|()| unreachable!("nothing can be exported"))
}

/// Returns an error, because nothing can be exported.
pub(super) fn check(_endpoint: &str) -> io::Result<()> {
    let message = "the configuration has \"otel\", but this program was built without it; build it with --features otel, \
                   or remove the section";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
