//! The keys that requests are about: how they are written, and in which order they are used.

use std::str::FromStr;

use crate::zipf::Zipf;

/// A small, fast generator of random numbers, which are the same in every run (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to below 1.
    #[inline]
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`.
    #[inline]
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The order in which keys are used. It is the same in every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOrder {
    /// At random, each key as often as any other.
    Uniform,
    /// At random, the n-th key as often as 1 / n^exponent.
    Zipf(f64),
    /// One after the other.
    Sequential,
}

/// Chooses the key of each request.
#[derive(Clone, Debug)]
pub(crate) enum KeyChooser {
    Uniform { random: Random, keys: u64 },
    Zipf { random: Random, zipf: Zipf },
    Sequential { next: u64, keys: u64 },
}

impl KeyChooser {
    pub(crate) fn new(order: KeyOrder, keys: u64) -> Self {
        let random = Random::new(0x7011_6a7e);
        match order {
            KeyOrder::Uniform => Self::Uniform { random, keys },
            KeyOrder::Zipf(exponent) => Self::Zipf { random, zipf: Zipf::new(keys, exponent) },
            KeyOrder::Sequential => Self::Sequential { next: 0, keys },
        }
    }

    /// Returns the number of the next key, from 0.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Uniform { random, keys } => random.below(*keys),
            Self::Zipf { random, zipf } => zipf.draw(random),
            Self::Sequential { next, keys } => {
                let key = *next;
                *next = (key + 1) % *keys;
                key
            }
        }
    }
}

/// The different keys of a run: numbers of one width, each in the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    /// The text around the number.
    pub format: KeyFormat,
    /// The number of different keys.
    pub count: u64,
}

impl KeySpace {
    /// Returns the key whose digits are all `digit`. It is as wide as every other.
    pub fn all(&self, digit: char) -> String {
        let width = self.count.saturating_sub(1).max(1).ilog10() as usize + 1;
        let digits: String = std::iter::repeat_n(digit, width).collect();
        format!("{}{digits}{}", self.format.before, self.format.after)
    }
}

/// The text of a key, in which `{}` stands for its number: `ws ip={}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    before: String,
    after: String,
}

impl FromStr for KeyFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split("{}").collect::<Vec<_>>()[..] {
            [before, after] => Ok(Self { before: before.to_owned(), after: after.to_owned() }),
            _ => Err("must have one {} for the number of the key, such as \"k{}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_keys_are_even_and_in_range() {
        let mut chooser = KeyChooser::new(KeyOrder::Uniform, 10);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(chooser.next()).unwrap()] += 1;
        }
        // Six standard deviations of a count around 10,000.
        assert!(counts.iter().all(|count| (9_430..=10_570).contains(count)), "{counts:?}");
    }

    #[test]
    fn sequential_is_every_key_once() {
        let mut chooser = KeyChooser::new(KeyOrder::Sequential, 3);
        assert_eq!([(); 7].map(|()| chooser.next()), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_key_has_one_place_for_its_number() {
        for (count, key) in [(1, "ws ip=10.7.1"), (100, "ws ip=10.77.1"), (101, "ws ip=10.777.1")] {
            let format = "ws ip=10.{}.1".parse().unwrap();
            assert_eq!(KeySpace { format, count }.all('7'), key);
        }
        for wrong in ["", "key", "{}{}", "{ }"] {
            assert!(wrong.parse::<KeyFormat>().is_err(), "{wrong}");
        }
    }
}
