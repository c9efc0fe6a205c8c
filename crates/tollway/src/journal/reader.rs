//! Reads a journal file block by block, and stops at the first block that is damaged or incomplete.

use std::io::{self, ErrorKind, Read};

use tollway_core::Timestamp;

use super::format::{Block, BucketVisitor, FileKind, HEADER_LEN, Header, HeaderError, Seal, decode_block};
use super::state::AnyState;
use crate::reports::PublishedDelay;

/// The number of bytes that are read at a time, unless a block is longer.
const READ_LEN: usize = 256 * 1024;

/// The error of a file that cannot be used.
#[derive(Debug)]
pub(crate) enum OpenError {
    Header(HeaderError),
    Io(io::Error),
}

/// Reads one file.
#[derive(Debug)]
pub(crate) struct FileReader<R> {
    input: R,
    header: Header,
    seal: Seal,
    /// The bytes that were read and not used are `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    /// The place of `start` in the file.
    offset: u64,
}

/// The result of looking for the next block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next<'a> {
    Block(Block<'a>),
    /// The file ends after a complete block.
    End,
    /// The rest of the file is not a block.
    Torn,
}

impl<R: Read> FileReader<R> {
    pub(crate) fn open(mut input: R) -> Result<Self, OpenError> {
        let mut head = Vec::with_capacity(HEADER_LEN);
        input.by_ref().take(HEADER_LEN as u64).read_to_end(&mut head).map_err(OpenError::Io)?;
        let header = Header::decode(&head).map_err(OpenError::Header)?;
        let (seal, offset) = (Seal::of(&header), HEADER_LEN as u64);
        Ok(Self { input, header, seal, buffer: Vec::new(), start: 0, offset })
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of bytes up to the end of the last good block.
    pub(crate) const fn good_bytes(&self) -> u64 {
        self.offset
    }

    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        let mut needed = 1;
        loop {
            if !self.fill(needed)? {
                return Ok(if self.start == self.buffer.len() { Next::End } else { Next::Torn });
            }
            // Twice, because a block that is returned may not be borrowed while the loop goes on.
            match decode_block(&self.buffer[self.start..], &self.seal, self.offset) {
                Ok(Err(more)) => needed = more,
                Err(_) => return Ok(Next::Torn),
                Ok(Ok((_, len))) => {
                    let at = self.start;
                    self.start += len;
                    let block = Block::of_checked(&self.buffer[at..self.start]);
                    self.offset += len as u64;
                    return Ok(block.map_or(Next::Torn, Next::Block));
                }
            }
        }
    }

    /// Reads until so many unused bytes are in the buffer. Returns false if the file ends before.
    fn fill(&mut self, needed: usize) -> io::Result<bool> {
        if self.buffer.len() - self.start >= needed {
            return Ok(true);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let wanted = needed.max(READ_LEN) - self.buffer.len();
        // Takes memory for what is there, not for what a length announces.
        self.input.by_ref().take(wanted as u64).read_to_end(&mut self.buffer)?;
        Ok(self.buffer.len() >= needed)
    }
}

/// A description of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSummary {
    /// The purpose of the file.
    pub kind: FileKind,
    /// The number of states and removals of buckets in good blocks.
    pub buckets: u64,
    /// The number of delays in good blocks.
    pub delays: u64,
    /// The number of bytes up to the end of the last good block.
    pub good_bytes: u64,
    /// True if the file ends with the block that completes it.
    pub is_complete: bool,
}

impl FileSummary {
    /// Reads a whole file. A damaged block ends it, as it does when a server reads the file.
    pub fn of(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut reader = FileReader::open(bytes).map_err(|error| match error {
            OpenError::Header(error) => error,
            OpenError::Io(_) => HeaderError::Short,
        })?;
        let (kind, mut counter, mut is_complete) = (reader.header().kind, Counter::default(), false);
        while let Ok(Next::Block(block)) = reader.next() {
            is_complete = block.is_end;
            if block.visit(&mut counter).is_err() {
                break;
            }
        }
        let Counter { buckets, delays } = counter;
        Ok(Self { kind, buckets, delays, good_bytes: reader.good_bytes(), is_complete })
    }
}

#[derive(Default)]
struct Counter {
    buckets: u64,
    delays: u64,
}

impl BucketVisitor for Counter {
    fn bucket(&mut self, _: usize, _: u64, _: AnyState) {
        self.buckets += 1;
    }

    fn removed(&mut self, _: usize, _: u64, _: u8) {
        self.buckets += 1;
    }

    fn delay(&mut self, _: &PublishedDelay<'_>, _: Timestamp) {
        self.delays += 1;
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => error,
            OpenError::Header(error) => Self::new(ErrorKind::InvalidData, error),
        }
    }
}
