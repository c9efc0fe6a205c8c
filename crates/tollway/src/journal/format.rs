//! The bytes of a journal file: a header, and blocks with a length and a checksum each. No I/O.
//!
//! ```text
//! file    header, block, block, …
//! block   length u32, checksum u64, body
//! body    kind u8, time of the clock u64, time since boot u64, and groups, or the numbers of limits, or delays
//! group   shard (varint), kind of bucket u8, count u16, and for each bucket: tag u64, state
//! delay   the milliseconds at which it ends u64, length of the domain (varint), domain, length of the identifier
//!         (varint), identifier
//! ```
//!
//! Numbers of a fixed length are little-endian. A group whose kind has its highest bit set lists the tags of buckets
//! that were removed. The checksum depends on the file and on the place in it, so that a block of another file, or one
//! that was moved, is not accepted. A snapshot is a file of the same form. Its last block says that it is complete, and
//! the last block of a log says that the process ended in an orderly way.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use thiserror::Error;
use tollway_core::{LostBuckets, Timestamp};

use super::state::{AnyState, Input, JournalState, put_varint, with_kind};
use crate::reports::PublishedDelay;

const MAGIC: [u8; 8] = *b"TOLLWAYJ";
/// The version of the format. The hash is unchanged since version 2.
const VERSION: u32 = 3;
/// The oldest version that can be read. Version 2 had no delays, and was like version 3 otherwise.
const VERSION_MIN: u32 = 2;
/// The length of a header in bytes.
pub(crate) const HEADER_LEN: usize = 104;
const CHECKED_LEN: usize = HEADER_LEN - 8;

/// The length from which a block is ended. A torn write loses one block at most beyond what was torn.
const BLOCK_TARGET: usize = 64 * 1024;
/// The longest body of a block that is read. One log with as many entries as are written can be nearly so long; other
/// blocks are hardly longer than [`BLOCK_TARGET`].
pub(crate) const BODY_MAX: usize = 64 * 1024 * 1024;
/// The first number of bits that no store has.
pub(super) const SHARD_BITS_END: u8 = 32;
const BLOCK_HEAD: usize = 12;
const BODY_HEAD: usize = 17;

const BUCKETS: u8 = 1;
const END: u8 = 2;
const NUMBERS: u8 = 3;
const DELAYS: u8 = 4;
const REMOVED: u8 = 0x80;

/// The purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The buckets that changed, in the order of the changes.
    Log,
    /// All buckets.
    Snapshot,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The time of the clock that decisions are made by.
    pub(crate) clock: Timestamp,
    /// The nanoseconds since the machine was started, with the time that it slept.
    pub(crate) boot: u64,
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FileKind,
    /// The number of shards is two to this power.
    pub(crate) shard_bits: u8,
    /// The key that ids are hashed with. Whoever knows it can find out which ids have a bucket.
    pub(crate) hash_key: [u64; 2],
    /// The number that the system gave to the current run of the machine; zero if it is unknown.
    pub(crate) boot_id: [u8; 16],
    /// A number made from the key and the generation, which is a part of all checksums in the file.
    pub(crate) file_id: u64,
    pub(crate) generation: u64,
    pub(crate) created: Stamp,
    /// The number of starts after which buckets may have been missing, and the time of the last.
    pub(crate) lost: LostBuckets,
}

