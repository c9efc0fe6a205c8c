//! Ctrl-C ends a run early, with the figures so far; a second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{process, thread};

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports of a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Has somebody asked to stop?
#[derive(Clone, Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT from now on.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build().context("cannot handle signals")?;
        let mut interrupts = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).context("cannot handle signals")?
        };
        let came = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&came);
        thread::spawn(move || {
            runtime.block_on(interrupts.recv());
            flag.store(true, Ordering::Relaxed);
            runtime.block_on(interrupts.recv());
            process::exit(INTERRUPTED);
        });
        Ok(Self(came))
    }

    #[inline]
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
