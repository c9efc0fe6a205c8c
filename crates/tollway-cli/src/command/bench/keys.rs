//! Which key each request is about: `ws ip={}` with a number in it, always as wide as the others.

use std::str::FromStr;

use super::zipf::Zipf;

/// A small, fast generator of numbers, the same in every run (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(super) const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0, and below 1.
    #[inline]
    pub(super) fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `bound`.
    #[inline]
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }
}

/// Draws the number of the next key.
#[derive(Clone, Debug)]
pub(super) enum Draw {
    /// Every key as often as any other.
    Uniform { dice: Dice, keys: u64 },
    /// The n-th as often as 1 / n^exponent.
    Zipf { dice: Dice, zipf: Zipf },
    /// One after the other.
    InTurn { next: u64, keys: u64 },
}

impl Draw {
    /// Of `keys` keys; an exponent of 0 makes all alike.
    pub(super) fn new(keys: u64, exponent: f64) -> Self {
        let dice = Dice::new(0x7011_6a7e);
        if exponent == 0.0 {
            Self::Uniform { dice, keys }
        } else {
            Self::Zipf { dice, zipf: Zipf::new(keys, exponent) }
        }
    }

    /// Every key once, and then again.
    pub(super) const fn in_turn(keys: u64) -> Self {
        Self::InTurn { next: 0, keys }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        match self {
            Self::Uniform { dice, keys } => dice.below(*keys),
            Self::Zipf { dice, zipf } => zipf.draw(dice),
            Self::InTurn { next, keys } => {
                let key = *next;
                *next = (key + 1) % *keys;
                key
            }
        }
    }
}

/// A key with a place for the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFormat {
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

impl KeyFormat {
    /// The key with these digits in it.
    pub(super) fn with(&self, digits: &str) -> String {
        format!("{}{digits}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_draws_are_even_and_in_range() {
        let mut draw = Draw::new(10, 0.0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(draw.next()).unwrap()] += 1;
        }
        // Six standard deviations of a count around 10,000.
        assert!(counts.iter().all(|count| (9_430..=10_570).contains(count)), "{counts:?}");
    }

    #[test]
    fn in_turn_is_every_key_once() {
        let mut draw = Draw::in_turn(3);
        assert_eq!([(); 7].map(|()| draw.next()), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_key_has_one_place_for_its_number() {
        let format: KeyFormat = "ws ip=10.{}.1".parse().unwrap();
        assert_eq!(format.with("007"), "ws ip=10.007.1");
        for wrong in ["", "key", "{}{}", "{ }"] {
            assert!(wrong.parse::<KeyFormat>().is_err(), "{wrong}");
        }
    }
}
