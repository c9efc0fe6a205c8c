//! The amount that a charge took, or the entry that a rule made, for the script that takes it back.

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
    /// The entry in the log of a rule.
    Entry(Timestamp),
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

    /// Adds the letter of the kind, and six values.
    pub(super) fn write(self, draft: CallBuilder) -> CallBuilder {
        match self {
            Self::Span(span, full_at, limit) => {
                draft.arg("b").pair(span.get()).pair(full_at.as_nanos()).unit(&limit).arg("")
            }
            Self::Entries(entries, at) => draft.arg("l").pair(entries).pair(at.as_nanos()).arg(&["", ""]),
            Self::Entry(at) => draft.arg("e").now(Some(at)).arg(&[""; 5]),
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
    use tollway_core::{
        Algorithm, Bill, Charge, Decision, InlineAlgorithm, KeyedRule, Limit, RuleBill, RuleLimit,
    };
    use tollway_testbed::{Random, RedisServer};

    use super::*;
    use crate::block_on::block_on;
    use crate::store::redis::part::{Mode, Part, Read};
    use crate::store::redis::{Redis, RedisUrl, script, settle};

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn open(server: &RedisServer) -> Redis {
        let deadline = Duration::from_secs(20);
        Redis::open(&RedisUrl { deadline, ..server.url().parse().unwrap() }).unwrap()
    }

    fn spend(store: &Redis, charge: &Charge<'_>, now: Timestamp) -> Decision {
        block_on(store.settle(&[Bill::one(charge)], Some(now))).remove(0).unwrap()
    }

    fn ask<'a>(store: &Redis, part: &Part<'a>, now: Timestamp) -> Read<'a> {
        let reply = block_on(store.send(vec![part.call(Some(now))])).remove(0).unwrap();
        part.read(reply, Some(now)).unwrap()
    }

    /// Charges one part of a bill, and returns its key and the amount that was taken.
    fn charge(store: &Redis, charge: &Charge<'_>, now: Timestamp) -> Option<(Vec<u8>, Taken)> {
        let bill = Bill::one(charge);
        let part = Part::of(&bill, &store.namespace, false, Mode::Whole).remove(0);
        let read = ask(store, &part, now);
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
        let store = open(&server);
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
                    if spend(&store, &with, *now).allowed() {
                        let fits = spend(&store, &without, *now).allowed();
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
        nobody_gets_more(&limit(*InlineAlgorithm::new(numbers).algorithm()));
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

    fn keyed(rule: &str, key: &str) -> KeyedRule {
        KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", key)
    }

    fn bill(rule: &KeyedRule) -> RuleBill<'_> {
        rule.bill(|_| Ok::<_, ()>(Some("x"))).unwrap()
    }

    fn allows(store: &Redis, rule: &KeyedRule, revocable: bool, now: Timestamp) -> bool {
        let bill = bill(rule);
        let part = Part::of(&Bill::rule(&bill), &store.namespace, revocable, Mode::Whole).remove(0);
        !ask(store, &part, now).denied
    }

    /// Compares decisions with and without requests in between that were entered, denied elsewhere and removed.
    #[test]
    fn nobody_gets_more_for_what_was_entered_and_taken_back() {
        let server = RedisServer::start();
        let store = open(&server);
        let (mut random, mut compared) = (Random::new(1), 0);
        for round in 0..40 {
            let count = 1 + random.below(6);
            let rule = match random.below(2) {
                0 => format!("{count}/3s"),
                _ => format!("Or('{count}/3s', '{}/500ms')", 1 + count / 2),
            };
            let [with, without] = ["with", "without"].map(|key| keyed(&rule, &format!("{key}{round}")));
            let elsewhere = keyed(&format!("And('{count}/3s', 'elsewhere:1/s')"), &format!("with{round}"));
            let bill = bill(&elsewhere);
            let mut part = Part::of(&Bill::rule(&bill), &store.namespace, true, Mode::Whole).remove(0);
            part.mode = Mode::Part;
            // Some stay for so long that they are not taken back any more.
            let undone = if random.below(2) == 0 { 4 } else { 1 };
            let (mut now, mut entered, mut stayed) = (START, Vec::new(), false);
            for _ in 0..300 {
                now = now + Nanos::from_millis(random.below(120));
                match random.below(12) {
                    0 | 1 => {
                        for _ in 0..random.below(5) {
                            entered.push((now, ask(&store, &part, now)));
                        }
                    }
                    turn if turn < 2 + undone && !entered.is_empty() => {
                        for (at, read) in entered.drain(..) {
                            let call = settle::undo(&part, &read, Some(now)).unwrap();
                            block_on(store.send(vec![call])).remove(0).unwrap();
                            stayed |= now.since(at) >= Nanos::from_secs(1);
                        }
                    }
                    _ => {
                        let allowed = allows(&store, &with, true, now);
                        let alone = entered.is_empty() && !stayed;
                        if allowed || alone {
                            let fits = allows(&store, &without, false, now);
                            assert!(fits || !allowed, "round {round}: {rule} let one more through at {now}");
                            assert!(allowed || !fits, "round {round}: {rule} let one less through at {now}");
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 1_000, "only {compared} were compared");
    }
}
