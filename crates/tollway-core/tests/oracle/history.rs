//! The one history all algorithms go through: a limit, and requests under it at moments that need not be in order.

use std::fmt::Debug;

use tollway_core::algorithm::{Algorithm, Bucket};
use tollway_core::{Decision, Nanos, Refund, Timestamp};
use tollway_testbed::Random;

/// One event that a history has. Costs that no longer fit the limit, because it was changed or a step was left out, are
/// cut to it.
#[derive(Clone, Debug)]
pub(crate) enum Step<Limit> {
    Limit(Limit),
    Spend { cost: u64, now: u64 },
    Check { cost: u64, now: u64 },
    Refund { cost: u64, now: u64 },
}

/// A naive bucket to compare with, and what its histories are made of.
pub(crate) trait Model: Clone + Default + Debug {
    type Bucket: Bucket<Limit = Self::Limit> + Clone + PartialEq + Debug;
    type Limit: Clone + Debug;

    fn any_limit(random: &mut Random) -> Self::Limit;
    fn cost_max(limit: &Self::Limit) -> u64;
    /// Returns the spans at which something happens: until one unit comes, and until the bucket is like new.
    fn spans(limit: &Self::Limit) -> (u64, u64);

    fn spend(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Decision;
    fn refund(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Option<Refund>;

    /// Checks that this is the decision. `self` is the model after it.
    fn judge(&self, _: &Self::Limit, _: u64, _: Timestamp, expected: Decision, found: Decision) -> Verdict {
        same(&expected, &found, "decisions agree")
    }
}

/// The difference that was found, if there is one.
pub(crate) type Verdict = Result<(), String>;

const STEPS: u64 = 40;

/// A history in which time only goes forward and the limit stays.
pub(crate) fn calm<M: Model>(random: &mut Random) -> Vec<Step<M::Limit>> {
    history::<M>(random, false)
}

/// A history in which clocks step back and limits are raised and lowered.
pub(crate) fn unruly<M: Model>(random: &mut Random) -> Vec<Step<M::Limit>> {
    history::<M>(random, true)
}

fn history<M: Model>(random: &mut Random, unruly: bool) -> Vec<Step<M::Limit>> {
    let mut limit = M::any_limit(random);
    let mut now = random.pick(&[0, 1, 1_700_000_000_000_000_000, Timestamp::MAX.as_nanos() / 2]);
    let mut steps = vec![Step::Limit(limit.clone())];
    for _ in 0..STEPS {
        if unruly && random.one_in(25) {
            limit = M::any_limit(random);
            steps.push(Step::Limit(limit.clone()));
        }
        let spans = M::spans(&limit);
        now = if unruly && random.one_in(8) {
            now - step_back(random, now, spans)
        } else {
            now.saturating_add(step_forward(random, spans)).min(Timestamp::MAX.as_nanos())
        };
        steps.push(request(random, M::cost_max(&limit), now, unruly));
    }
    steps
}

fn step_forward(random: &mut Random, (unit, whole): (u64, u64)) -> u64 {
    match random.between(0, 17) {
        0..=6 => 0,
        7..=12 => {
            let units = random.between(0, 4);
            around(random, unit.saturating_mul(units))
        }
        13..=15 => random.between(0, whole),
        16 => around(random, whole),
        _ => random.magnitude(Timestamp::MAX.as_nanos()),
    }
}

fn step_back(random: &mut Random, now: u64, (unit, whole): (u64, u64)) -> u64 {
    let any = random.magnitude(now);
    let back = random.pick(&[1, unit, whole, any]);
    around(random, back).min(now)
}

/// Returns the span, a nanosecond more, or one less.
fn around(random: &mut Random, span: u64) -> u64 {
    span.saturating_add(random.between(0, 2)).saturating_sub(1)
}

fn request<Limit>(random: &mut Random, cost_max: u64, now: u64, unruly: bool) -> Step<Limit> {
    let few = random.between(0, cost_max.min(3));
    let any = random.between(0, cost_max);
    let cost = random.pick(&[0, 1, 1, 1, 1, few, any, cost_max]);
    match random.between(0, 9) {
        0 => Step::Check { cost, now },
        1 if unruly => Step::Refund { cost, now },
        _ => Step::Spend { cost, now },
    }
}

/// Both through the same history, compared at every step. Says how many decisions that were.
pub(crate) fn run<M: Model>(steps: &[Step<M::Limit>]) -> Result<u64, String> {
    let mut limit = None;
    let (mut model, mut bucket, mut decisions) = (M::default(), M::Bucket::default(), 0);
    for (index, step) in steps.iter().enumerate() {
        match (step, limit) {
            (Step::Limit(changed), _) => limit = Some(changed),
            (_, None) => {}
            (step, Some(limit)) => {
                take_step(&mut model, &mut bucket, limit, step)
                    .map_err(|why| format!("step {index}: {why}"))?;
                decisions += u64::from(matches!(step, Step::Spend { .. } | Step::Check { .. }));
            }
        }
    }
    Ok(decisions)
}

/// One more unit is left once `more_after` has passed; if `exactly`, none is a nanosecond earlier.
pub(crate) fn run_more<M: Model<Limit: Copy + Into<Algorithm>>>(
    steps: &[Step<M::Limit>],
    exactly: bool,
) -> Result<u64, String> {
    let Some(Step::Limit(limit)) = steps.first() else { return Ok(0) };
    let algorithm: Algorithm = (*limit).into();
    let (mut bucket, mut decisions) = (M::Bucket::default(), 0);
    for (index, step) in steps.iter().enumerate() {
        let Step::Spend { cost, now } = step else { continue };
        let now = Timestamp::from_nanos(*now);
        let found = bucket.charge(limit, (*cost).min(algorithm.cost_max()), now);
        let more_after = algorithm.more_after(&found);
        let left_after = |span: u64| bucket.check(limit, 0, now + Nanos::new(span)).remaining;
        if found.remaining < algorithm.cost_max() && left_after(more_after.get()) <= found.remaining {
            return Err(format!("step {index}: nothing more after {more_after:?}: {found:?}"));
        }
        let before = more_after.get().saturating_sub(1);
        if exactly && left_after(before) > found.remaining {
            return Err(format!("step {index}: something more before {more_after:?}: {found:?}"));
        }
        decisions += 1;
    }
    Ok(decisions)
}

fn take_step<M: Model>(
    model: &mut M,
    bucket: &mut M::Bucket,
    limit: &M::Limit,
    step: &Step<M::Limit>,
) -> Verdict {
    let fitting = |cost: &u64, now: &u64| ((*cost).min(M::cost_max(limit)), Timestamp::from_nanos(*now));
    let (cost, now) = match step {
        Step::Limit(_) => return Ok(()),
        Step::Spend { cost, now } => {
            let (cost, now) = fitting(cost, now);
            let predicted = bucket.check(limit, cost, now);
            let found = bucket.charge(limit, cost, now);
            same(&predicted, &found, "a check predicts the spend")?;
            let expected = model.spend(limit, cost, now);
            model.judge(limit, cost, now, expected, found)?;
            honest::<M>(bucket, limit, cost, now, found)?;
            (cost, now)
        }
        Step::Check { cost, now } => {
            let (cost, now) = fitting(cost, now);
            let (before, mut after) = (bucket.clone(), model.clone());
            let found = bucket.check(limit, cost, now);
            same(&before, bucket, "a check changes nothing")?;
            let expected = after.spend(limit, cost, now);
            after.judge(limit, cost, now, expected, found)?;
            (cost, now)
        }
        Step::Refund { cost, now } => {
            let (cost, now) = fitting(cost, now);
            let found = bucket.refund(limit, cost, now);
            same(&model.refund(limit, cost, now), &found, "refunds agree")?;
            (cost, now)
        }
    };
    silent(bucket, limit, cost, now)
}

pub(crate) fn same<T: PartialEq + Debug>(expected: &T, found: &T, what: &str) -> Verdict {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}: expected\n  {expected:?}, found\n  {found:?}"))
}

/// The same request is let in when `retry_after` says, not a nanosecond earlier, and nobody waits too long for that.
fn honest<M: Model>(
    bucket: &M::Bucket,
    limit: &M::Limit,
    cost: u64,
    now: Timestamp,
    found: Decision,
) -> Verdict {
    let (_, wait_max) = M::spans(limit);
    if found.retry_nanos.get() > wait_max {
        return Err(format!("nobody waits longer than until all is as new: {found:?}"));
    }
    let retry_at = now + found.retry_nanos;
    let too_early = Timestamp::from_nanos(retry_at.as_nanos().saturating_sub(1));
    if found.retry_nanos > Nanos::ZERO && bucket.clone().charge(limit, cost, too_early).allowed() {
        return Err(format!("allowed before its retry_after: {found:?}"));
    }
    if !bucket.clone().charge(limit, cost, retry_at).allowed() {
        return Err(format!("still denied after its retry_after: {found:?}"));
    }
    Ok(())
}

/// From `expires_at` on the bucket answers like one never used, so that nobody can tell whether it was dropped.
fn silent<B: Bucket + Clone>(bucket: &B, limit: &B::Limit, cost: u64, now: Timestamp) -> Verdict {
    let from = bucket.expires_at().max(now);
    let dropped = B::default().charge(limit, cost, from);
    let kept = bucket.clone().charge(limit, cost, from);
    same(&dropped, &kept, "a silent bucket is like one never used")
}
