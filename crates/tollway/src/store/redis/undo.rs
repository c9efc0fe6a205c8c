//! The amount that a charge took, for the script that takes it back.

use tollway_core::algorithm::{Bucket, SmoothedRateState, TokenBucket};
use tollway_core::{Nanos, Timestamp};

use super::script::CallBuilder;
use super::seen::FoundBucket;

/// The amount that was taken, with the state that is needed to take back that and nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    /// A span, the time from which the bucket would have been full without it, and the limit.
    Span(Nanos, Timestamp, TokenBucket),
    /// The number of entries, and their time.
    Entries(u64, Timestamp),
    /// The amount that was added to a rate, its period, when, to which rate, and the state before.
    Rate { added: f64, period: Nanos, at: Timestamp, to: f64, before: SmoothedRateState },
    /// The number of units, and the end of their window.
    Units(u64, Timestamp),
    /// The number of units, and the end of the fixed window that they were used in.
    FixedWindow(u64, Timestamp),
    /// The number of units, the end of the window that they were used in, and the period of a sliding window.
    SlidingWindow(u64, Timestamp, Nanos),
}

impl Taken {
    /// Returns the amount that a charge of `cost` took, which fitted; `None` is nothing.
    pub(super) fn from(seen: &FoundBucket<'_>, cost: u64, now: Timestamp) -> Option<Self> {
        match seen {
            FoundBucket::TokenBucket(before, limit) => {
                let full_at = before.expires_at().clamp(now, now + limit.fill_time());
                let mut after = *before;
                let _ = after.charge(limit, cost, now);
                let span = after.expires_at().since(full_at);
                (span > Nanos::ZERO).then_some(Self::Span(span, full_at, **limit))
            }
            FoundBucket::SlidingLog(..) => (cost > 0).then_some(Self::Entries(cost, now)),
            FoundBucket::SmoothedRate(before, limit) => {
                let after = before.measure(limit, cost, now);
                let added = after.rate - before.measure(limit, 0, now).rate;
                let counted = !after.over || limit.strict();
                (counted && cost > 0).then_some(Self::Rate {
                    added,
                    period: limit.period(),
                    at: now,
                    to: after.rate,
                    before: *before,
                })
            }
            FoundBucket::Quota(before, limit) => {
                let mut after = *before;
                let _ = after.charge(limit, cost, now);
                let used = if before.expires_at() > now { before.counter() } else { 0 };
                let units = after.counter().saturating_sub(used);
                let ends_at = after.expires_at();
                (units > 0 && ends_at > now).then_some(Self::Units(units, ends_at))
            }
            FoundBucket::FixedWindow(before, limit) => {
                let mut after = *before;
                let _ = after.charge(limit, cost, now);
                (cost > 0).then_some(Self::FixedWindow(cost, after.ends_at()))
            }
            FoundBucket::SlidingWindow(before, limit) => {
                let mut after = *before;
                let _ = after.charge(limit, cost, now);
                (cost > 0).then_some(Self::SlidingWindow(cost, after.ends_at(), limit.period()))
            }
        }
    }

