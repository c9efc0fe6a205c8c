//! Watches a configuration file and the files that it names: reports when they have changed, and reads them.
//!
//! ```no_run
//! use tollway::config::FileWatch;
//! # use std::path::Path;
//! let mut watch = FileWatch::new(Path::new("policy.yaml"));
//! let mut config = watch.read()?;
//! // … and then, once a second:
//! if watch.changed() {
//!     match watch.read() {
//!         Ok(new) => config = new,
//!         Err(errors) => eprintln!("{}", tollway::core::ErrorChain(&errors)),
//!     }
//! }
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```
//!
//! Paths are resolved again each time. So an edit in place, a rename over the file, and a Kubernetes ConfigMap that
//! swaps a link two directories up are all found. (A watch by inode, such as inotify, would miss the last one.)

use std::collections::hash_map::RandomState;
use std::fs::{self, Metadata};
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{io, mem};

use super::{Config, ConfigErrors, read_bounded};

/// Timestamps are coarse: a file younger than this may change again and keep the same timestamps, so it is read again.
const MIN_STABLE_AGE: Duration = Duration::from_secs(2);

/// A watch on one file and those that it names, which checks them whenever [`FileWatch::changed`] is called.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    files: ContentWatch,
}

/// Reads files, and reports when the content of one of them differs from what was read.
///
/// ```no_run
/// use tollway::config::ContentWatch;
/// # use std::path::Path;
/// let mut watch = ContentWatch::default();
/// let tokens = watch.read(Path::new("tokens.txt"))?;
/// // … and then, once a second:
/// if watch.changed() {
///     watch.clear();
///     let tokens = watch.read(Path::new("tokens.txt"))?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ContentWatch {
    hasher: RandomState,
    files: Vec<WatchedFile>,
}

/// One file, as it was when it was last read.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    /// The metadata of the file; `None` if the file must be read to find a change.
    stamp: Option<FileStamp>,
    /// A hash of the content; `None` if the file was missing, unreadable or empty.
    content: Option<u64>,
    /// True if the file was missing, unreadable or empty at the last call.
    absent: bool,
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
    /// Starts to watch the file at `path`, which need not exist yet. It has changed as soon as it has content.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let file = WatchedFile { path: path.clone(), stamp: None, content: None, absent: true };
        Self { path, files: ContentWatch { hasher: RandomState::new(), files: vec![file] } }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the configuration. From now on a change is a difference from what was read, valid or not.
    pub fn read(&mut self) -> Result<Config, ConfigErrors> {
        let Self { path, files } = self;
        files.clear();
        Config::from_files(path, &mut |path| files.read(path))
    }

    /// Returns whether the content of a file differs from what was read, as [`ContentWatch::changed`] does.
    pub fn changed(&mut self) -> bool {
        self.files.changed()
    }
}

impl ContentWatch {
    /// Reads a file, and watches it from now on, also if it cannot be read. Of a file that is longer than a
    /// configuration file may be, only the beginning is read.
    pub fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let read = read_bounded(path);
        let content = content_hash(&read, &self.hasher);
        let file = WatchedFile { path: path.to_owned(), stamp: None, content, absent: content.is_none() };
        self.files.push(file);
        read
    }

    /// Stops to watch every file.
    pub fn clear(&mut self) {
        self.files.clear();
    }

    /// Returns whether the content of a file differs from what was read, or from the content at the last call.
    ///
    /// A file that is missing, unreadable or empty has changed if it still is so at the next call: at the first one it
    /// is probably being written.
    pub fn changed(&mut self) -> bool {
        let Self { hasher, files } = self;
        // Every file is looked at, so that changes of two files at once are one change.
        files.iter_mut().map(|file| file.changed(hasher)).max() == Some(true)
    }
}

impl WatchedFile {
    fn changed(&mut self, hasher: &RandomState) -> bool {
        // The metadata is older than the content, if anything: a change in between is found by the next call.
        let stamp = FileStamp::of(&self.path);
        if stamp.is_some() && stamp == self.stamp {
            return false;
        }
        let content = content_hash(&read_bounded(&self.path), hasher);
        let was_absent = mem::replace(&mut self.absent, content.is_none());
        if self.absent && !was_absent {
            return false;
        }
        self.stamp = stamp.filter(FileStamp::is_stable);
        mem::replace(&mut self.content, content) != content
    }
}

/// Returns a hash of the bytes of a file; `None` if there are none.
fn content_hash(read: &io::Result<Vec<u8>>, hasher: &RandomState) -> Option<u64> {
    read.as_ref().ok().filter(|bytes| !bytes.is_empty()).map(|bytes| hasher.hash_one(bytes))
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let modified = metadata.modified().ok()?;
        let (inode, changed) = identity(&metadata).unwrap_or(((0, 0), modified));
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
        watch.files.files[0].stamp = FileStamp::of(file.path());
        assert!(!watch.changed());
        watch.files.files[0].stamp = None;
        assert!(watch.changed());
    }
}
