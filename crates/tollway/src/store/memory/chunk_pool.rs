//! The memory of large tables: chunks of a few kilobytes, cut from large pages, which all tables of the process share.
//!
//! A table that grows takes one more chunk, and one that shrinks gives chunks back, which any other table can take. So
//! tables lie side by side without gaps, and pages of two megabytes are filled before the next one is taken. With small
//! pages the processor spends as long on finding a page (a TLB miss) as on the bucket itself.
//!
//! Chunks that were given back stay in the pool: the process can use them again, the system does not get them back. The
//! pool is as large as the tables of all stores together have been at their largest.

use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;

/// The size of a chunk. Each table has half a chunk to spare, on average.
pub(super) const CHUNK_BYTES: usize = 8 << 10;
const CHUNK_WORDS: usize = CHUNK_BYTES / 8;

/// The memory that the pool takes from the system at a time: one large page.
const EXTENT_BYTES: usize = 2 << 20;

/// A chunk of zeros, which lasts as long as the process.
pub(super) type PooledChunk = &'static mut [u64; CHUNK_WORDS];

/// The chunks that no table uses. All of them are zeros.
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), extents: 0 });

struct Pool {
    free: Vec<PooledChunk>,
    extents: usize,
}

/// Returns a chunk of zeros.
pub(super) fn take() -> PooledChunk {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(chunk) = pool.free.pop() {
            return chunk;
        }
        pool.grow();
    }
}

/// Gives back a chunk.
pub(super) fn give_back(chunk: PooledChunk) {
    chunk.fill(0);
    POOL.lock().unwrap_or_else(PoisonError::into_inner).free.push(chunk);
}

impl Pool {
    fn grow(&mut self) {
        // The first extent has small pages, of which a process with few buckets uses only some.
        let (chunks, _) = extent(self.extents > 0).as_chunks_mut::<CHUNK_WORDS>();
        // In the order of their addresses, the lowest first.
        self.free.extend(chunks.iter_mut().rev());
        self.extents += 1;
    }
}

/// Takes memory from the system, for good.
fn extent(large_pages: bool) -> &'static mut [u64] {
    let Ok(map) = MmapMut::map_anon(EXTENT_BYTES) else {
        return vec![0; EXTENT_BYTES / 8].leak();
    };
    #[cfg(target_os = "linux")]
    if large_pages {
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = large_pages;
    bytemuck::cast_slice_mut(&mut Box::leak(Box::new(map))[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_zeros_and_never_the_same_twice() {
        let mut chunks: Vec<_> = (0..1_000_u64).map(|number| (number, take())).collect();
        for (number, chunk) in &mut chunks {
            assert!(chunk.iter().all(|word| *word == 0));
            chunk.fill(*number + 1);
        }
        for (number, chunk) in chunks {
            assert!(chunk.iter().all(|word| *word == number + 1));
            give_back(chunk);
        }
        assert!(take().iter().all(|word| *word == 0));
    }
}
