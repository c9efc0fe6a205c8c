//! Finds the files of a journal that belong together, and reads the buckets in them.

use std::io;
use std::sync::Arc;

use thiserror::Error;
use tollway_core::LostBuckets;

use super::disk::Disk;
use super::format::{BucketVisitor, FileKind, Header, HeaderError, Stamp};
use super::numbers::{NumbersByLimit, decode_numbers, in_force_since};
use super::reader::{FileReader, Next, OpenError};

/// The error of a journal that cannot be used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The directory cannot be created or read.
    #[error("the directory cannot be used for the journal")]
    Directory(#[source] Arc<io::Error>),
    /// Another process uses the directory.
    #[error("the directory is in use by another process; stop that process, or choose another directory")]
    InUse,
    /// A file cannot be read.
    #[error("the file {name} cannot be read; if it is lost, move it away to start without the buckets in it")]
    Read {
        /// The name of the file.
        name: String,
        /// The error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// A file has no valid header.
    #[error("the file {name} cannot be used: {reason}; move it away to start without the buckets in it")]
    Header {
        /// The name of the file.
        name: String,
        /// The reason why the header is not valid.
        reason: HeaderError,
    },
    /// Files of different journals are in one directory.
    #[error("the file {name} is from another journal; move one of the two journals to another directory")]
    Mixed {
        /// The name of the file.
        name: String,
    },
}

/// The name of a file, such as `000000000000002a.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) generation: u64,
    pub(super) kind: FileKind,
    /// True for a snapshot that is being written.
    pub(super) is_part: bool,
}

const LOG: &str = ".log";
const SNAPSHOT: &str = ".snapshot";
const PART: &str = ".part";

impl FileName {
    pub(super) const fn log(generation: u64) -> Self {
        Self { generation, kind: FileKind::Log, is_part: false }
    }

    pub(super) const fn snapshot(generation: u64) -> Self {
        Self { generation, kind: FileKind::Snapshot, is_part: false }
    }

    pub(super) const fn part(generation: u64) -> Self {
        Self { generation, kind: FileKind::Snapshot, is_part: true }
    }

    /// Returns the file with this name, or `None` if it is none of a journal.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (name, is_part) = name.strip_suffix(PART).map_or((name, false), |name| (name, true));
        let (digits, kind) = match (name.strip_suffix(LOG), name.strip_suffix(SNAPSHOT)) {
            (Some(digits), _) if !is_part => (digits, FileKind::Log),
            (None, Some(digits)) => (digits, FileKind::Snapshot),
            _ => return None,
        };
        let generation = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)?;
        Some(Self { generation, kind, is_part })
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.kind == FileKind::Log { LOG } else { SNAPSHOT };
        write!(f, "{:016x}{kind}{}", self.generation, if self.is_part { PART } else { "" })
    }
}

/// The files of a journal that are read at start, in their order: the newest snapshot, and the logs since then.
#[derive(Debug)]
pub(crate) struct Recovery {
    files: Vec<FileName>,
    /// The highest number that any file has.
    generation: u64,
    header: Option<Header>,
}

/// The result of reading a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct Recovered {
    /// The highest number that any file has.
    pub(crate) generation: u64,
    /// The last moment that the journal knows, with the run of the machine that it was in.
    pub(crate) last: Option<([u8; 16], Stamp)>,
    /// The last start after which buckets may have been missing.
    pub(crate) lost: Option<LostBuckets>,
    /// The last numbers of limits.
    pub(crate) numbers: NumbersByLimit,
    /// True if the process ended in an orderly way, so that nothing is missing.
    pub(crate) is_clean: bool,
    /// The names of the files that were not complete.
    pub(crate) torn: Vec<String>,
    pub(crate) logs: usize,
    pub(crate) log_bytes: u64,
    pub(crate) snapshot_bytes: u64,
}

impl Recovered {
    /// Takes the numbers of limits that follow in the files. A snapshot may have newer ones than what is left of the
    /// log beside it, and buckets that were moved to them.
    fn take_numbers(&mut self, numbers: NumbersByLimit) {
        // Too many to be kept, they are not there at all.
        if numbers.is_empty() || in_force_since(&numbers) >= in_force_since(&self.numbers) {
            self.numbers = numbers;
        }
    }
}

