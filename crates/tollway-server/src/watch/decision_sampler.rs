//! Chooses the decisions that are counted on a busy worker, and bounds what an id used from those.
//!
//! ```text
//! decisions of one tick, 100 ms    ──> the first 4096: counted one by one
//!                                  └─> all others: each unit of cost has a chance of 1/16 to be sampled, and adds 16
//! a cost of 16 or more             ──> counted one by one, always: it would hold a sampled unit nearly every time
//! ```
//!
//! A server with an ordinary load is never sampled, so its bounds are certain. A busy one lost up to 7 % of its
//! throughput to the hash of the id and to its cell; a skipped decision takes two comparisons and a subtraction.
//!
//! Whether a unit is sampled depends on nothing that a client sends: not on its id, nor on the place in the stream. So
//! of the `m` units of an id that could be sampled, the number `s` that was is binomial with a chance of 1/16, also
//! when workers and generations are added up, and Chernoff's bounds hold for it. Keep it that way: whoever samples
//! every 16th unit, or an id that has a place more often than others, makes the bounds wrong.

use super::sketch::Bounded;

/// The number of decisions of one tick that each worker counts one by one for each list: 40,000 a second. By their
/// instructions they take about 4 ms of a second, so a higher number would be seen in the throughput of a busy server.
pub(crate) const ONE_BY_ONE: u32 = 4_096;

/// One unit in this many is sampled. It is two to the fourth, see [`DecisionSampler::draw_choices`].
const ONE_IN: u64 = 16;
/// The number of units that random bits are drawn for at once.
const CHOICES: u64 = 64;

/// The exponent of the chance that a bound is wrong, which is e^-29 for each side: 2 / e^29 is below 1e-12.
const CONFIDENCE: u64 = 29;

/// Chooses the decisions that one worker counts for one list.
#[derive(Debug)]
pub(crate) struct DecisionSampler {
    /// The units to skip before the next one that is sampled. It is 0 while decisions are counted one by one, so that
    /// one comparison tells whether a decision is skipped.
    gap: u64,
    /// The decisions that are still counted one by one in this tick.
    one_by_one: u32,
    /// The units in all gaps since [`take_units`](Self::take_units), those that are still to be skipped included.
    drawn: u64,
    /// The units that were sampled since then.
    sampled: u64,
    /// A bit for each of the units after the gap and the sampled one: 1 if it is sampled.
    choices: u64,
    /// The number of bits of `choices` that are not used yet.
    choices_left: u64,
    random: u64,
}

impl DecisionSampler {
    /// Creates a sampler whose choices depend on the seed only. Clients must not know the seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            gap: 0,
            one_by_one: ONE_BY_ONE,
            drawn: 0,
            sampled: 0,
            choices: 0,
            choices_left: 0,
            random: seed,
        }
    }

    /// Starts a tick, of which this many decisions are counted one by one.
    pub(crate) fn start_tick(&mut self, one_by_one: u32) {
        debug_assert!(one_by_one > 0, "the first gap is drawn after the last of them");
        // A gap that began is forgotten: the next one is as long on average, wherever this one ended.
        (self.gap, self.drawn) = (0, self.drawn - self.gap);
        self.one_by_one = one_by_one;
    }

    /// Returns whether a decision of this cost is skipped, and then counts its units as skipped. If it is not, ask
    /// [`amount`](Self::amount) about it.
    #[inline]
    pub(crate) const fn skips(&mut self, cost: u64) -> bool {
        let is_skipped = cost < ONE_IN && cost <= self.gap;
        if is_skipped {
            self.gap -= cost;
        }
        is_skipped
    }

    /// Returns the amount to add to the count of an id whose decision is not skipped.
    #[inline]
    pub(crate) fn amount(&mut self, cost: u64) -> u64 {
        if cost >= ONE_IN {
            return cost;
        }
        if self.one_by_one > 1 {
            self.one_by_one -= 1;
            return cost;
        }
        self.sample(cost)
    }

    /// Returns 16 for each unit of a decision that is sampled, or the cost of the last decision before sampling begins.
    #[inline(never)]
    fn sample(&mut self, cost: u64) -> u64 {
        if self.one_by_one > 0 {
            self.one_by_one = 0;
            self.draw_gap();
            return cost;
        }
        let (mut left, mut sampled) = (cost, 0);
        while left > self.gap {
            left -= self.gap + 1;
            sampled += 1;
            self.draw_gap();
        }
        self.gap -= left;
        self.sampled += sampled;
        sampled * ONE_IN
    }

    /// Returns whether [`take_units`](Self::take_units) has something.
    #[inline]
    pub(crate) const fn has_units(&self) -> bool {
        self.drawn != self.gap || self.sampled > 0
    }

    /// Returns the units that were sampled and skipped since it was last asked. Ask before time goes on: they belong to
    /// the generation in which they came.
    pub(crate) const fn take_units(&mut self) -> SampledUnits {
        let units = SampledUnits { sampled: self.sampled, skipped: self.drawn - self.gap };
        (self.sampled, self.drawn) = (0, self.gap);
        units
    }

    /// Draws the number of units until the next one that is sampled.
    #[inline]
    fn draw_gap(&mut self) {
        let mut gap = 0;
        while self.choices == 0 {
            gap += self.choices_left;
            self.draw_choices();
        }
        let skipped = u64::from(self.choices.trailing_zeros());
        // In two steps: the last of 64 choices would be a shift by 64.
        self.choices = self.choices >> skipped >> 1;
        self.choices_left -= skipped + 1;
        self.gap = gap + skipped;
        self.drawn += self.gap;
    }

    /// Draws the choices of the next 64 units. A bit is 1 if it is 1 in each of four random numbers.
    #[inline(never)]
    const fn draw_choices(&mut self) {
        self.choices = self.random() & self.random() & self.random() & self.random();
        self.choices_left = CHOICES;
    }

    /// Returns the next random number (WyRand).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    const fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x2d35_8dcc_aa6c_78a5);
        let product = (self.random as u128) * ((self.random ^ 0x8bb8_4b93_962e_acc9) as u128);
        product as u64 ^ (product >> 64) as u64
    }
}

