//! Another policy while running.
//!
//! The file is looked at once a second, and at once when somebody asks. A good file takes effect whole, between two
//! requests; a bad one is explained in the log, line by line, and changes nothing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use tollway::config::{Config, FileWatch, Gates, StoreUrl, WatchSettings};
use tollway::engine::Engine;
use tollway::store::memory::MemoryBounds;
use tollway_core::ErrorChain;
use tracing::{error, info, warn};

use crate::metrics::Metrics;

/// The time between two looks at the file. Looking is one `stat`.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The file that a policy came from.
#[derive(Debug)]
pub struct ConfigFile {
    watch: FileWatch,
    lasting: Lasting,
}

/// The settings of a file that hold until the server is restarted.
#[derive(Debug, PartialEq, Eq)]
struct Lasting {
    store: StoreUrl,
    memory_bounds: MemoryBounds,
    gates: Gates,
    watch: WatchSettings,
}

impl ConfigFile {
    /// The watch that read `config`.
    pub fn new(watch: FileWatch, config: &Config) -> Self {
        Self { watch, lasting: Lasting::of(config) }
    }

    fn reload(&mut self, limiter: &Engine, metrics: &Metrics) {
        match self.watch.read() {
            Ok(config) => {
                if Lasting::of(&config) != self.lasting {
                    warn!(
                        "changes of store, max_buckets, max_client_buckets, gates, watch and show_ids take effect after a restart"
                    );
                }
                let policy = &config.policy;
                let (limits, rules) = (policy.limits().len(), policy.rules().len());
                let (domains, keys) = (policy.domains().len(), policy.keys().rules().len());
                limiter.reload(config.policy);
                metrics.reloads_ok.one();
                let path = self.watch.path().display();
                info!(%path, limits, rules, domains, keys, "configuration reloaded");
            }
            Err(errors) => {
                metrics.reloads_failed.one();
                let path = self.watch.path().display();
                error!(%path, "configuration not reloaded; the old policy stays in force:\n{}", ErrorChain(&errors));
            }
        }
    }
}

impl Lasting {
    fn of(config: &Config) -> Self {
        let Config { store, memory_bounds, gates, watch, .. } = config;
        Self { store: store.clone(), memory_bounds: *memory_bounds, gates: gates.clone(), watch: *watch }
    }
}

/// Reloads on request and on change, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reloader {
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reloader {
    /// Reloads what `file` says, if there is one.
    pub(crate) fn start(
        file: Option<ConfigFile>,
        limiter: Arc<Engine>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let Some(file) = file else { return Ok(Self { requests: None, thread: None }) };
        // One request waits at most: two in a row would read the same file.
        let (sender, receiver) = sync_channel(1);
        let builder = thread::Builder::new().name("tollway-reload".to_owned());
        let thread = builder.spawn(move || watch(file, &limiter, &metrics, &receiver))?;
        Ok(Self { requests: Some(sender), thread: Some(thread) })
    }

    /// Reads the file again, changed or not.
    pub(crate) fn request(&self) {
        match &self.requests {
            Some(requests) => mem::drop(requests.try_send(())),
            None => warn!("nothing to reload: the server was started without a configuration file"),
        }
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(mut file: ConfigFile, limiter: &Engine, metrics: &Metrics, requests: &Receiver<()>) {
    loop {
        let due = match requests.recv_timeout(LOOK_EVERY) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => file.watch.changed(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if due {
            file.reload(limiter, metrics);
        }
    }
}
