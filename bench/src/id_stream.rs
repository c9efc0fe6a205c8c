//! Generates streams of ids for benchmarks, written as text into a small buffer as a socket would deliver them.
//!
//! Only the numbers of the ids are prepared in advance, four bytes each, so that reading the stream does not push the
//! buckets of a contestant out of the cache.

use std::fmt::Write;

/// A random generator that gives the same numbers in every run.
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to 1.
    fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The distribution that ids are drawn from.
#[derive(Clone, Copy, Debug)]
pub enum Popularity {
    /// Every id is equally likely.
    Uniform,
    /// The n-th most popular id is drawn in proportion to 1 / n^exponent.
    Zipf(f64),
    /// There is only one id.
    One,
}

/// Returns the ids of `count` requests, drawn from `ids` ids.
pub fn stream(popularity: Popularity, ids: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    let cumulative = match popularity {
        Popularity::Zipf(exponent) => zipf_cumulative(ids, exponent),
        Popularity::Uniform | Popularity::One => Vec::new(),
    };
    let mut pick = || match popularity {
        Popularity::Uniform => (random.next_u64() % u64::from(ids)).try_into().unwrap_or(ids),
        Popularity::Zipf(_) => {
            let share = random.next_fraction();
            cumulative.partition_point(|step| *step < share).try_into().unwrap_or(ids)
        }
        Popularity::One => 0,
    };
    (0..count).map(|_| pick()).collect()
}

/// Returns the cumulative distribution: for each id, the fraction of requests that it and the more popular ids make.
fn zipf_cumulative(ids: u32, exponent: f64) -> Vec<f64> {
    let weights = (1..=ids).map(|rank| f64::from(rank).powf(-exponent));
    let total: f64 = weights.clone().sum();
    let step = |sum: &mut f64, weight: f64| {
        *sum += weight / total;
        Some(*sum)
    };
    weights.scan(0.0, step).collect()
}

/// A buffer that holds ids as text, as many as one read from a socket might deliver. Filling it is not measured.
pub struct IdBuffer {
    ids: Vec<String>,
}

impl IdBuffer {
    /// The number of ids in the buffer: few enough to stay in the cache until they are used.
    pub const SIZE: usize = 2_048;

    /// Returns an empty buffer.
    pub fn new() -> Self {
        Self { ids: vec![String::with_capacity(16); Self::SIZE] }
    }

    /// Writes these ids into the buffer, in place of the previous ones.
    pub fn fill(&mut self, numbers: &[u32]) -> &[String] {
        for (id, number) in self.ids.iter_mut().zip(numbers) {
            id.clear();
            write!(id, "user-{number:010}").unwrap_or_default();
        }
        &self.ids[..numbers.len()]
    }
}

impl Default for IdBuffer {
    fn default() -> Self {
        Self::new()
    }
}
