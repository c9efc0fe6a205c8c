//! Ctrl-C: the first ends a run early, with the figures so far; the second ends the process.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{process, thread};

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code that a shell reports for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Records whether Ctrl-C was pressed.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles SIGINT from now on.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build().context("cannot handle signals")?;
        let mut interrupts = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).context("cannot handle signals")?
        };
        let pressed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&pressed);
        thread::spawn(move || {
            runtime.block_on(interrupts.recv());
            flag.store(true, Ordering::Relaxed);
            runtime.block_on(interrupts.recv());
            process::exit(INTERRUPTED);
        });
        Ok(Self(pressed))
    }

    /// Returns a break once Ctrl-C was pressed.
    pub(super) fn check(&self) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