    /// Adds the letter of the algorithm, and six values.
    pub(super) fn write(self, draft: CallBuilder) -> CallBuilder {
        match self {
            Self::Span(span, full_at, limit) => {
                draft.arg("b").pair(span.get()).pair(full_at.as_nanos()).unit(&limit).arg("")
            }
            Self::Entries(entries, at) => draft.arg("l").pair(entries).pair(at.as_nanos()).arg(&["", ""]),
            Self::Units(units, ends_at) => draft.arg("q").pair(units).pair(ends_at.as_nanos()).arg(&["", ""]),
            Self::FixedWindow(units, ends_at) => {
                draft.arg("f").pair(units).pair(ends_at.as_nanos()).arg(&["", ""])
            }
            Self::SlidingWindow(units, ends_at, period) => {
                draft.arg("s").pair(units).pair(ends_at.as_nanos()).pair(period.get())
            }
            Self::Rate { added, period, at, to, before } => {
                let (last, rate) = before.last();
                let silent_at = before.expires_at();
                let text = || format!("r{} {rate} {}", last.as_nanos(), silent_at.as_nanos());
                let before = if silent_at > at { text() } else { String::new() };
                draft.arg("r").arg(added).arg(period.as_secs_f64()).pair(at.as_nanos()).arg(to).arg(before)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_core::algorithm::{FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate};
    use tollway_core::{Algorithm, Bill, Charge, Decision, InlineNumbers, Limit};
    use tollway_testbed::{Random, RedisServer};

    use super::*;
    use crate::block_on::block_on;
    use crate::store::redis::part::{Mode, Part};
    use crate::store::redis::{Redis, RedisUrl, script};

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn settle(store: &Redis, charge: &Charge<'_>, now: Timestamp) -> Decision {
        block_on(store.settle(&[Bill::one(charge)], Some(now))).remove(0).unwrap()
    }

    /// Charges one part of a bill, and returns its key and the amount that was taken.
    fn charge(store: &Redis, charge: &Charge<'_>, now: Timestamp) -> Option<(Vec<u8>, Taken)> {
        let bill = Bill::one(charge);
        let part = Part::of(&bill, &store.namespace, false, Mode::Whole).remove(0);
        let reply = block_on(store.send(vec![part.call(Some(now))])).remove(0).unwrap();
        let read = part.read(reply, Some(now)).unwrap();
        let taken = (!read.denied).then(|| Taken::from(&read.seen[0], charge.cost(), now))??;
        Some((part.lines[0].key.clone(), taken))
    }

    fn undo(store: &Redis, key: &[u8], taken: Taken, now: Timestamp) {
        let call = taken.write(CallBuilder::new(&script::UNDO, &[key]).now(Some(now))).finish();
        block_on(store.send(vec![call])).remove(0).unwrap();
    }

    /// Compares decisions with and without a charge that is taken back, with spends before, in between and after.
    fn nobody_gets_more(limit: &Limit) {
        let server = RedisServer::start();
        let deadline = Duration::from_secs(20);
        let store = Redis::open(&RedisUrl { deadline, ..server.url().parse().unwrap() }).unwrap();
        let mut random = Random::new(1);
        for round in 0..400 {
            let ids = [format!("with{round}"), format!("without{round}")];
            let mut now = START;
            let spend_both = |random: &mut Random, now: &mut Timestamp, times: u64| {
                for _ in 0..times {
                    *now = *now + Nanos::new(random.below(1_500));
                    let cost = 1 + random.below(3);
                    let [with, without] =
                        ids.each_ref().map(|id| Charge::new(limit, id.as_bytes(), cost).unwrap());
                    if settle(&store, &with, *now).allowed() {
                        let fits = settle(&store, &without, *now).allowed();
                        assert!(fits, "round {round}: more was given than there would have been");
                    }
                }
            };
            let before = random.below(5);
            spend_both(&mut random, &mut now, before);
            let cost = 1 + random.below(5);
            let ours = Charge::new(limit, ids[0].as_bytes(), cost).unwrap();
            let taken = charge(&store, &ours, now);
            let between = if random.below(3) == 0 { 0 } else { random.below(4) };
            spend_both(&mut random, &mut now, between);
            now = now + Nanos::new(random.below(2_000));
            if let Some((key, taken)) = taken {
                undo(&store, &key, taken, now);
            }
            let [with, without] = ids.each_ref().map(|id| {
                let charge = Charge::new(limit, id.as_bytes(), 0).unwrap();
                block_on(store.check(&[Bill::one(&charge)], Some(now))).remove(0).unwrap()
            });
            assert!(with.remaining <= without.remaining, "round {round}: {with:?}, not {without:?}");
            if between == 0 {
                assert_eq!((with.remaining, with.retry_nanos), (without.remaining, without.retry_nanos));
            }
            spend_both(&mut random, &mut now, 6);
        }
    }

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new("L").unwrap().with_default(algorithm)
    }

    #[test]
    fn a_token_bucket_never_gives_more_for_having_been_charged_and_paid_back() {
        let numbers = TokenBucket::new(8, 1, Duration::from_nanos(1_000)).unwrap();
        nobody_gets_more(&limit(Algorithm::TokenBucket(numbers)));
    }

    #[test]
    fn an_inline_token_bucket_never_gives_more_for_having_been_charged_and_paid_back() {
        let numbers = TokenBucket::new(8, 1, Duration::from_nanos(1_000)).unwrap();
        nobody_gets_more(&limit(*InlineNumbers::new(numbers).algorithm()));
    }

    #[test]
    fn a_log_never_gives_more_for_having_been_charged_and_paid_back() {
        nobody_gets_more(&limit(Algorithm::SlidingLog(
            SlidingLog::new(8, Duration::from_nanos(6_000)).unwrap(),
        )));
    }

    #[test]
    fn a_rate_never_gives_more_for_having_been_charged_and_paid_back() {
        let numbers = SmoothedRate::new(8.5, Duration::from_nanos(4_000), false).unwrap();
        nobody_gets_more(&limit(Algorithm::SmoothedRate(numbers)));
    }

    #[test]
    fn a_quota_gives_no_window_more_for_having_been_charged_and_paid_back() {
        nobody_gets_more(&limit(Algorithm::Quota(Quota::new(8, Duration::from_nanos(1_000_000)).unwrap())));
    }

    #[test]
    fn a_fixed_window_never_gives_more_for_having_been_charged_and_paid_back() {
        let (period, offset) = (Duration::from_nanos(6_000), Duration::from_nanos(700));
        nobody_gets_more(&limit(Algorithm::FixedWindow(FixedWindow::new(8, period, offset).unwrap())));
    }

    #[test]
    fn a_sliding_window_never_gives_more_for_having_been_charged_and_paid_back() {
        let numbers = SlidingWindow::new(8, Duration::from_nanos(3_000)).unwrap();
        nobody_gets_more(&limit(Algorithm::SlidingWindow(numbers)));
    }
}
