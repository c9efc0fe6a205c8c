//! The memory of large tables: chunks of a few kilobytes, cut from large pages, which all tables of the process share.
//!
//! A table that grows takes one more chunk, and one that shrinks gives chunks back, which any other table can take. So
//! tables lie side by side without gaps, and pages of two megabytes are filled before the next one is taken. With small
//! pages the processor spends as long on finding a page (a TLB miss) as on the bucket itself.
//!
//! Chunks that were given back stay in the pool: the process can use them again, the system does not get them back. The
//! pool is as large as the tables of all stores together have been at their largest.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

/// The size of a chunk. Each table has half a chunk to spare, on average.
pub(super) const CHUNK_BYTES: usize = 8 << 10;
const CHUNK_WORDS: usize = CHUNK_BYTES / 8;

/// The memory that the pool takes from the system at a time: one large page.
const EXTENT_BYTES: usize = 2 << 20;
const SMALL_PAGE_WORDS: usize = 4096 / 8;

/// A chunk of zeros, which lasts as long as the process.
pub(super) type PooledChunk = &'static mut [u64; CHUNK_WORDS];

/// The number of free chunks below which the next extent is prepared: one extent and a half. A store that takes new ids
/// as fast as it can uses them up in some 30 ms, which is longer than the system takes for a large page.
const FREE_MIN: usize = 384;

/// The chunks that no table uses. All of them are zeros.
static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), extents: 0, preparing: false });

struct Pool {
    free: Vec<PooledChunk>,
    extents: usize,
    /// True while a thread prepares an extent.
    preparing: bool,
}

/// Returns a chunk of zeros.
pub(super) fn take() -> PooledChunk {
    let mut pool = lock();
    if pool.free.len() < FREE_MIN && pool.extents > 0 && !pool.preparing {
        // The first use of a large page can take the system ten milliseconds: it looks for one, and clears it. So this
        // is done by a thread of its own, before the page is needed.
        pool.preparing = std::thread::Builder::new().name("tollway-pages".to_owned()).spawn(prepare).is_ok();
    }
    loop {
        if let Some(chunk) = pool.free.pop() {
            return chunk;
        }
        // Small pages, because nobody may wait here for a large one. Of those of the first extent, a process with few
        // buckets uses only some.
        let chunks = chunks(extent(false));
        pool.add(chunks);
    }
}

/// Gives back a chunk.
pub(super) fn give_back(chunk: PooledChunk) {
    chunk.fill(0);
    lock().free.push(chunk);
}

/// Adds an extent to the pool whose pages are in memory.
fn prepare() {
    let memory = extent(true);
    for page in memory.chunks_mut(SMALL_PAGE_WORDS) {
        page[0] = 0;
    }
    let mut pool = lock();
    pool.add(chunks(memory));
    pool.preparing = false;
}

fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn chunks(memory: &'static mut [u64]) -> impl Iterator<Item = PooledChunk> {
    // They are taken from the end: the lowest address comes first.
    memory.as_chunks_mut::<CHUNK_WORDS>().0.iter_mut().rev()
}

impl Pool {
    /// Adds the chunks of an extent. They are used after those that are free already.
    fn add(&mut self, chunks: impl Iterator<Item = PooledChunk>) {
        self.free.splice(..0, chunks);
        self.extents += 1;
    }
}

/// Takes memory from the system, for good.
fn extent(large_pages: bool) -> &'static mut [u64] {
    let Ok(map) = MmapMut::map_anon(EXTENT_BYTES) else {
        return vec![0; EXTENT_BYTES / 8].leak();
    };
    // Miri has no pages to advise about.
    #[cfg(all(target_os = "linux", not(miri)))]
    if large_pages {
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = large_pages;
    bytemuck::cast_slice_mut(&mut Box::leak(Box::new(map))[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_zeros_and_never_the_same_twice() {
        let count = if cfg!(miri) { 10 } else { 1_000 };
        let mut chunks: Vec<_> = (0..count).map(|number| (number, take())).collect();
        for (number, chunk) in &mut chunks {
            assert!(chunk.iter().all(|word| *word == 0));
            chunk.fill(*number + 1_u64);
        }
        for (number, chunk) in chunks {
            assert!(chunk.iter().all(|word| *word == number + 1));
            give_back(chunk);
        }
        assert!(take().iter().all(|word| *word == 0));
    }
}
