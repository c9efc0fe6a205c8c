//! A disk in memory for tests and simulations, which loses what was not synced, tears writes, and fails if told to.
#![cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "the simulator makes disks"))]

use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::disk::{Disk, DiskFile};
#[cfg(feature = "simulation")]
use super::reader::{FileReader, Next, OpenError};

/// The number of bytes that a disk writes at once.
const SECTOR: usize = 512;

/// A directory in memory. Clones are the same directory.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The files by name, as a process sees them.
    names: BTreeMap<String, Contents>,
    /// The files by name, as they would be after a power loss.
    durable_names: BTreeMap<String, Contents>,
    faults: Faults,
    locked: Weak<()>,
}

/// A fault that the simulated disk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The bytes that can still be written before the disk is full.
    pub room: Option<usize>,
    /// The error of every write, and of creating, renaming and removing files.
    pub writes: Option<ErrorKind>,
    /// The error of every sync.
    pub syncs: Option<ErrorKind>,
    /// True if a sync succeeds and does nothing.
    pub lies: bool,
}

#[derive(Clone, Debug, Default)]
struct Contents(Arc<Mutex<FileState>>);

#[derive(Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    synced: usize,
    /// True after a sync failed: what was not synced then is gone, although a process can still read it.
    sync_failed: bool,
}

/// An open file of the disk.
#[derive(Debug)]
pub(crate) struct SimulatedFile {
    disk: SimulatedDisk,
    contents: Contents,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedDisk {
    /// Sets the faults that it has from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// Returns the bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        Some(lock(&lock(&self.0).names.get(name)?.0).bytes.clone())
    }

    /// Replaces the bytes of a file, on the disk too.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let synced = bytes.len();
        let contents = Contents(Arc::new(Mutex::new(FileState { bytes, synced, sync_failed: false })));
        let mut state = lock(&self.0);
        state.durable_names.insert(name.to_owned(), contents.clone());
        state.names.insert(name.to_owned(), contents);
    }

    /// Returns the disk as it is after the power was lost: files have the names that were synced, and of the bytes that
    /// were not synced `keep` decides how many are there, of how many; the last of them are garbage.
    pub fn after_power_loss(&self, mut keep: impl FnMut(usize) -> usize) -> Self {
        let lost = Self::default();
        for (name, contents) in &lock(&self.0).durable_names {
            let contents = lock(&contents.0);
            let unsynced = contents.bytes.len() - contents.synced;
            let kept = if contents.sync_failed { 0 } else { keep(unsynced).min(unsynced) };
            let mut bytes = contents.bytes[..contents.synced + kept].to_vec();
            // The sector that was being written has some old bytes. The first one, with the header, is new or not
            // there: a sector is written as a whole.
            let end = bytes.len();
            let garbage = kept.min(7).min(end.saturating_sub(SECTOR));
            bytes[end - garbage..].iter_mut().for_each(|byte| *byte ^= 0x5a);
            lost.put(name, bytes);
        }
        lost
    }

    /// Cuts the last block off the newest log, as a disk would that loses what was synced.
    #[cfg(feature = "simulation")]
    pub fn drop_last_block(&self) {
        let logs = self.list().unwrap_or_default();
        let Some(name) = logs.iter().rfind(|name| name.ends_with(".log")) else { return };
        let Ok(mut reader) = self.open(name).map_err(OpenError::Io).and_then(FileReader::open) else {
            return;
        };
        let (mut before, mut end) = (reader.good_bytes(), reader.good_bytes());
        while let Ok(Next::Block(_)) = reader.next() {
            (before, end) = (end, reader.good_bytes());
        }
        if let Some(mut bytes) = self.bytes(name).filter(|_| before < end) {
            bytes.truncate(usize::try_from(before).unwrap_or(usize::MAX));
            self.put(name, bytes);
        }
    }

    fn check_writes(&self) -> io::Result<()> {
        lock(&self.0).faults.writes.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn check_syncs(&self) -> io::Result<()> {
        lock(&self.0).faults.syncs.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;
    type Reader = Cursor<Vec<u8>>;
    type Lock = Arc<()>;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.0).names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Self::Reader> {
        self.bytes(name).map(Cursor::new).ok_or(ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        self.check_writes()?;
        let contents = Contents::default();
        lock(&self.0).names.insert(name.to_owned(), contents.clone());
        Ok(SimulatedFile { disk: self.clone(), contents })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writes()?;
        let names = &mut lock(&self.0).names;
        let contents = names.remove(from).ok_or(ErrorKind::NotFound)?;
        names.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writes()?;
        lock(&self.0).names.remove(name).map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.check_syncs()?;
        let state = &mut *lock(&self.0);
        state.durable_names.clone_from(&state.names);
        Ok(())
    }

    fn lock(&self) -> io::Result<Arc<()>> {
        let mut state = lock(&self.0);
        if state.locked.strong_count() > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let held = Arc::new(());
        state.locked = Arc::downgrade(&held);
        Ok(held)
    }
}

impl DiskFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.check_writes()?;
        let fits = match &mut lock(&self.disk.0).faults.room {
            Some(room) => {
                let fits = bytes.len().min(*room);
                *room -= fits;
                fits
            }
            None => bytes.len(),
        };
        lock(&self.contents.0).bytes.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let checked = self.disk.check_syncs();
        let lies = lock(&self.disk.0).faults.lies;
        let mut contents = lock(&self.contents.0);
        match checked {
            Ok(()) if lies => {}
            Ok(()) if !contents.sync_failed => contents.synced = contents.bytes.len(),
            // A second attempt succeeds on a real disk too, although the bytes are gone.
            Ok(()) => {}
            Err(_) => contents.sync_failed = true,
        }
        checked
    }

    fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { disk: self.disk.clone(), contents: self.contents.clone() })
    }
}
