//! A configuration file that a server watches.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tollway::config::FileWatch;
use tollway_server::ConfigFile;

use super::Harness;

/// A file in a directory of its own, which is removed at the end.
pub(crate) struct WatchedFile {
    directory: TempDir,
}

impl WatchedFile {
    pub(crate) fn new(text: &str) -> Self {
        let file = Self { directory: tempfile::tempdir().unwrap() };
        file.replace(text);
        file
    }

    /// The file as the command line hands it over: read, and watched from then on.
    pub(crate) fn watched(&self) -> ConfigFile {
        let mut watch = FileWatch::new(self.path());
        let config = watch.read().unwrap();
        ConfigFile::new(watch, &config)
    }

    /// Puts a whole file in the place of another: nobody reads half of it.
    pub(crate) fn replace(&self, text: &str) {
        let next = self.path().with_extension("next");
        fs::write(&next, text).unwrap();
        fs::rename(&next, self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("policy.yaml")
    }
}

impl Harness {
    /// Returns how many files were read with this outcome, `ok` or `failed`.
    pub(crate) fn reloads(&self, outcome: &str) -> u64 {
        let counter = format!("tollway_reloads_total{{outcome=\"{outcome}\"}} ");
        let page = self.get("/metrics").body;
        page.lines().find_map(|line| line.strip_prefix(&counter)).unwrap().parse().unwrap()
    }
}
