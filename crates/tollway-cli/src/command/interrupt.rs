//! Signals that end a command early: the first lets it finish in order, the second ends the process.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::{io, process, thread};

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code that a shell reports for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Records whether a signal has come.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles these signals from now on. Ctrl-C is [`SignalKind::interrupt`].
    pub(super) fn catch(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build().context("cannot handle signals")?;
        let mut signals = {
            let _inside = runtime.enter();
            let signals = kinds.iter().map(|kind| signal(*kind));
            signals.collect::<io::Result<Vec<_>>>().context("cannot handle signals")?
        };
        let pressed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&pressed);
        thread::spawn(move || {
            runtime.block_on(any(&mut signals));
            flag.store(true, Ordering::Relaxed);
            runtime.block_on(any(&mut signals));
            process::exit(INTERRUPTED);
        });
        Ok(Self(pressed))
    }

    /// Returns a break once a signal has come.
    pub(super) fn check(&self) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Waits for any of the signals.
async fn any(signals: &mut [Signal]) {
    poll_fn(|context| {
        let has_come = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
