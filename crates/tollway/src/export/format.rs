//! The bytes of an export: a header, blocks with a length and a checksum each, and a block that ends it.
//!
//! ```text
//! file    header, block, block, …, end
//! header  "TOLLWAYX", version u32, has a key u8, shard bits u8, two zeros, key 2 × u64, lost epoch u64, lost at u64,
//!         created u64, number of the file u64, checksum u64
//! block   length u32, checksum u64, body
//! body    kind u8, clock of the source u64, wall clock u64, and the buckets:
//!           kind 1   shard (varint), kind of bucket u8, tag u64, state
//!           kind 2   length of the name (varint), name, kind of bucket u8, state
//! end     kind 3, number of all buckets u64, start of the next page u64, or 0
//! ```
//!
//! Numbers of a fixed length are little-endian, and times are nanoseconds since 1970. States are written as in a
//! journal, with times as differences to the clock of their block. The checksum depends on the number of the file and
//! on the place in it, so that a block that was moved, or is from another file, is not accepted.

use std::io::{Read, Write};

use tollway_core::{LostBuckets, Timestamp};

use super::{Batch, ExportError, ExportHeader, ExportedBucket, NamedState};
use crate::hash::HashKey;
use crate::journal::{HashIdentity, Input, JournalState, Seal, put_varint, with_kind, with_state};

const MAGIC: [u8; 8] = *b"TOLLWAYX";
/// The version of the format, which is also that of the states and of the hash.
pub(super) const VERSION: u32 = 1;
const HEADER_LEN: usize = 72;
const CHECKED_LEN: usize = HEADER_LEN - 8;
const BLOCK_HEAD: usize = 12;

/// The length from which a block is ended.
const BLOCK_TARGET: usize = 64 * 1024;
/// The longest body of a block that is read: the longest log that a journal writes fits into it.
const BODY_MAX: usize = 64 * 1024 * 1024;
/// The longest name: a long id is a digest, and every byte of a short one may be escaped.
const NAME_MAX: usize = 4 * 1024;

const HASHED: u8 = 1;
const NAMED: u8 = 2;
const END: u8 = 3;

/// Writes an export. It is complete only after [`finish`](Self::finish).
#[derive(Debug)]
pub struct ExportWriter<W> {
    out: W,
    seal: Seal,
    offset: u64,
    buckets: u64,
    block: Vec<u8>,
}

impl<W: Write> ExportWriter<W> {
    /// Begins an export with this header.
    pub fn new(mut out: W, header: &ExportHeader) -> Result<Self, ExportError> {
        let [file_id, _] = HashKey::random_seeds();
        out.write_all(&encode_header(header, file_id))?;
        let (seal, offset) = (Seal::of_file(file_id), HEADER_LEN as u64);
        Ok(Self { out, seal, offset, buckets: 0, block: Vec::new() })
    }

    /// Appends the buckets of a batch.
    pub fn write(&mut self, batch: &Batch) -> Result<(), ExportError> {
        let mut kind = None;
        for bucket in &batch.buckets {
            let of_bucket = match bucket {
                ExportedBucket::Hashed { .. } => HASHED,
                ExportedBucket::Named { .. } => NAMED,
            };
            if kind != Some(of_bucket) || self.block.len() >= BLOCK_TARGET {
                self.end_block()?;
                self.begin_block(of_bucket, batch);
                kind = Some(of_bucket);
            }
            self.put(bucket, batch.clock);
            self.buckets += 1;
        }
        self.end_block()
    }

    /// Completes the export, and returns the number of its buckets and what it was written to.
    pub fn finish(self) -> Result<(u64, W), ExportError> {
        self.finish_page(0)
    }

    /// Completes an export that is one page of a longer one. The next page begins at `next`, or there is none at 0.
    pub(crate) fn finish_page(mut self, next: u64) -> Result<(u64, W), ExportError> {
        self.block.clear();
        self.block.extend_from_slice(&[0; BLOCK_HEAD]);
        self.block.push(END);
        self.block.extend_from_slice(&self.buckets.to_le_bytes());
        self.block.extend_from_slice(&next.to_le_bytes());
        self.end_block()?;
        self.out.flush()?;
        Ok((self.buckets, self.out))
    }

