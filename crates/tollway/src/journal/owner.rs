//! Finds the process that uses the directory of a journal, and ends it, so that another one can go on where it ended.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use super::disk::LOCK_FILE;

/// The system's list of locks. A lock of a process that this one cannot see is not in it.
const LOCKS: &str = "/proc/locks";

/// The process that uses the directory of a journal.
#[derive(Debug)]
pub struct JournalOwner {
    lock: File,
    path: PathBuf,
    pid: Pid,
}

/// The error of a journal that cannot be taken over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The lock of the directory cannot be read.
    #[error("the lock {} cannot be read", path.display())]
    Lock {
        /// The path of the lock.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is not known which process uses the directory.
    #[error(
        "the process that uses {} cannot be found: it runs in another container or on another machine, or this system \
         has no {LOCKS}; stop it, and start without taking over",
        dir.display()
    )]
    UnknownOwner {
        /// The directory of the journal.
        dir: PathBuf,
    },
    /// The process that uses the directory cannot be told to end.
    #[error("process {pid}, which uses the journal, cannot be told to end; run this as the same user")]
    Signal {
        /// The number of the process.
        pid: i32,
        /// The error of the system.
        source: io::Error,
    },
    /// The process did not end in time.
    #[error(
        "process {pid}, which uses the journal, was told to end, and still runs after {waited:?}; stop it"
    )]
    StillRuns {
        /// The number of the process.
        pid: i32,
        /// The time that it was waited for.
        waited: Duration,
    },
}

impl JournalOwner {
    /// Returns the process that uses the journal in this directory, or `None` if none does.
    pub fn find(dir: &Path) -> Result<Option<Self>, TakeOverError> {
        let path = dir.join(LOCK_FILE);
        let failed = |source| TakeOverError::Lock { path: path.clone(), source };
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match lock.try_lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let found = lock.metadata().map_err(failed)?;
        let unknown = || TakeOverError::UnknownOwner { dir: dir.to_owned() };
        let locks = fs::read_to_string(LOCKS).map_err(|_| unknown())?;
        let owner = lockers_of(&locks, found.ino()).find(|pid| has_open(*pid, &found));
        let pid = owner.and_then(Pid::from_raw).ok_or_else(unknown)?;
        Ok(Some(Self { lock, path, pid }))
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the process, and waits until it has kept everything and ended.
    pub fn end(self, within: Duration) -> Result<(), TakeOverError> {
        let pid = self.pid();
        let Self { lock, path, pid: process } = self;
        kill_process(process, Signal::TERM)
            .map_err(|error| TakeOverError::Signal { pid, source: error.into() })?;
        let (sender, locked) = mpsc::channel();
        // A thread, because the system can wait for a lock, but not for a while. If it waits in vain, it ends with this
        // process.
        thread::spawn(move || {
            let locked = lock.lock();
            // Before anybody hears of it: this process is about to lock the directory by another handle.
            drop(lock);
            sender.send(locked)
        });
        match locked.recv_timeout(within) {
            Ok(result) => result.map_err(|source| TakeOverError::Lock { path, source }),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(TakeOverError::StillRuns { pid, waited: within })
            }
        }
    }
}

/// Returns the other processes that have locked a file with this number, on whatever device:
/// `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. Some file systems show another device here than elsewhere.
fn lockers_of(locks: &str, inode: u64) -> impl Iterator<Item = i32> {
    let locker = move |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
        let is_lock = kind == "FLOCK" && file.rsplit(':').next()?.parse() == Ok(inode);
        pid.parse().ok().filter(|pid| is_lock && *pid > 0 && u32::try_from(*pid) != Ok(process::id()))
    };
    locks.lines().filter_map(locker)
}

/// Returns whether a process has this file open. A number from another container would be that of some other process.
fn has_open(pid: i32, file: &Metadata) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_same = |found: Metadata| (found.dev(), found.ino()) == (file.dev(), file.ino());
    open.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(is_same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locker_is_found_by_the_number_of_the_file() {
        let own = process::id();
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 11 08:01:1234 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 08:01:123 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE {own} 08:01:1234 0 EOF\n4: FLOCK  ADVISORY  WRITE 0 08:01:1234 0 EOF\n\
             4: -> FLOCK  ADVISORY  WRITE 13 08:01:1234 0 EOF\n5: FLOCK  ADVISORY  WRITE 14 08:01:1234 0 EOF\n6:\n"
        );
        // The one behind an arrow waits for the lock.
        assert_eq!(lockers_of(&locks, 1_234).collect::<Vec<_>>(), [14]);
    }

    #[test]
    fn a_directory_that_nobody_uses_has_no_owner() {
        let dir = tempfile::tempdir().unwrap();
        assert!(JournalOwner::find(dir.path()).unwrap().is_none());
        let lock = File::create(dir.path().join(LOCK_FILE)).unwrap();
        assert!(JournalOwner::find(dir.path()).unwrap().is_none());
        // This process has it, and does not end itself.
        lock.lock().unwrap();
        let found = JournalOwner::find(dir.path());
        assert!(matches!(found, Err(TakeOverError::UnknownOwner { .. })), "{found:?}");
    }
}
