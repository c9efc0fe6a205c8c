//! Runs random histories against an implementation, and shrinks one that fails to the steps that matter.
//!
//! ```
//! use tollway_testbed::{Random, compare};
//!
//! let history = |random: &mut Random| (0..10).map(|_| random.below(100)).collect();
//! compare(history, |numbers: &[u64]| {
//!     let sum: u64 = numbers.iter().sum();
//!     if sum < 1_000 { Ok(100_000) } else { Err(format!("{sum} is too much")) }
//! });
//! ```
//!
//! A history is data, made whole before it runs. So one that fails can be cut down, step by step, to the few steps
//! that matter, and those are what is printed. `TOLLWAY_SEED=7` tries other histories and `TOLLWAY_DECISIONS` more
//! of them.

use std::env;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The default seed, so that the suite does the same every time.
const SEED: u64 = 0x7011_6a7e;

/// The number of decisions that are compared by default.
const DECISIONS: u64 = 1_000_000;

/// Runs histories until one fails, and panics with the shortest form of it that still does.
///
/// `run` returns how many decisions it compared, or what differed. Ends when there were enough.
pub fn compare<Step: Clone + Debug>(
    history: impl Fn(&mut Random) -> Vec<Step>,
    run: impl Fn(&[Step]) -> Result<u64, String>,
) {
    let (seed, decisions) = (seed(), number("TOLLWAY_DECISIONS").unwrap_or(DECISIONS));
    let run = |steps: &[Step]| {
        catch_unwind(AssertUnwindSafe(|| run(steps))).unwrap_or_else(|_| Err("it panicked".to_owned()))
    };
    let (mut compared, mut random) = (0, Random::new(seed));
    while compared < decisions {
        let steps = history(&mut random);
        match run(&steps) {
            Ok(decisions) => compared += decisions,
            Err(_) => {
                let steps = shortest(steps, &run);
                let why = run(&steps).expect_err("the shortest failing history fails");
                panic!("TOLLWAY_SEED={seed}, after {compared} decisions: {why}\n{}", lines(&steps));
            }
        }
    }
}

/// Drops every step that the failure does not need.
fn shortest<Step: Clone>(mut steps: Vec<Step>, run: &impl Fn(&[Step]) -> Result<u64, String>) -> Vec<Step> {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let step = steps.remove(at);
        if run(&steps).is_ok() {
            steps.insert(at, step);
        }
    }
    steps
}

fn lines<Step: Debug>(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("    {step:?},\n")).collect()
}

/// Returns the seed in `TOLLWAY_SEED`, or the default seed.
pub fn seed() -> u64 {
    number("TOLLWAY_SEED").unwrap_or(SEED)
}

fn number(variable: &str) -> Option<u64> {
    Some(env::var(variable).ok()?.parse().expect("a whole number"))
}

/// A generator that gives the same numbers for the same seed, so that a failure can be repeated (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match (high - low).checked_add(1) {
            Some(choices) => low + self.below(choices),
            None => self.any(),
        }
    }

    /// Returns a number from 0 to one less than `choices`.
    pub fn below(&mut self, choices: u64) -> u64 {
        self.any() % choices
    }

    /// Returns a number from 0 to `high`; every order of magnitude is equally likely.
    pub fn magnitude(&mut self, high: u64) -> u64 {
        let bits = self.between(0, u64::from(64 - high.leading_zeros()));
        let masked = if bits == 64 { self.any() } else { self.any() & ((1 << bits) - 1) };
        masked.min(high)
    }

    /// Returns true once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.any().is_multiple_of(times)
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("an index")]
    }
}