    fn begin_block(&mut self, kind: u8, batch: &Batch) {
        self.block.extend_from_slice(&[0; BLOCK_HEAD]);
        self.block.push(kind);
        for time in [batch.clock, batch.wall] {
            self.block.extend_from_slice(&time.as_nanos().to_le_bytes());
        }
    }

    fn put(&mut self, bucket: &ExportedBucket, base: Timestamp) {
        let out = &mut self.block;
        match bucket {
            ExportedBucket::Hashed { shard, tag, state } => {
                put_varint(*shard as u64, out);
                with_state!(state, |state| put_hashed(state, *tag, base, out));
            }
            ExportedBucket::Named { name, state } => {
                put_varint(name.len() as u64, out);
                out.extend_from_slice(name);
                state.encode(base, out);
            }
        }
    }

    fn end_block(&mut self) -> Result<(), ExportError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let (head, body) = self.block.split_at_mut(BLOCK_HEAD);
        let checksum = self.seal.checksum(body, self.offset);
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&self.block)?;
        self.offset += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

fn put_hashed<B: JournalState>(state: &B, tag: u64, base: Timestamp, out: &mut Vec<u8>) {
    out.push(B::KIND);
    out.extend_from_slice(&tag.to_le_bytes());
    state.encode(base, out);
}

/// Reads an export, batch by batch.
#[derive(Debug)]
pub struct ExportReader<R> {
    input: R,
    header: ExportHeader,
    seal: Seal,
    offset: u64,
    buckets: u64,
    next_page: Option<u64>,
    block: Vec<u8>,
}

impl<R: Read> ExportReader<R> {
    /// Reads the header.
    pub fn open(mut input: R) -> Result<Self, ExportError> {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        input.by_ref().take(HEADER_LEN as u64).read_to_end(&mut bytes)?;
        let (header, file_id) = decode_header(&bytes)?;
        let (seal, offset) = (Seal::of_file(file_id), HEADER_LEN as u64);
        Ok(Self { input, header, seal, offset, buckets: 0, next_page: None, block: Vec::new() })
    }

    /// Returns the header.
    pub const fn header(&self) -> &ExportHeader {
        &self.header
    }

    /// Returns the number of bytes that were read and found to be good.
    pub const fn good_bytes(&self) -> u64 {
        self.offset
    }

    /// Returns the start of the page after this one, once the last batch was read; `None` if there is none.
    pub const fn next_page(&self) -> Option<u64> {
        self.next_page
    }

    /// Returns the next batch, or `None` at the end of a complete export. What is behind an error is never returned.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, ExportError> {
        let offset = self.offset;
        self.read_block()?;
        match decode_body(&self.block[BLOCK_HEAD..]).ok_or(ExportError::Damaged { offset })? {
            Body::Buckets(batch) => {
                self.buckets += batch.buckets.len() as u64;
                Ok(Some(batch))
            }
            Body::End { buckets, .. } if buckets != self.buckets => Err(ExportError::Damaged { offset }),
            Body::End { next, .. } => {
                let after = self.input.by_ref().take(1).read_to_end(&mut Vec::new())?;
                if after > 0 {
                    return Err(ExportError::Damaged { offset: self.offset });
                }
                self.next_page = Some(next).filter(|next| *next > 0);
                Ok(None)
            }
        }
    }

    /// Reads a block whose checksum is right.
    fn read_block(&mut self) -> Result<(), ExportError> {
        let (offset, damaged) = (self.offset, ExportError::Damaged { offset: self.offset });
        self.block.clear();
        self.fill(BLOCK_HEAD, offset)?;
        let mut head = Input(&self.block);
        let (Some(len), Some(checksum)) = (head.array().map(u32::from_le_bytes), head.fixed64()) else {
            return Err(damaged);
        };
        let len = usize::try_from(len).ok().filter(|len| (1..=BODY_MAX).contains(len)).ok_or(damaged)?;
        self.fill(BLOCK_HEAD + len, offset)?;
        // A fuzzer would not get past it.
        if !cfg!(fuzzing) && self.seal.checksum(&self.block[BLOCK_HEAD..], offset) != checksum {
            return Err(ExportError::Damaged { offset });
        }
        self.offset += self.block.len() as u64;
        Ok(())
    }

    /// Reads until the block has so many bytes. Takes memory for what is there, not for what a length announces.
    fn fill(&mut self, len: usize, offset: u64) -> Result<(), ExportError> {
        let missing = (len - self.block.len()) as u64;
        self.input.by_ref().take(missing).read_to_end(&mut self.block)?;
        if self.block.len() < len {
            return Err(ExportError::Cut { offset: offset + self.block.len() as u64 });
        }
        Ok(())
    }
}

