//! Watches the configuration file: reports when its content has changed, so that it can be reloaded.
//!
//! ```no_run
//! use tollway::config::{Config, FileWatch};
//! # use std::path::Path;
//! let path = Path::new("policy.yaml");
//! let mut watch = FileWatch::new(path); // before the file is read, so that no change falls between
//! let mut config = Config::from_file(path)?;
//! // … and then, once a second:
//! if watch.changed() {
//!     match Config::from_file(path) {
//!         Ok(new) => config = new,
//!         Err(errors) => eprintln!("{}", tollway::core::ErrorChain(&errors)),
//!     }
//! }
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```
//!
//! The path is resolved again each time. So an edit in place, a rename over the file, and a Kubernetes ConfigMap that
//! swaps a link two directories up are all found. (A watch by inode, such as inotify, would miss the last one.)

use std::collections::hash_map::RandomState;
use std::fs::{self, Metadata};
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::read_bounded;

/// Timestamps are coarse: a file younger than this may change again and keep the same timestamps, so it is read again.
const MIN_STABLE_AGE: Duration = Duration::from_secs(2);

/// A watch on one file, which checks the file whenever [`FileWatch::changed`] is called.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    hasher: RandomState,
    /// The metadata of the file when it was last read; `None` if the file must be read to find a change.
    last_stamp: Option<FileStamp>,
    content_hash: Option<u64>,
}

/// The metadata that differs between two files, or between a file before and after an edit.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    modified: SystemTime,
    len: u64,
    /// The numbers of the device and of the file on it; zeros on systems that have none.
    inode: (u64, u64),
    /// The time of the last change to the file or its metadata, which programs cannot set back (unlike `modified`).
    changed: SystemTime,
}

impl FileWatch {
    /// Starts to watch the file at `path`, which need not exist yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let mut watch = Self { path, hasher: RandomState::new(), last_stamp: None, content_hash: None };
        watch.changed();
        watch
    }

    /// Returns whether the content of the file differs from the content at the last call.
    ///
    /// A file that is missing, unreadable or empty counts as unchanged: it is probably being written right now, and the
    /// next call will find its new content.
    pub fn changed(&mut self) -> bool {
        let stamp = fs::metadata(&self.path).ok().and_then(|metadata| FileStamp::of(&metadata));
        if stamp.is_some() && stamp == self.last_stamp {
            return false;
        }
        let Ok(bytes) = read_bounded(&self.path) else { return false };
        if bytes.is_empty() {
            return false;
        }
        let content = Some(self.hasher.hash_one(bytes));
        let changed = content != self.content_hash;
        self.content_hash = content;
        self.last_stamp = stamp.filter(FileStamp::is_stable);
        changed
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Option<Self> {
        let modified = metadata.modified().ok()?;
        let (inode, changed) = identity(metadata).unwrap_or(((0, 0), modified));
        Some(Self { modified, len: metadata.len(), inode, changed })
    }

    /// Returns whether any further edit would change the timestamps.
    fn is_stable(&self) -> bool {
        let newest = self.modified.max(self.changed);
        SystemTime::now().duration_since(newest).is_ok_and(|age| age > MIN_STABLE_AGE)
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<((u64, u64), SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let since_epoch =
        Duration::new(u64::try_from(metadata.ctime()).ok()?, u32::try_from(metadata.ctime_nsec()).ok()?);
    Some(((metadata.dev(), metadata.ino()), SystemTime::UNIX_EPOCH + since_epoch))
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<((u64, u64), SystemTime)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_when_nothing_about_it_is_young() {
        let now = SystemTime::now();
        let (old, young, future) = (now - MIN_STABLE_AGE * 2, now, now + MIN_STABLE_AGE * 2);
        for (modified, changed, settled) in [
            (old, old, true),
            (young, old, false),
            (old, young, false),
            (future, old, false),
            (old, future, false),
        ] {
            let stamp = FileStamp { modified, len: 1, inode: (0, 0), changed };
            assert_eq!(stamp.is_stable(), settled, "{stamp:?}");
        }
    }

    #[test]
    fn a_settled_file_is_not_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatch::new(&file);
        // Pretends that the file was read long after it was written.
        watch.last_stamp = fs::metadata(&file).ok().and_then(|metadata| FileStamp::of(&metadata));
        watch.content_hash = None;
        assert!(!watch.changed());
        watch.last_stamp = None;
        assert!(watch.changed());
    }
}