/// The units of the decisions that were not counted one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampledUnits {
    /// The units that were sampled, each of which is counted as 16.
    pub(crate) sampled: u64,
    /// The units that were skipped, which nothing is counted for.
    pub(crate) skipped: u64,
}

impl SampledUnits {
    /// Returns whether every decision was counted one by one.
    pub(crate) const fn is_empty(self) -> bool {
        self.sampled == 0 && self.skipped == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            sampled: self.sampled.saturating_add(other.sampled),
            skipped: self.skipped.saturating_add(other.skipped),
        }
    }

    /// Returns the sum of all costs, from the sum of what was counted. It is exact.
    pub(crate) const fn total(self, counted: u64) -> u64 {
        counted.saturating_add(self.skipped).saturating_sub(self.sampled.saturating_mul(ONE_IN - 1))
    }

    /// Returns the bounds of what an id used, from the bounds of what was counted of it. They are wrong with a chance
    /// of at most 1e-12.
    ///
    /// Add up all workers and generations first, and widen the sum once: widening each part alone gives bounds that are
    /// several times as wide.
    pub(crate) fn widen(self, counted: Bounded) -> Bounded {
        self.widen_with(counted, CONFIDENCE)
    }

    /// By Chernoff, `s - sqrt(2 L s) <= m / 16 <= s + L + sqrt(L² + 2 L s)` for `s` samples of `m` units, where `L` is
    /// the confidence. Here both sides are taken times 16, with `x = 16 s` and `k = 16 L`.
    ///
    /// A count does not tell how much of it was sampled. All of it is taken to be sampled, which gives the widest
    /// bounds.
    fn widen_with(self, counted: Bounded, confidence: u64) -> Bounded {
        let k = confidence * ONE_IN;
        let sampled = |count: u64| count.min(self.sampled.saturating_mul(ONE_IN));
        let double_product = |x: u64| 2 * u128::from(k) * u128::from(x);
        let (low, high) = (sampled(counted.min), sampled(counted.max));
        // Each sample was at least one real unit, so the lower bound never falls below the number of samples.
        let surplus = root(double_product(low)).min(low - low.div_ceil(ONE_IN));
        let missed = k.saturating_add(root(u128::from(k).pow(2) + double_product(high)));
        Bounded {
            min: counted.min - surplus,
            // One id cannot have more skipped units than all ids together.
            max: counted.max.saturating_add(missed.min(self.skipped)),
        }
    }
}