/// The error of a file that does not begin with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file is shorter than a header: the process ended while the file was created.
    #[error("it ends within its header")]
    Short,
    /// The file is not from a journal.
    #[error("it is not a file of a journal")]
    Foreign,
    /// The file has another version of the format.
    #[error("it has version {found} of the format, and this program reads {VERSION_MIN} to {VERSION}")]
    Version {
        /// The version that was found.
        found: u32,
    },
    /// The header was changed after it was written.
    #[error("its header is damaged")]
    Damaged,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[u8::from(self.kind == FileKind::Snapshot), self.shard_bits, 0, 0]);
        bytes.extend(self.hash_key.iter().flat_map(|half| half.to_le_bytes()));
        bytes.extend_from_slice(&self.boot_id);
        let LostBuckets { epoch, at } = self.lost;
        let times = [self.created.clock.as_nanos(), self.created.boot, epoch, at.as_nanos()];
        for number in [self.file_id, self.generation].into_iter().chain(times) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&header_checksum(&bytes).to_le_bytes());
        bytes.try_into().expect("the fields are as long as a header")
    }

    /// Decodes the header at the front of `bytes`. A file that is shorter, or has zeros in its place, was not
    /// completely created: it is [`HeaderError::Short`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            let begun = bytes.iter().zip(MAGIC).all(|(found, expected)| *found == expected || *found == 0);
            return Err(if begun { HeaderError::Short } else { HeaderError::Foreign });
        };
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(HeaderError::Short);
        }
        Self::decode_whole(bytes).unwrap_or(Err(HeaderError::Damaged))
    }

    fn decode_whole(bytes: &[u8; HEADER_LEN]) -> Option<Result<Self, HeaderError>> {
        let mut input = Input(bytes);
        if input.array()? != MAGIC {
            return Some(Err(HeaderError::Foreign));
        }
        let found = u32::from_le_bytes(input.array()?);
        if !(VERSION_MIN..=VERSION).contains(&found) {
            return Some(Err(HeaderError::Version { found }));
        }
        let [kind, shard_bits, ..] = input.array::<4>()?;
        let kind = [FileKind::Log, FileKind::Snapshot].into_iter().nth(kind.into())?;
        let hash_key = [input.fixed64()?, input.fixed64()?];
        let boot_id = input.array()?;
        let (file_id, generation) = (input.fixed64()?, input.fixed64()?);
        let created = Stamp { clock: Timestamp::from_nanos(input.fixed64()?), boot: input.fixed64()? };
        let lost = LostBuckets { epoch: input.fixed64()?, at: Timestamp::from_nanos(input.fixed64()?) };
        if input.fixed64()? != header_checksum(&bytes[..CHECKED_LEN]) || shard_bits >= SHARD_BITS_END {
            return None;
        }
        Some(Ok(Self { kind, shard_bits, hash_key, boot_id, file_id, generation, created, lost }))
    }
}

/// The seed of the checksums of headers: a number that no other program has at this place by chance.
const HEADER_SECRETS: RapidSecrets = RapidSecrets::seed(u64::from_le_bytes(MAGIC));

fn header_checksum(bytes: &[u8]) -> u64 {
    rapidhash_v3_seeded(bytes, &HEADER_SECRETS)
}

