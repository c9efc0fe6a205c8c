//! Draws keys by Zipf's law, each in constant time and without memory, however many keys there are.
//!
//! Rejection-inversion (Hörmann and Derflinger, 1996): a point is drawn below the smooth curve `x^-s`, whose area can
//! be inverted, and rounded to a whole rank. The few points that are below the curve and not below the staircase of
//! the ranks are drawn again, fewer than one in four whatever the exponent.

use crate::keys::Random;

/// A distribution in which the n-th of `keys` keys comes as often as 1 / n^exponent.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    keys: f64,
    exponent: f64,
    /// The area up to half before the first rank, with the whole of its step, and up to half after the last.
    area_low: f64,
    area_high: f64,
    /// A point this close below its rank is below the step too.
    sure: f64,
}

impl Zipf {
    pub(crate) fn new(keys: u64, exponent: f64) -> Self {
        let mut zipf = Self { keys: keys as f64, exponent, area_low: 0.0, area_high: 0.0, sure: 0.0 };
        zipf.area_low = zipf.area(1.5) - 1.0;
        zipf.area_high = zipf.area(zipf.keys + 0.5);
        zipf.sure = 2.0 - zipf.area_to(zipf.area(2.5) - 2_f64.powf(-exponent));
        zipf
    }

    /// Returns the number of a key, from 0; 0 is the most popular.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_high + random.fraction() * (self.area_low - self.area_high);
            let x = self.area_to(area);
            let rank = x.round().clamp(1.0, self.keys);
            if rank - x <= self.sure || area >= self.area(rank + 0.5) - rank.powf(-self.exponent) {
                return whole(rank) - 1;
            }
        }
    }

    /// Returns the area below the curve from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { x.ln() } else { (power * x.ln()).exp_m1() / power }
    }

    /// Returns the `x` up to which the area is `area`.
    #[inline]
    fn area_to(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power == 0.0 { area.exp() } else { ((power * area).ln_1p() / power).exp() }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is whole and from 1 to keys"
)]
#[inline]
fn whole(rank: f64) -> u64 {
    rank as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        const DRAWS: u32 = 400_000;
        for (keys, exponent) in [(1, 1.0), (2, 0.5), (100, 0.2), (1_000, 0.99), (1_000, 1.0), (50, 2.5)] {
            let zipf = Zipf::new(keys, exponent);
            let mut random = Random::new(7);
            let mut counts = vec![0_u32; usize::try_from(keys).unwrap()];
            for _ in 0..DRAWS {
                counts[usize::try_from(zipf.draw(&mut random)).unwrap()] += 1;
            }
            let weight = |rank: usize| (rank as f64).powf(-exponent);
            let total: f64 = (1..=counts.len()).map(weight).sum();
            for (index, count) in counts.iter().enumerate() {
                let share = weight(index + 1) / total;
                let expected = share * f64::from(DRAWS);
                let deviation = (expected * (1.0 - share)).sqrt();
                let off = (f64::from(*count) - expected).abs();
                assert!(off <= 5.0 * deviation + 1.0, "{keys}^{exponent} #{index}: {count}, not {expected}");
            }
        }
    }

    #[test]
    fn a_great_many_keys_are_all_within_reach() {
        let zipf = Zipf::new(1_000_000_000, 0.9);
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..100_000).map(|_| zipf.draw(&mut random)).collect();
        assert!(drawn.iter().all(|key| *key < 1_000_000_000));
        assert!(drawn.contains(&0) && drawn.iter().any(|key| *key > 500_000_000));
    }
}
