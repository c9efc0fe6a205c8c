//! Has the file changed?
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
//!         Err(errors) => eprintln!("{errors}"),
//!     }
//! }
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```
//!
//! It looks at what the path leads to, links and all, and never at how it got there: an edit in place, a rename over
//! the file, and a Kubernetes ConfigMap that swaps a link two directories up are all the same to it.

use std::collections::hash_map::RandomState;
use std::fs::{self, Metadata};
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::read_bounded;

/// A file this young may change again without its timestamps showing it: they are only so fine.
const YOUNG: Duration = Duration::from_secs(2);

/// Watches one file by looking at it whenever asked.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    hasher: RandomState,
    /// The file when it was last read, if that tells whether it has to be read again.
    seen: Option<Stamp>,
    content: Option<u64>,
}

/// What differs between two files, or between a file and itself after an edit.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    len: u64,
    /// The device and the file on it, where there is such a thing.
    inode: (u64, u64),
    /// When anything about the file last changed, which nobody can set back.
    changed: SystemTime,
}

impl FileWatch {
    /// Watches from now on. The file need not be there yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let mut watch = Self { path, hasher: RandomState::new(), seen: None, content: None };
        watch.changed();
        watch
    }

    /// Is there something else in the file than when this was last asked?
    ///
    /// A file that is missing, unreadable or empty has not changed: it is about to be written, and is asked about again.
    pub fn changed(&mut self) -> bool {
        let stamp = fs::metadata(&self.path).ok().and_then(|metadata| Stamp::of(&metadata));
        if stamp.is_some() && stamp == self.seen {
            return false;
        }
        let Ok(bytes) = read_bounded(&self.path) else { return false };
        if bytes.is_empty() {
            return false;
        }
        let content = Some(self.hasher.hash_one(bytes));
        let changed = content != self.content;
        self.content = content;
        self.seen = stamp.filter(Stamp::is_settled);
        changed
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Option<Self> {
        let modified = metadata.modified().ok()?;
        let (inode, changed) = identity(metadata).unwrap_or(((0, 0), modified));
        Some(Self { modified, len: metadata.len(), inode, changed })
    }

    /// Would another edit show?
    fn is_settled(&self) -> bool {
        let newest = self.modified.max(self.changed);
        SystemTime::now().duration_since(newest).is_ok_and(|age| age > YOUNG)
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
        let (old, young, future) = (now - YOUNG * 2, now, now + YOUNG * 2);
        for (modified, changed, settled) in [
            (old, old, true),
            (young, old, false),
            (old, young, false),
            (future, old, false),
            (old, future, false),
        ] {
            let stamp = Stamp { modified, len: 1, inode: (0, 0), changed };
            assert_eq!(stamp.is_settled(), settled, "{stamp:?}");
        }
    }

    #[test]
    fn a_settled_file_is_not_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, "one").expect("written");
        let mut watch = FileWatch::new(&file);
        // As though it had been read long after it was written.
        watch.seen = fs::metadata(&file).ok().and_then(|metadata| Stamp::of(&metadata));
        watch.content = None;
        assert!(!watch.changed());
        watch.seen = None;
        assert!(watch.changed());
    }
}
