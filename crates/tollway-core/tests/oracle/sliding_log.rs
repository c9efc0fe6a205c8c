//! The sliding log: as a named limit, as a rule sees it, and as a Smockron master does.

use std::time::Duration;

use tollway_core::algorithm::{Bucket, LOG_MAX, SlidingLog, SlidingLogState, TokenBucket};
use tollway_core::{Decision, Nanos, Refund, Rule, Timestamp};
use tollway_testbed::{Random, compare};

use crate::history::{self, Model, Step};
use crate::naive;

impl Model for naive::NaiveSlidingLog {
    type Bucket = SlidingLogState;
    type Limit = SlidingLog;

    fn any_limit(random: &mut Random) -> SlidingLog {
        // The model looks at every entry for every one that goes, so the longest logs are rare.
        let count_max = if random.one_in(20_000) { LOG_MAX } else { random.pick(&[3, 8, 30]) };
        let period_max = random.pick(&[20, 3_600_000_000_000, 3_600_000_000_000, Nanos::MAX.get()]);
        let (count, period) = (random.between(1, count_max), random.between(1, period_max));
        SlidingLog::new(count, Duration::from_nanos(period)).expect("neither is zero or too large")
    }

    fn spans(limit: &SlidingLog) -> (u64, u64) {
        (limit.period().get() / limit.count(), limit.period().get())
    }

    fn cost_max(limit: &SlidingLog) -> u64 {
        limit.count()
    }

