//! Numbers at the edges of their types: an error, or a limit that works at every moment there is.

use std::time::Duration;

use tollway_core::algorithm::{
    Bucket, Change, FixedWindow, FixedWindowState, LOG_MAX, Quota, QuotaOperation, QuotaOutcome, QuotaState,
    QuotaTtl, SlidingLog, SlidingLogState, SlidingWindow, SlidingWindowState, SmoothedRate,
    SmoothedRateState, TokenBucket, TokenBucketState, TtlUnit, WINDOW_COUNT_MAX,
};
use tollway_core::{Nanos, Timestamp};
use tollway_testbed::{Random, seed};

use crate::history::{self, Model, Step};
use crate::naive;

const EDGES: [u64; 7] = [0, 1, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, u64::MAX];
const LONGEST: u128 = i64::MAX as u128;

#[test]
fn token_buckets_work_or_are_refused() {
    for (burst, count, period) in EDGES.iter().flat_map(|burst| {
        EDGES.iter().flat_map(move |count| EDGES.iter().map(move |period| (*burst, *count, *period)))
    }) {
        let interval = period.checked_div(count).unwrap_or(0);
        let fill_time = u128::from(interval) * u128::from(burst);
        let fits = u128::from(period) <= LONGEST && (1..=LONGEST).contains(&fill_time);
        let limit = TokenBucket::new(burst, count, Duration::from_nanos(period));
        assert_eq!(limit.is_ok(), fits, "{burst} {count} {period}");
        if let Ok(limit) = limit {
            works::<naive::NaiveTokenBucket>(&limit);
            survives::<TokenBucketState>(&limit);
        }
    }
}

#[test]
fn sliding_logs_work_or_are_refused() {
    for (count, period) in pairs(&[0, 1, 2, LOG_MAX, LOG_MAX + 1, u64::MAX]) {
        let fits = (1..=LOG_MAX).contains(&count) && (1..=LONGEST).contains(&period.into());
        let limit = SlidingLog::new(count, Duration::from_nanos(period));
        assert_eq!(limit.is_ok(), fits, "{count} {period}");
        if let Ok(limit) = limit {
            works::<naive::NaiveSlidingLog>(&limit);
            survives::<SlidingLogState>(&limit);
        }
    }
}

#[test]
fn quotas_work_or_are_refused() {
    for (count, period) in pairs(&EDGES) {
        let limit = Quota::new(count, Duration::from_nanos(period));
        assert_eq!(limit.is_ok(), count > 0 && (1..=LONGEST).contains(&period.into()), "{count} {period}");
        if let Ok(limit) = limit {
            works::<naive::NaiveQuota>(&limit);
            survives::<QuotaState>(&limit);
        }
    }
}

#[test]
fn fixed_windows_work_or_are_refused() {
    for (count, period) in pairs(&EDGES) {
        for offset in EDGES {
            let limit = FixedWindow::new(count, Duration::from_nanos(period), Duration::from_nanos(offset));
            let fits = count > 0 && (1..=LONGEST).contains(&period.into()) && u128::from(offset) <= LONGEST;
            assert_eq!(limit.is_ok(), fits, "{count} {period} {offset}");
            if let Ok(limit) = limit {
                works::<naive::NaiveFixedWindow>(&limit);
                survives::<FixedWindowState>(&limit);
            }
        }
    }
}

#[test]
fn sliding_windows_work_or_are_refused() {
    let counts = [0, 1, 2, 1 << 20, WINDOW_COUNT_MAX, WINDOW_COUNT_MAX + 1, u64::MAX];
    let longest = u64::try_from(LONGEST / 4).unwrap();
    for (count, period) in pairs(&counts).chain(counts.map(|count| (count, longest))) {
        let fits = (1..=WINDOW_COUNT_MAX).contains(&count) && (1..=longest).contains(&period);
        let limit = SlidingWindow::new(count, Duration::from_nanos(period));
        assert_eq!(limit.is_ok(), fits, "{count} {period}");
        if let Ok(limit) = limit {
            works::<naive::NaiveSlidingWindow>(&limit);
            survives::<SlidingWindowState>(&limit);
        }
    }
}

