//! The disk of a journal: one directory with flat files. Tests and simulations have another implementation.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file that a process locks while it uses the directory.
pub(super) const LOCK_FILE: &str = "lock";

/// The directory of a journal. Clones are the same directory.
pub(crate) trait Disk: Clone + Send + 'static {
    type File: DiskFile;
    type Reader: Read;
    type Lock: Send;

    /// Returns the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    fn open(&self, name: &str) -> io::Result<Self::Reader>;

    /// Creates a file that only its owner can read. A file that exists is replaced.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, and replaces the file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Waits until files that were created and renamed have their names on the disk.
    fn sync_directory(&self) -> io::Result<()>;

    /// Locks the directory for this process. [`ErrorKind::WouldBlock`] means that another process has the lock.
    fn lock(&self) -> io::Result<Self::Lock>;
}

/// A file that is only appended to.
pub(crate) trait DiskFile: Sized + Send + 'static {
    /// Appends all bytes, or fails, possibly after some of them.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Waits until what was appended is on the disk. After an error nobody knows what is; so the file must not be used
    /// any more, not even for another attempt: the system may have dropped what it could not write.
    fn sync(&self) -> io::Result<()>;

    /// Returns a second handle of the file.
    fn duplicate(&self) -> io::Result<Self>;
}

/// A directory of the machine's file system.
#[derive(Clone, Debug)]
pub(crate) struct Directory(Arc<Path>);

impl Directory {
    /// Returns the directory at this path, which is created if it does not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self(path.into()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Disk for Directory {
    type File = File;
    type Reader = File;
    type Lock = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.0.read_dir()?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        File::open(self.path(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        // Removed first: the mode applies to new files only.
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new().append(true).create_new(true).mode(0o600).open(self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&*self.0)?.sync_all()
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.path(LOCK_FILE);
        let created = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        // A lock needs no permission to write: a directory on a read-only file system can be locked if it was before.
        let file = created.or_else(|error| File::open(&path).map_err(|_| error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn duplicate(&self) -> io::Result<Self> {
        self.try_clone()
    }
}
