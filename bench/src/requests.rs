//! Streams of ids, as they would arrive from a socket: text, one after the other in memory.

/// A small generator, the same in every run.
pub struct Dice(u64);

impl Dice {
    /// Starts anywhere.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How often which id comes.
#[derive(Clone, Copy, Debug)]
pub enum Popularity {
    /// Every id as often as any other.
    Uniform,
    /// The n-th most popular as often as 1 / n^exponent.
    Zipf(f64),
    /// Always the same.
    One,
}

/// `count` requests by some of `ids` ids.
pub fn stream(popularity: Popularity, ids: usize, count: usize, seed: u64) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let ladder = match popularity {
        Popularity::Zipf(exponent) => zipf_ladder(ids, exponent),
        _ => Vec::new(),
    };
    let pick = |dice: &mut Dice| match popularity {
        Popularity::Uniform => (dice.roll() % ids as u64) as usize,
        Popularity::Zipf(_) => {
            let share = dice.share();
            ladder.partition_point(|step| *step < share).min(ids - 1)
        }
        Popularity::One => 0,
    };
    (0..count).map(|_| id(pick(&mut dice))).collect()
}

/// The text of an id, with popular ones not next to each other.
pub fn id(number: usize) -> String {
    format!("user-{:010}", (number as u64).wrapping_mul(0x9e37_79b1) % 10_000_000_000)
}

/// For each id, the share of requests that it and the more popular ones make.
fn zipf_ladder(ids: usize, exponent: f64) -> Vec<f64> {
    let weights = (1..=ids).map(|rank| (rank as f64).powf(-exponent));
    let total: f64 = weights.clone().sum();
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect()
}