fn encode_header(header: &ExportHeader, file_id: u64) -> Vec<u8> {
    let ExportHeader { identity, lost, created } = header;
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let (key, shard_bits) = identity.map_or(([0; 2], 0), |identity| (identity.key, identity.shard_bits));
    bytes.extend_from_slice(&[u8::from(identity.is_some()), shard_bits, 0, 0]);
    let times = [lost.epoch, lost.at.as_nanos(), created.as_nanos()];
    for number in key.into_iter().chain(times).chain([file_id]) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&Seal::of_file(VERSION.into()).checksum(&bytes, 0).to_le_bytes());
    bytes
}

fn decode_header(bytes: &[u8]) -> Result<(ExportHeader, u64), ExportError> {
    if bytes.len() < MAGIC.len() || !bytes.starts_with(&MAGIC) {
        return Err(ExportError::Foreign);
    }
    let cut = ExportError::Cut { offset: bytes.len() as u64 };
    let mut input = Input(&bytes[MAGIC.len()..]);
    let found = u32::from_le_bytes(input.array().ok_or(cut.clone())?);
    if found != VERSION {
        return Err(ExportError::Version { found });
    }
    if bytes.len() < HEADER_LEN {
        return Err(cut);
    }
    let checksum = Seal::of_file(VERSION.into()).checksum(&bytes[..CHECKED_LEN], 0);
    decode_fields(&mut input, checksum).ok_or(ExportError::Damaged { offset: 0 })
}

fn decode_fields(input: &mut Input<'_>, checksum: u64) -> Option<(ExportHeader, u64)> {
    let [has_key, shard_bits, ..] = input.array::<4>()?;
    let key = [input.fixed64()?, input.fixed64()?];
    let lost = LostBuckets { epoch: input.fixed64()?, at: Timestamp::from_nanos(input.fixed64()?) };
    let created = Timestamp::from_nanos(input.fixed64()?);
    let file_id = input.fixed64()?;
    if input.fixed64()? != checksum || has_key > 1 || !HashIdentity::has_shards(shard_bits) {
        return None;
    }
    let identity = (has_key == 1).then_some(HashIdentity { key, shard_bits });
    Some((ExportHeader { identity, lost, created }, file_id))
}

enum Body {
    Buckets(Batch),
    End { buckets: u64, next: u64 },
}

fn decode_body(body: &[u8]) -> Option<Body> {
    let mut input = Input(body);
    let kind = input.byte()?;
    if kind == END {
        let end = Body::End { buckets: input.fixed64()?, next: input.fixed64()? };
        return input.is_empty().then_some(end);
    }
    let [clock, wall] = [input.fixed64()?, input.fixed64()?].map(Timestamp::from_nanos);
    let mut batch = Batch { clock, wall, buckets: Vec::new() };
    while !input.is_empty() {
        batch.buckets.push(match kind {
            HASHED => {
                let (shard, kind, tag) = (input.count()?, input.byte()?, input.fixed64()?);
                let state = with_kind!(kind, |B| B::decode(clock, &mut input)?.into())?;
                ExportedBucket::Hashed { shard, tag, state }
            }
            NAMED => {
                let len = input.count().filter(|len| *len <= NAME_MAX)?;
                let name = input.bytes(len)?.into();
                ExportedBucket::Named { name, state: NamedState::decode(clock, &mut input)? }
            }
            _ => return None,
        });
    }
    Some(Body::Buckets(batch))
}