#[test]
fn smoothed_rates_work_or_are_refused() {
    let numbers = EDGES.map(|edge| edge as f64);
    let others =
        [-1.0, -0.0, f64::MIN_POSITIVE, 1e-300, 0.5, f64::MAX, f64::INFINITY, -f64::INFINITY, f64::NAN];
    for number in numbers.into_iter().chain(others) {
        for (period, strict) in EDGES.into_iter().flat_map(|period| [(period, false), (period, true)]) {
            let fits = number > 0.0 && number <= (1u64 << 53) as f64;
            let fits = fits && period > 0 && u128::from(period) * 1_000 <= LONGEST;
            let limit = SmoothedRate::new(number, Duration::from_nanos(period), strict);
            assert_eq!(limit.is_ok(), fits, "{number} {period}");
            if let Ok(limit) = limit {
                works::<naive::NaiveSmoothedRate>(&limit);
                survives::<SmoothedRateState>(&limit);
            }
        }
    }
}

#[test]
fn throttr_pairs_work_with_any_number_at_any_moment() {
    let mut random = Random::new(seed());
    for (left, lifetime) in pairs(&EDGES) {
        for unit in [0, 1, 2, 255] {
            let any_moment = |random: &mut Random| Timestamp::from_nanos(random.pick(&EDGES));
            let now = any_moment(&mut random);
            let mut quota = QuotaState::default();
            let lifetime = QuotaTtl { value: lifetime, unit: TtlUnit(unit) };
            assert_eq!(
                quota.apply(QuotaOperation::Insert { left, lifetime, over_live: false }, Nanos::FOREVER, now),
                QuotaOutcome::Done
            );
            let live = matches!(quota.apply(QuotaOperation::Query, Nanos::FOREVER, now), QuotaOutcome::Found { left: found, .. } if found == left);
            assert_eq!(live, lifetime.value > 0 && now.as_nanos() < u64::MAX);
            for change in [Change::Patch, Change::Increase, Change::Decrease] {
                let (value, now) = (random.pick(&EDGES), any_moment(&mut random));
                let changed = quota.apply(QuotaOperation::ChangeLeft { change, value }, Nanos::FOREVER, now);
                assert_eq!(
                    quota.apply(QuotaOperation::ChangeLifetime { change, value }, Nanos::FOREVER, now),
                    changed
                );
            }
        }
    }
}

/// Returns the numbers of `first` with every period at the edges.
fn pairs(first: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    first.iter().flat_map(|one| EDGES.iter().map(|period| (*one, *period)))
}

/// A hundred requests at moments a clock can report get the answers of the model.
fn works<M: Model>(limit: &M::Limit) {
    let mut random = Random::new(seed());
    let mut steps = vec![Step::Limit(limit.clone())];
    let moments = [0, 1, 1 << 31, 1 << 53, Timestamp::MAX.as_nanos() - 1, Timestamp::MAX.as_nanos()];
    for _ in 0..100 {
        let (cost, now) = (random.pick(&[0, 1, M::cost_max(limit)]), random.pick(&moments));
        steps.push(match random.between(0, 5) {
            0 => Step::Check { cost, now },
            1 => Step::Refund { cost, now },
            _ => Step::Spend { cost, now },
        });
    }
    assert_eq!(history::run::<M>(&steps).err(), None, "{limit:?}");
}

/// Any request at all, valid or not, at any moment: the answer is the caller's problem, but there is one.
fn survives<B: Bucket>(limit: &B::Limit) {
    let mut random = Random::new(seed());
    let mut bucket = B::default();
    for _ in 0..100 {
        let (cost, now) = (random.pick(&EDGES), Timestamp::from_nanos(random.pick(&EDGES)));
        match random.between(0, 2) {
            0 => assert_eq!(bucket.check(limit, cost, now), bucket.charge(limit, cost, now)),
            1 => drop(bucket.refund(limit, cost, now)),
            _ => drop(bucket.charge(limit, cost, now)),
        }
    }
}