/// Returns the square root, rounded up.
fn root(square: u128) -> u64 {
    let root = square.isqrt();
    u64::try_from(root + u128::from(root * root < square)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts decisions of one id, and returns what was counted.
    fn count(sampler: &mut DecisionSampler, costs: impl IntoIterator<Item = u64>) -> u64 {
        costs.into_iter().map(|cost| if sampler.skips(cost) { 0 } else { sampler.amount(cost) }).sum()
    }

    fn exactly(counted: u64) -> Bounded {
        Bounded { min: counted, max: counted }
    }

    #[test]
    fn the_first_decisions_of_each_tick_are_counted_one_by_one() {
        let mut sampler = DecisionSampler::new(1);
        for _ in 0..100 {
            sampler.start_tick(ONE_BY_ONE);
            assert_eq!(count(&mut sampler, (0..ONE_BY_ONE).map(|_| 3)), 3 * u64::from(ONE_BY_ONE));
            assert!(sampler.take_units().is_empty());
        }
        count(&mut sampler, [1; 1_000]);
        let SampledUnits { sampled, skipped } = sampler.take_units();
        assert_eq!(sampled + skipped, 1_000);
        assert!(skipped > 900, "{skipped}");
    }

    #[test]
    fn large_costs_are_counted_one_by_one() {
        let mut sampler = DecisionSampler::new(1);
        sampler.start_tick(1);
        assert_eq!(count(&mut sampler, [1, 16, 17, u64::MAX / 2]), 34 + u64::MAX / 2);
        assert!(sampler.take_units().is_empty());
    }

    #[test]
    fn every_unit_is_sampled_or_skipped_and_the_total_is_exact() {
        let mut sampler = DecisionSampler::new(2);
        let (mut units, mut counted, mut total) = (SampledUnits::default(), 0, 0);
        for batch in 0..10_000 {
            if batch % 7 == 0 {
                sampler.start_tick(1 + batch % 50);
            }
            let costs = (0..u64::from(batch % 40)).map(|cost| cost % 20);
            total += costs.clone().sum::<u64>();
            counted += count(&mut sampler, costs);
            units = units.and(sampler.take_units());
            assert_eq!(units.total(counted), total);
        }
        assert!(units.skipped > total / 2);
    }

    /// With a bound that is wrong more often, one can see that it is as seldom wrong as it should be, and not far less
    /// often. An id that comes each `period`, also of 16 decisions, is as any other.
    #[test]
    fn bounds_are_wrong_as_seldom_as_they_should_be_in_periodic_streams_too() {
        const STREAMS: u32 = 20_000;
        // 2 / e^3 is a tenth.
        const UNLIKELY: u64 = 3;
        for (period, cost) in [(1, 1), (2, 1), (16, 1), (48, 1), (3, 5)] {
            let (mut wrong, mut sum) = (0, 0);
            for seed in 0..STREAMS {
                let mut sampler = DecisionSampler::new(u64::from(seed) << 32);
                sampler.start_tick(1);
                let mut counted = count(&mut sampler, [1]);
                for turn in 0..100 * period {
                    let amount = count(&mut sampler, [cost]);
                    counted += if turn % period == 0 { amount } else { 0 };
                }
                let (used, units) = (1 + 100 * cost, sampler.take_units());
                let Bounded { min, max } = units.widen_with(exactly(counted), UNLIKELY);
                wrong += u32::from(used < min || max < used);
                sum += counted;
                let Bounded { min, max } = units.widen(exactly(counted));
                assert!(min <= used && used <= max, "period {period}, seed {seed}: {min} <= {used} <= {max}");
            }
            assert!(wrong < STREAMS / 10, "period {period}: {wrong} bounds are wrong");
            let (mean, used) = (sum as f64 / f64::from(STREAMS), (1 + 100 * cost) as f64);
            assert!((mean - used).abs() < 0.01 * used, "period {period}: {mean} of {used} are counted");
        }
    }

    #[test]
    fn bounds_are_widened_by_what_is_not_known_only() {
        let none = SampledUnits::default();
        assert_eq!(none.widen(Bounded { min: 3, max: 5 }), Bounded { min: 3, max: 5 });
        let few = SampledUnits { sampled: 1, skipped: 7 };
        assert_eq!(few.widen(exactly(100)), Bounded { min: 85, max: 107 });
        assert_eq!(few.widen(exactly(0)), Bounded { min: 0, max: 7 });
        let many = SampledUnits { sampled: 1_000_000, skipped: 15_000_000 };
        // With 10,000 samples, sixteen times the root of 2 * 29 * 10,000 is 12,186.
        assert_eq!(many.widen(exactly(160_000)), Bounded { min: 147_814, max: 172_659 });
        let mut last = many.widen(exactly(0));
        for counted in (1..20_000).chain([u64::MAX - 1, u64::MAX]) {
            let wider = many.widen(exactly(counted));
            assert!(last.min <= wider.min && last.max <= wider.max, "{counted}: {last:?}, {wider:?}");
            last = wider;
        }
    }
}