    fn spend(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Option<Refund> {
        Some(self.refund(limit, cost, now))
    }
}

#[test]
fn every_answer_is_that_of_counting_again() {
    compare(history::unruly::<naive::NaiveSlidingLog>, history::run::<naive::NaiveSlidingLog>);
}

#[test]
fn says_when_one_more_is_left_at_the_latest() {
    compare(history::calm::<naive::NaiveSlidingLog>, |steps| {
        history::run_more::<naive::NaiveSlidingLog>(steps, false)
    });
}

#[test]
fn lets_in_exactly_so_many_in_any_period() {
    compare(history::calm::<naive::NaiveSlidingLog>, run_windows);
}

/// All that was ever let in is kept, and those of the last period are counted.
fn run_windows(steps: &[Step<SlidingLog>]) -> Result<u64, String> {
    let Some(Step::Limit(limit)) = steps.first() else { return Ok(0) };
    let (mut log, mut admitted, mut decisions) = (SlidingLogState::default(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let Step::Spend { cost, now } = step else { continue };
        let recent = admitted.iter().filter(|(at, _)| now - at < limit.period().get());
        let fits = recent.map(|(_, cost)| cost).sum::<u64>() + cost <= limit.count();
        let allowed = log.charge(limit, *cost, Timestamp::from_nanos(*now)).allowed();
        if allowed != fits {
            return Err(format!("step {index}: allowed is {allowed}, but counting says otherwise"));
        }
        if allowed {
            admitted.push((*now, *cost));
        }
        decisions += 1;
    }
    Ok(decisions)
}

/// An event of a log that rules and Smockron masters read: entries come in any order.
#[derive(Clone, Debug)]
enum Event {
    Record { at: u64 },
    Reached { count: usize, span: u64, now: u64 },
    NextAllowed { burst: u64, count: u64, period: u64, now: u64 },
}

/// No question is about more entries than this, so no more are kept.
const KEPT: usize = 6;

fn events(random: &mut Random) -> Vec<Event> {
    let mut now = random.pick(&[0, 1_700_000_000_000_000_000]);
    // In whole milliseconds, as the protocol has them, so that entries often meet and ages are often exact.
    let unit = random.pick(&[1, 1_000_000]);
    let event = |_| {
        now += unit * random.pick(&[0, 0, 1, 1, 2, 5]);
        let near = unit * random.between(0, 8);
        match random.between(0, 2) {
            0 => Event::Record { at: (now + near).saturating_sub(4 * unit) },
            1 => {
                let count = random.pick(&[0, 1, 2, 3, 4, 5, KEPT]);
                Event::Reached { count, span: unit * random.between(1, 12), now }
            }
            _ => {
                let (burst, count) = (random.between(1, KEPT as u64), random.between(1, 7));
                Event::NextAllowed { burst, count, period: unit * random.between(7, 12), now }
            }
        }
    };
    (0..60).map(event).collect()
}

#[test]
fn rules_and_masters_see_every_entry_in_its_place() {
    compare(events, run_events);
}

fn run_events(events: &[Event]) -> Result<u64, String> {
    let (mut log, mut all, mut decisions) = (SlidingLogState::default(), Vec::new(), 0);
    for (index, event) in events.iter().enumerate() {
        let place = |why| format!("event {index}: {why}");
        match *event {
            Event::Record { at } => {
                log.record(Timestamp::from_nanos(at), KEPT, Nanos::MAX);
                all.push(at);
                continue;
            }
            Event::Reached { count, span, now } => {
                let found = log.reached(count, Nanos::new(span), Timestamp::from_nanos(now));
                history::same(&naive_reached(&all, count, span, now), &found, "reached").map_err(place)?;
            }
            Event::NextAllowed { burst, count, period, now } => {
                let limit =
                    TokenBucket::new(burst, count, Duration::from_nanos(period)).expect("valid numbers");
                let found = log.next_allowed(&limit, Timestamp::from_nanos(now)).map(Timestamp::as_nanos);
                let expected = naive_next_allowed(&all, &limit, now);
                history::same(&expected, &found, "next allowed").map_err(place)?;
            }
        }
        decisions += 1;
    }
    Ok(decisions)
}

/// The log has at least COUNT entries and the COUNT-th newest is younger than SPAN.
fn naive_reached(all: &[u64], count: usize, span: u64, now: u64) -> bool {
    let mut newest_first = all.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    count == 0
        || newest_first.len() >= count
            && i128::from(now) - i128::from(newest_first[count - 1]) < i128::from(span)
}

/// If fewer than `burst` entries are no older than `burst / rate`, nothing; else `max(now, newest) + 1 / rate`.
fn naive_next_allowed(all: &[u64], limit: &TokenBucket, now: u64) -> Option<u64> {
    let [burst, count, period] = [limit.burst(), limit.count(), limit.period().get()].map(i128::from);
    // An entry is no older than burst / (count / period); multiplied out, nothing is rounded.
    let recent = all.iter().filter(|entry| (i128::from(now) - i128::from(**entry)) * count <= burst * period);
    if (recent.count() as i128) < burst {
        return None;
    }
    let newest = all.iter().copied().max()?;
    Some(now.max(newest) + limit.period().get() / limit.count())
}

#[test]
fn an_entry_exactly_as_old_as_the_burst_still_counts() {
    // Three a second: a third of one is no whole number of nanoseconds, but three of them are a second.
    let three_a_second = TokenBucket::new(3, 3, Duration::from_secs(1)).unwrap();
    let mut log = SlidingLogState::default();
    for _ in 0..3 {
        log.record(Timestamp::EPOCH, 3, Nanos::from_secs(2));
    }
    let next_allowed = |nanos| log.next_allowed(&three_a_second, Timestamp::from_nanos(nanos));
    assert_eq!(next_allowed(1_000_000_000), Some(Timestamp::from_nanos(1_333_333_333)));
    assert_eq!(next_allowed(1_000_000_001), None);
}

#[test]
fn a_log_fallen_silent_stays_so_under_a_longer_period() {
    let limit = |period| Step::Limit(SlidingLog::new(1, Duration::from_nanos(period)).unwrap());
    let steps = [limit(5), Step::Spend { cost: 1, now: 0 }, limit(50), Step::Spend { cost: 1, now: 5 }];
    assert_eq!(history::run::<naive::NaiveSlidingLog>(&steps).err(), None);
}

#[test]
fn the_length_of_a_log_is_known_before_a_charge() {
    compare(history::unruly::<naive::NaiveSlidingLog>, |steps| {
        each_charge(steps, |log, limit, cost, now| {
            let cost = cost.min(limit.count());
            let expected = log.entries_after(limit, cost, now);
            let _ = log.charge(limit, cost, now);
            history::same(&expected, &log.entries(), "entries")
        })
    });
}

#[test]
fn a_trimmed_log_answers_as_before() {
    compare(history::calm::<naive::NaiveSlidingLog>, |steps| {
        each_charge(steps, |log, limit, cost, now| {
            let mut trimmed = log.clone();
            trimmed.trim(now);
            let (expected, found) = (log.charge(limit, cost, now), trimmed.charge(limit, cost, now));
            history::same(&expected, &found, "decisions agree")
        })
    });
}

/// Hands every charge of a history to `charge`, with one log, and returns the number of charges.
fn each_charge(
    steps: &[Step<SlidingLog>],
    mut charge: impl FnMut(&mut SlidingLogState, &SlidingLog, u64, Timestamp) -> Result<(), String>,
) -> Result<u64, String> {
    let (mut limit, mut log, mut charges) = (None, SlidingLogState::default(), 0);
    for (index, step) in steps.iter().enumerate() {
        match (step, limit) {
            (Step::Limit(changed), _) => limit = Some(changed),
            (Step::Spend { cost, now }, Some(limit)) => {
                charge(&mut log, limit, *cost, Timestamp::from_nanos(*now))
                    .map_err(|why| format!("step {index}: {why}"))?;
                charges += 1;
            }
            _ => {}
        }
    }
    Ok(charges)
}

#[test]
fn a_trimmed_log_of_a_rule_answers_as_before_and_its_length_is_known() {
    let rules: Vec<Rule> = ["3/s", "Or('4/s', '6/m')", "And('9/s', '5/2s')", "7/s"]
        .iter()
        .map(|rule| rule.parse().unwrap())
        .collect();
    let history = |random: &mut Random| -> Vec<(u64, u64)> {
        (0..40)
            .map(|_| (random.between(0, 3), random.pick(&[0, 1, 100, 400, 999, 1_000, 1_001, 61_000])))
            .collect()
    };
    compare(history, |requests| {
        let (mut log, mut trimmed, mut now) =
            (SlidingLogState::default(), SlidingLogState::default(), Timestamp::EPOCH);
        // One rule for the whole history: whoever reads a log with a longer span may find it trimmed to a shorter one.
        let Some((first, _)) = requests.first() else { return Ok(0) };
        let rule = &rules[usize::try_from(*first).unwrap_or(0)];
        for (index, (_, millis)) in requests.iter().enumerate() {
            let place = |why| format!("request {index} of {rule}: {why}");
            now = now + Nanos::from_millis(*millis);
            trimmed.trim(now);
            let until = |log: &SlidingLogState| rule.limits_until(|_| Some(log)) <= now;
            history::same(&until(&log), &until(&trimmed), "allowed").map_err(place)?;
            if until(&log) {
                for (log, name) in [(&mut log, "whole"), (&mut trimmed, "trimmed")] {
                    let expected = rule.logs()[0].retention().len_after(log, now);
                    rule.logs()[0].log(log, now);
                    history::same(&expected, &log.len(), name).map_err(place)?;
                }
            }
        }
        Ok(requests.len() as u64)
    });
}