impl Recovery {
    /// Looks for the files, and reads their headers.
    pub(crate) fn find(disk: &impl Disk) -> Result<Self, JournalError> {
        let names = disk.list().map_err(|error| JournalError::Directory(Arc::new(error)))?;
        let mut files: Vec<_> = names.iter().filter_map(|name| FileName::parse(name)).collect();
        files.sort_by_key(|file| (file.generation, file.kind == FileKind::Log));
        let generation = files.last().map_or(0, |file| file.generation);
        files.retain(|file| !file.is_part);
        if let Some(snapshot) = files.iter().rposition(|file| file.kind == FileKind::Snapshot) {
            files.drain(..snapshot);
        }
        let mut recovery = Self { files: Vec::with_capacity(files.len()), generation, header: None };
        for file in files {
            recovery.add(disk, file)?;
        }
        Ok(recovery)
    }

    /// Returns the header of the first file, or `None` if there is no journal.
    pub(crate) const fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    fn add(&mut self, disk: &impl Disk, file: FileName) -> Result<(), JournalError> {
        let header = match open(disk, file) {
            Ok(reader) => *reader.header(),
            // The process ended while it created the log. There is nothing in it.
            Err(JournalError::Header { reason: HeaderError::Short, .. }) if file.kind == FileKind::Log => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let first = self.header.get_or_insert(header);
        let same = (first.hash_key, first.shard_bits) == (header.hash_key, header.shard_bits);
        if !same || (header.generation, header.kind) != (file.generation, file.kind) {
            return Err(JournalError::Mixed { name: file.to_string() });
        }
        self.files.push(file);
        Ok(())
    }

    /// Passes all buckets to a visitor. A bucket that is there several times has the last of its states.
    pub(crate) fn read(
        &self,
        disk: &impl Disk,
        visitor: &mut impl BucketVisitor,
    ) -> Result<Recovered, JournalError> {
        let mut recovered = Recovered { generation: self.generation, is_clean: true, ..Default::default() };
        for file in &self.files {
            self.read_file(disk, *file, visitor, &mut recovered)?;
        }
        // A log after the last one that has a header was begun by a process that did not end in an orderly way.
        let last_log = self.files.iter().rev().find(|file| file.kind == FileKind::Log);
        recovered.is_clean &= last_log.is_some_and(|file| file.generation == self.generation);
        Ok(recovered)
    }

    fn read_file(
        &self,
        disk: &impl Disk,
        file: FileName,
        visitor: &mut impl BucketVisitor,
        recovered: &mut Recovered,
    ) -> Result<(), JournalError> {
        let mut reader = open(disk, file)?;
        let boot_id = reader.header().boot_id;
        recovered.last = Some((boot_id, reader.header().created)).max_by_clock(recovered.last);
        recovered.lost = Some(reader.header().lost);
        let (mut is_complete, mut is_torn) = (false, false);
        loop {
            match reader.next().map_err(|error| read_error(file, error))? {
                Next::Block(block) => {
                    is_complete = block.is_end;
                    recovered.last = Some((boot_id, block.stamp)).max_by_clock(recovered.last);
                    is_torn |= block.visit(visitor).is_err();
                    if let Some(numbers) = block.numbers {
                        match decode_numbers(numbers) {
                            Some(numbers) => recovered.take_numbers(numbers),
                            None => is_torn = true,
                        }
                    }
                }
                Next::End => break,
                Next::Torn => {
                    is_torn = true;
                    break;
                }
            }
        }
        if file.kind == FileKind::Log {
            recovered.logs += 1;
            recovered.log_bytes += reader.good_bytes();
            // Damage in an earlier file stays damage, however orderly the last process ended.
            recovered.is_clean = is_complete && recovered.torn.is_empty();
        } else {
            recovered.snapshot_bytes = reader.good_bytes();
            is_torn |= !is_complete;
        }
        if is_torn {
            recovered.torn.push(file.to_string());
            recovered.is_clean = false;
        }
        Ok(())
    }
}

/// Chooses the later of two moments.
trait MaxByClock {
    fn max_by_clock(self, other: Self) -> Self;
}

impl MaxByClock for Option<([u8; 16], Stamp)> {
    fn max_by_clock(self, other: Self) -> Self {
        let clock = |moment: &Self| moment.as_ref().map(|(_, stamp)| stamp.clock);
        if clock(&other) > clock(&self) { other } else { self }
    }
}

fn open<D: Disk>(disk: &D, file: FileName) -> Result<FileReader<D::Reader>, JournalError> {
    let input = disk.open(&file.to_string()).map_err(|error| read_error(file, error))?;
    FileReader::open(input).map_err(|error| match error {
        OpenError::Header(reason) => JournalError::Header { name: file.to_string(), reason },
        OpenError::Io(error) => read_error(file, error),
    })
}

fn read_error(file: FileName, error: io::Error) -> JournalError {
    JournalError::Read { name: file.to_string(), source: Arc::new(error) }
}
