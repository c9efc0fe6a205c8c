//! Generates streams of ids for benchmarks, written as text into a small buffer as a socket would deliver them.
//!
//! Only the numbers of the ids are prepared in advance, four bytes each, so that reading the stream does not push the
//! buckets of a contestant out of the cache.

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

/// Draws streams of ids, each different from the one before.
pub struct IdDraw {
    ids: u32,
    popularity: Popularity,
    /// The cumulative distribution of a Zipf law, and empty for the others.
    cumulative: Vec<f64>,
    random: SplitMix64,
}

impl IdDraw {
    /// Returns a source that draws from `ids` ids.
    pub fn new(popularity: Popularity, ids: u32, seed: u64) -> Self {
        let cumulative = match popularity {
            Popularity::Zipf(exponent) => zipf_cumulative(ids, exponent),
            Popularity::Uniform | Popularity::One => Vec::new(),
        };
        Self { ids, popularity, cumulative, random: SplitMix64::new(seed) }
    }

    /// Returns the ids of the next `count` requests.
    pub fn stream(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.draw()).collect()
    }

    fn draw(&mut self) -> u32 {
        match self.popularity {
            Popularity::Uniform => {
                (self.random.next_u64() % u64::from(self.ids)).try_into().unwrap_or(self.ids)
            }
            Popularity::Zipf(_) => {
                let share = self.random.next_fraction();
                let rank = self.cumulative.partition_point(|step| *step < share);
                // Rounding leaves the last step a little below 1.
                u32::try_from(rank).unwrap_or(self.ids).min(self.ids - 1)
            }
            Popularity::One => 0,
        }
    }
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

    /// Writes these ids into the buffer, in place of the previous ones: `user-` and ten digits.
    ///
    /// It takes a few nanoseconds an id. While one thread fills its buffer another has the buckets to itself, so a slow
    /// way to write ids would hide what the threads cost each other.
    pub fn fill(&mut self, numbers: &[u32]) -> &[String] {
        for (id, number) in self.ids.iter_mut().zip(numbers) {
            let (mut text, mut rest) = (*b"user-0000000000", *number);
            for digit in text.iter_mut().skip("user-".len()).rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            id.clear();
            id.push_str(std::str::from_utf8(&text).unwrap_or_default());
        }
        &self.ids[..numbers.len()]
    }
}

impl Default for IdBuffer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_padded_numbers() {
        assert_eq!(IdBuffer::new().fill(&[42, u32::MAX]), ["user-0000000042", "user-4294967295"]);
    }

    #[test]
    fn a_second_stream_is_not_the_first() {
        let mut source = IdDraw::new(Popularity::Uniform, 1_000_000, 1);
        assert_ne!(source.stream(100), source.stream(100));
    }

    #[test]
    fn the_first_id_of_a_zipf_law_is_the_most_popular() {
        let stream = IdDraw::new(Popularity::Zipf(0.99), 1_000, 1).stream(10_000);
        let count = |id| stream.iter().filter(|drawn| **drawn == id).count();
        assert!(count(0) > count(1) && count(1) > count(100) && stream.iter().all(|id| *id < 1_000));
    }
}