/// Returns a file as a program that writes another version of the format would begin it.
#[cfg(test)]
pub(super) fn with_version(file: &[u8], version: u32) -> Vec<u8> {
    let mut file = file.to_vec();
    file[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&version.to_le_bytes());
    let checksum = header_checksum(&file[..CHECKED_LEN]);
    file[CHECKED_LEN..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
    file
}

/// Computes the checksums of the blocks of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal(RapidSecrets);

impl Seal {
    pub(crate) fn of(header: &Header) -> Self {
        Self::of_file(header.file_id)
    }

    /// Returns what seals the blocks of the file that has this number.
    pub(crate) const fn of_file(file_id: u64) -> Self {
        Self(RapidSecrets::seed(file_id))
    }

    pub(crate) fn checksum(&self, body: &[u8], offset: u64) -> u64 {
        // An odd factor: no two offsets give the same number.
        rapidhash_v3_seeded(body, &self.0) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Encodes buckets into blocks, which are appended to a file.
#[derive(Debug)]
pub(crate) struct BlockEncoder {
    seal: Seal,
    /// The place in the file of the first byte of `bytes`.
    offset: u64,
    bytes: Vec<u8>,
    stamp: Stamp,
    /// The place in `bytes` of the block that is not ended.
    block: Option<usize>,
    group: Option<Group>,
    buckets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    shard: usize,
    kind: u8,
    /// The place of its count in `bytes`.
    count_at: usize,
    count: u16,
}

impl BlockEncoder {
    /// Returns an encoder of the blocks after this header, all of which have this time.
    pub(crate) fn new(header: &Header, stamp: Stamp) -> Self {
        let (seal, offset, bytes) = (Seal::of(header), HEADER_LEN as u64, Vec::new());
        Self { seal, offset, bytes, stamp, block: None, group: None, buckets: 0 }
    }

    /// Sets the time of the blocks that follow.
    pub(crate) fn set_time(&mut self, stamp: Stamp) {
        self.end_block();
        self.stamp = stamp;
    }

    /// Returns the number of bytes that were encoded and not taken.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of buckets that were encoded since the last call.
    pub(crate) fn take_buckets(&mut self) -> u64 {
        self.end_group();
        std::mem::take(&mut self.buckets)
    }

    /// Adds a bucket.
    #[inline]
    pub(crate) fn bucket<B: JournalState>(&mut self, shard: usize, tag: u64, state: &B) {
        self.count_in_group(shard, B::KIND);
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        state.encode(self.stamp.clock, &mut self.bytes);
        self.end_long_block();
    }

    /// Adds that a bucket was removed.
    pub(crate) fn removed<B: JournalState>(&mut self, shard: usize, tag: u64) {
        self.count_in_group(shard, B::KIND | REMOVED);
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        self.end_long_block();
    }

    /// Adds the [numbers of limits](super::numbers).
    pub(crate) fn numbers(&mut self, numbers: &[u8]) {
        self.end_block();
        self.begin_block(NUMBERS);
        self.bytes.extend_from_slice(numbers);
        self.end_block();
    }

    /// Adds a delay that gatekeepers were told.
    pub(crate) fn delay(&mut self, delay: &PublishedDelay<'_>) {
        let PublishedDelay { domain, identifier, until_millis } = *delay;
        self.end_group();
        self.open_block(DELAYS);
        self.bytes.extend_from_slice(&until_millis.to_le_bytes());
        for part in [domain, identifier] {
            put_varint(part.len() as u64, &mut self.bytes);
            self.bytes.extend_from_slice(part);
        }
        self.end_long_block();
    }

    /// Adds the last block of a file.
    pub(crate) fn end(&mut self) {
        self.end_block();
        self.begin_block(END);
        self.end_block();
    }

    /// Ends the last block, and passes all bytes to `write`. They are dropped afterwards, whether they were written or
    /// not: whoever could not append them must not append to this file again.
    pub(crate) fn take<T>(&mut self, write: impl FnOnce(&[u8]) -> T) -> T {
        self.end_block();
        let written = write(&self.bytes);
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        written
    }

    #[inline]
    fn count_in_group(&mut self, shard: usize, kind: u8) {
        match &mut self.group {
            Some(group) if group.shard == shard && group.kind == kind && group.count < u16::MAX => {
                group.count += 1;
            }
            _ => self.begin_group(shard, kind),
        }
    }

    #[cold]
    fn begin_group(&mut self, shard: usize, kind: u8) {
        self.end_group();
        self.open_block(BUCKETS);
        put_varint(shard as u64, &mut self.bytes);
        self.bytes.push(kind);
        self.group = Some(Group { shard, kind, count_at: self.bytes.len(), count: 1 });
        self.bytes.extend_from_slice(&[0; 2]);
    }

    fn end_group(&mut self) {
        if let Some(Group { count_at, count, .. }) = self.group.take() {
            self.bytes[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
            self.buckets += u64::from(count);
        }
    }

    /// Goes on with the last block if it is of this kind, or begins another one.
    fn open_block(&mut self, kind: u8) {
        if self.block.is_none_or(|start| self.bytes[start + BLOCK_HEAD] != kind) {
            self.end_block();
            self.begin_block(kind);
        }
    }

    fn begin_block(&mut self, kind: u8) {
        self.block = Some(self.bytes.len());
        self.bytes.extend_from_slice(&[0; BLOCK_HEAD]);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&self.stamp.clock.as_nanos().to_le_bytes());
        self.bytes.extend_from_slice(&self.stamp.boot.to_le_bytes());
    }

    #[inline]
    fn end_long_block(&mut self) {
        if self.block.is_some_and(|start| self.bytes.len() - start >= BLOCK_TARGET) {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        self.end_group();
        let Some(start) = self.block.take() else { return };
        let (head, body) = self.bytes[start..].split_at_mut(BLOCK_HEAD);
        let checksum = self.seal.checksum(body, self.offset + start as u64);
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// A block whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) stamp: Stamp,
    /// True for the last block of a file that was completed.
    pub(crate) is_end: bool,
    /// The numbers of limits, if the block has them.
    pub(crate) numbers: Option<&'a [u8]>,
    groups: &'a [u8],
    delays: &'a [u8],
}

/// The error of bytes that are not a block of this file at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a block is damaged")]
pub(crate) struct BadBlock;

/// Gets the buckets and delays of blocks, one after another.
pub(crate) trait BucketVisitor {
    /// Takes the state that a bucket got.
    fn bucket(&mut self, shard: usize, tag: u64, state: AnyState);

    /// Removes a bucket of this [kind](JournalState::KIND).
    fn removed(&mut self, shard: usize, tag: u64, kind: u8);

    /// Takes a delay that was written at this time.
    fn delay(&mut self, delay: &PublishedDelay<'_>, written_at: Timestamp);
}

/// Returns the block at the front of `input`, which is at this place of the file, and its length; or the number of
/// bytes that it needs, if they have not all arrived.
pub(crate) fn decode_block<'a>(
    input: &'a [u8],
    seal: &Seal,
    offset: u64,
) -> Result<Result<(Block<'a>, usize), usize>, BadBlock> {
    let Some((head, rest)) = input.split_first_chunk::<BLOCK_HEAD>() else { return Ok(Err(BLOCK_HEAD)) };
    let mut head = Input(head);
    let len = head.array().map(u32::from_le_bytes).and_then(|len| usize::try_from(len).ok());
    let (Some(len), Some(checksum)) = (len, head.fixed64()) else { return Err(BadBlock) };
    // Before memory is taken for it.
    if !(BODY_HEAD..=BODY_MAX).contains(&len) {
        return Err(BadBlock);
    }
    let Some(body) = rest.get(..len) else { return Ok(Err(BLOCK_HEAD + len)) };
    // A fuzzer would not get past it.
    if !cfg!(fuzzing) && seal.checksum(body, offset) != checksum {
        return Err(BadBlock);
    }
    let block = Block::decode(body).ok_or(BadBlock)?;
    Ok(Ok((block, BLOCK_HEAD + len)))
}

impl<'a> Block<'a> {
    /// Returns the block in these bytes, which [`decode_block`] has found.
    pub(crate) fn of_checked(bytes: &'a [u8]) -> Option<Self> {
        Self::decode(bytes.get(BLOCK_HEAD..)?)
    }

    fn decode(body: &'a [u8]) -> Option<Self> {
        let mut input = Input(body);
        let kind = input.byte()?;
        let stamp = Stamp { clock: Timestamp::from_nanos(input.fixed64()?), boot: input.fixed64()? };
        let mut block = Self { stamp, is_end: false, numbers: None, groups: &[], delays: &[] };
        match kind {
            BUCKETS => block.groups = input.0,
            END if input.is_empty() => block.is_end = true,
            NUMBERS => block.numbers = Some(input.0),
            DELAYS => block.delays = input.0,
            _ => return None,
        }
        Some(block)
    }

    /// Passes all buckets and delays to a visitor.
    pub(crate) fn visit(&self, visitor: &mut impl BucketVisitor) -> Result<(), BadBlock> {
        let mut input = Input(self.groups);
        while !input.is_empty() {
            self.visit_group(&mut input, visitor).ok_or(BadBlock)?;
        }
        let mut input = Input(self.delays);
        while !input.is_empty() {
            let delay = take_delay(&mut input).ok_or(BadBlock)?;
            visitor.delay(&delay, self.stamp.clock);
        }
        Ok(())
    }

    fn visit_group(&self, input: &mut Input<'_>, visitor: &mut impl BucketVisitor) -> Option<()> {
        let (shard, kind) = (input.count()?, input.byte()?);
        let count = u16::from_le_bytes(input.array()?);
        with_kind!(kind & !REMOVED, |B| {
            for _ in 0..count {
                let tag = input.fixed64()?;
                if kind & REMOVED == 0 {
                    visitor.bucket(shard, tag, B::decode(self.stamp.clock, input)?.into());
                } else {
                    visitor.removed(shard, tag, B::KIND);
                }
            }
        })
    }
}

fn take_delay<'a>(input: &mut Input<'a>) -> Option<PublishedDelay<'a>> {
    let (until_millis, domain, identifier) = (input.fixed64()?, input.prefixed()?, input.prefixed()?);
    // Between the two there is a NUL wherever they are kept.
    (!domain.contains(&0)).then_some(PublishedDelay { domain, identifier, until_millis })
}
