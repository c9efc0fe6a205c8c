//! Another policy while running, and other files that the configuration names.
//!
//! Files are looked at once a second, and at once when somebody asks. A good file takes effect whole, between two
//! requests; a bad one is explained in the log, and changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use tollway::config::{Config, FileWatch, Gates, OtelSettings, StoreUrl, WatchSettings};
use tollway::engine::Engine;
use tollway::journal::JournalSettings;
use tollway::store::memory::MemoryBounds;
use tollway_core::ErrorChain;
use tracing::{error, info, warn};

use crate::audit::Auditor;
use crate::metrics::Metrics;

/// The time between two looks at the files. Looking is one `stat` for each.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The names in the audit log for what asked for a reload.
pub(crate) const BY_SIGNAL: &str = "signal";
pub(crate) const BY_FILE: &str = "file";

/// Files whose content takes effect while the server runs.
pub(crate) trait Reloadable: Send {
    /// Returns the path of the file, or of the first of several.
    fn path(&self) -> &Path;

    /// Returns whether a file has changed since it was read.
    fn changed(&mut self) -> bool;

    /// Reads the files again, and logs the outcome. Returns false if they are wrong: what was in force then stays.
    fn reload(&mut self) -> bool;
}

/// The file that a policy came from.
#[derive(Debug)]
pub struct ConfigFile {
    watch: FileWatch,
    restart_only: RestartOnlySettings,
}

/// The settings of a file that hold until the server is restarted.
#[derive(Debug, PartialEq, Eq)]
struct RestartOnlySettings {
    store: StoreUrl,
    journal: Option<JournalSettings>,
    memory_bounds: MemoryBounds,
    gates: Gates,
    audit: Option<PathBuf>,
    otel: Option<OtelSettings>,
    watch: WatchSettings,
}

impl ConfigFile {
    /// The watch that read `config`.
    pub fn new(watch: FileWatch, config: &Config) -> Self {
        Self { watch, restart_only: RestartOnlySettings::of(config) }
    }

    /// Returns the file as one whose policy `limiter` takes over when it changes.
    pub(crate) fn reloadable(self, limiter: Arc<Engine>) -> Box<dyn Reloadable> {
        Box::new(ConfigReload { file: self, limiter })
    }
}

/// A configuration file, and the engine that takes over its policy.
struct ConfigReload {
    file: ConfigFile,
    limiter: Arc<Engine>,
}

impl Reloadable for ConfigReload {
    fn path(&self) -> &Path {
        self.file.watch.path()
    }

    fn changed(&mut self) -> bool {
        self.file.watch.changed()
    }

    fn reload(&mut self) -> bool {
        let ConfigFile { watch, restart_only } = &mut self.file;
        let config = match watch.read() {
            Ok(config) => config,
            Err(errors) => {
                let path = watch.path().display();
                error!(%path, "configuration not reloaded; the old policy stays in force:\n{}", ErrorChain(&errors));
                return false;
            }
        };
        if RestartOnlySettings::of(&config) != *restart_only {
            warn!(
                "changes of store, max_buckets, max_client_buckets, gates, tokens, audit, otel, watch and show_ids take effect after a restart"
            );
        }
        let policy = &config.policy;
        let (limits, rules) = (policy.limits().len(), policy.rules().len());
        let (domains, keys) = (policy.domains().len(), policy.keys().rules().len());
        self.limiter.reload(config.policy);
        let path = watch.path().display();
        info!(%path, limits, rules, domains, keys, "configuration reloaded");
        true
    }
}

impl RestartOnlySettings {
    fn of(config: &Config) -> Self {
        let Config { store, journal, memory_bounds, gates, audit, otel, watch, .. } = config;
        let (store, journal, gates) = (store.clone(), journal.clone(), gates.clone());
        let (audit, otel) = (audit.clone(), otel.clone());
        Self { store, journal, memory_bounds: *memory_bounds, gates, audit, otel, watch: *watch }
    }
}

/// Reloads on request and on change, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reloader {
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reloader {
    /// Starts to watch these files. Without any, nothing is reloaded.
    pub(crate) fn start(
        files: Vec<Box<dyn Reloadable>>,
        auditor: Auditor,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        if files.is_empty() {
            return Ok(Self { requests: None, thread: None });
        }
        // One request waits at most: two in a row would read the same files.
        let (sender, receiver) = sync_channel(1);
        let builder = thread::Builder::new().name("tollway-reload".to_owned());
        let thread = builder.spawn(move || watch(files, &auditor, &metrics, &receiver))?;
        Ok(Self { requests: Some(sender), thread: Some(thread) })
    }

    /// Reads the files again, changed or not.
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

fn watch(mut files: Vec<Box<dyn Reloadable>>, auditor: &Auditor, metrics: &Metrics, requests: &Receiver<()>) {
    loop {
        let requested = match requests.recv_timeout(LOOK_EVERY) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if requested {
            auditor.log.reopen();
        }
        for file in &mut files {
            if requested || file.changed() {
                let before = auditor.limiter.policy();
                let is_done = file.reload();
                let outcome = if is_done { &metrics.reloads_ok } else { &metrics.reloads_failed };
                outcome.one();
                auditor.reloaded(if requested { BY_SIGNAL } else { BY_FILE }, file.path(), is_done, &before);
            }
        }
    }
}
