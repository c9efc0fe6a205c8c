//! Signals that end a command early: the first lets it finish in order, the second ends the process.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::{io, process, thread};

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code that a shell reports for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// The exit code that a shell reports for a program that SIGHUP ended.
const HUNG_UP: i32 = 129;

/// Records whether a signal has come.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles these signals from now on. Ctrl-C is [`SignalKind::interrupt`].
    pub(super) fn catch(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        let (runtime, mut signals) = listen(kinds).context("cannot handle signals")?;
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

/// Ends the process when its terminal is closed, after `cleanup`. A program that waits for keys cannot be asked to stop
/// then: crossterm reads the end of the terminal again and again, and never returns.
pub(super) fn exit_on_hangup(cleanup: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let (runtime, mut signals) = listen(&[SignalKind::hangup()]).context("cannot handle signals")?;
    thread::spawn(move || {
        runtime.block_on(any(&mut signals));
        cleanup();
        process::exit(HUNG_UP);
    });
    Ok(())
}

fn listen(kinds: &[SignalKind]) -> io::Result<(Runtime, Vec<Signal>)> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let signals = {
        let _inside = runtime.enter();
        kinds.iter().map(|kind| signal(*kind)).collect::<io::Result<_>>()?
    };
    Ok((runtime, signals))
}

/// Waits for any of the signals.
async fn any(signals: &mut [Signal]) {
    poll_fn(|context| {
        let has_come = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
