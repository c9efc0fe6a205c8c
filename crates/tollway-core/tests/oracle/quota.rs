//! The quota: as a named limit's window, and as the counter that Throttr sets, changes and reads.

use std::collections::HashMap;
use std::time::Duration;

use tollway_core::algorithm::{Change, Quota, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, TtlUnit};
use tollway_core::{Decision, Nanos, Refund, Timestamp};
use tollway_testbed::{Random, compare};

use crate::history::{self, Model, Step};
use crate::naive;

impl Model for naive::NaiveQuota {
    type Bucket = QuotaState;
    type Limit = Quota;

    fn any_limit(random: &mut Random) -> Quota {
        let count_max = random.pick(&[3, 20, 1_000, u64::MAX]);
        let period_max = random.pick(&[20, 3_600_000_000_000, 3_600_000_000_000, Nanos::MAX.get()]);
        let (count, period) = (random.between(1, count_max), random.between(1, period_max));
        Quota::new(count, Duration::from_nanos(period)).expect("neither is zero or too large")
    }

    fn spans(limit: &Quota) -> (u64, u64) {
        ((limit.period().get() / 4).max(1), limit.period().get())
    }

    fn cost_max(limit: &Quota) -> u64 {
        limit.count()
    }

    fn spend(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Option<Refund> {
        Some(self.refund(limit, cost, now))
    }
}

#[test]
fn every_answer_is_that_of_a_counter_and_an_expiry() {
    compare(history::unruly::<naive::NaiveQuota>, history::run::<naive::NaiveQuota>);
}

#[test]
fn says_when_one_more_is_left() {
    compare(history::calm::<naive::NaiveQuota>, |steps| history::run_more::<naive::NaiveQuota>(steps, true));
}

#[test]
fn a_changed_count_holds_in_the_middle_of_a_window() {
    let limit = |count| Step::Limit(Quota::new(count, Duration::from_secs(60)).unwrap());
    for changed in [2, 3, 4, 10] {
        let used = Step::Spend { cost: 3, now: 0 };
        let steps = [limit(3), used, limit(changed), Step::Spend { cost: 1, now: 1 }];
        assert_eq!(history::run::<naive::NaiveQuota>(&steps).err(), None);
    }
}

/// A command that a Throttr client may send about one of two pairs.
#[derive(Clone, Debug)]
enum Ask {
    Insert { quota: u64, ttl_type: u8, ttl: u64, over_live: bool },
    Query,
    UpdateQuota { change: Change, value: u64 },
    UpdateTtl { change: Change, value: u64 },
    Purge,
}

#[derive(Clone, Debug)]
struct Request {
    now: u64,
    pair: u8,
    ttl_max: u64,
    ask: Ask,
}

fn requests(random: &mut Random) -> Vec<Request> {
    let mut now = random.pick(&[0, 1_700_000_000_000_000_000]);
    let ttl_max = random.pick(&[1_000_000, 5_000_000_000, u64::MAX]);
    let request = |_| {
        let unit = random.pick(&[0, 1, 1_000_000, 1_000_000_000]);
        now += unit * random.between(0, 4);
        let change = random.pick(&[Change::Patch, Change::Increase, Change::Decrease]);
        let value = random.pick(&[0, 1, 2, 5, 1_000_000, u64::MAX]);
        let ask = match random.between(0, 9) {
            0..=2 => {
                let ttl_type = random.pick(&[0, 1, 2, 3, 255]);
                let (quota, over_live) = (random.pick(&[0, 1, 7, u64::MAX]), random.one_in(4));
                Ask::Insert { quota, ttl_type, ttl: value, over_live }
            }
            3..=5 => Ask::Query,
            6..=7 => Ask::UpdateQuota { change, value },
            8 => Ask::UpdateTtl { change, value },
            _ => Ask::Purge,
        };
        Request { now, pair: u8::from(random.one_in(2)), ttl_max, ask }
    };
    (0..60).map(request).collect()
}

#[test]
fn a_throttr_pair_is_a_quota_and_an_expiry() {
    compare(requests, run_requests);
}

/// The status, and what a successful query adds: quota, ttl_type, ttl.
type Reply = (bool, Option<(u64, u8, u64)>);

fn run_requests(requests: &[Request]) -> Result<u64, String> {
    let (mut pairs, mut naive) = (HashMap::new(), Throttr::default());
    for (index, request) in requests.iter().enumerate() {
        let found = answer(&mut pairs, request);
        history::same(&naive.answer(request), &found, "reply")
            .map_err(|why| format!("request {index}: {why}"))?;
    }
    Ok(requests.len() as u64)
}

/// The requests as a gate would put them to the quota. One that was never there is the type's default.
fn answer(pairs: &mut HashMap<u8, QuotaState>, request: &Request) -> Reply {
    let operation = match request.ask {
        Ask::Insert { quota, ttl_type, ttl, over_live } => QuotaOperation::Insert {
            left: quota,
            lifetime: QuotaTtl { value: ttl, unit: TtlUnit(ttl_type) },
            over_live,
        },
        Ask::Query => QuotaOperation::Query,
        Ask::UpdateQuota { change, value } => QuotaOperation::ChangeLeft { change, value },
        Ask::UpdateTtl { change, value } => QuotaOperation::ChangeLifetime { change, value },
        Ask::Purge => QuotaOperation::Purge,
    };
    let pair = pairs.entry(request.pair).or_default();
    match pair.apply(operation, Nanos::new(request.ttl_max), Timestamp::from_nanos(request.now)) {
        QuotaOutcome::Done => (true, None),
        QuotaOutcome::Found { left, lifetime } => (true, Some((left, lifetime.unit.0, lifetime.value))),
        _ => (false, None),
    }
}

/// A naive model that follows the specification with a map of wide integers.
#[derive(Default)]
struct Throttr {
    /// Quota, the unit as it came, and the expiry.
    pairs: HashMap<u8, (i128, u8, i128)>,
}

/// Moments end in 2554, so an expiry beyond that is one then.
const LAST_MOMENT: i128 = u64::MAX as i128;

impl Throttr {
    fn answer(&mut self, request: &Request) -> Reply {
        let now = i128::from(request.now);
        let latest = (now + i128::from(request.ttl_max)).min(LAST_MOMENT);
        self.pairs.retain(|_, (_, _, expiry)| *expiry > now);
        if let Ask::Insert { over_live: true, .. } = request.ask {
            self.pairs.remove(&request.pair);
        }
        let pair = self.pairs.get_mut(&request.pair);
        match (&request.ask, pair) {
            (Ask::Insert { quota, ttl_type, ttl, .. }, None) => {
                let expiry = (now + i128::from(*ttl) * unit(*ttl_type)).min(latest);
                self.pairs.insert(request.pair, (i128::from(*quota), *ttl_type, expiry));
                (true, None)
            }
            (Ask::Insert { .. }, Some(_)) | (_, None) => (false, None),
            (Ask::Query, Some((quota, ttl_type, expiry))) => {
                let ttl = (*expiry - now) / unit(*ttl_type);
                let fields = (u64::try_from(*quota), u64::try_from(ttl));
                (true, Some((fields.0.expect("a quota"), *ttl_type, fields.1.expect("a ttl"))))
            }
            (Ask::UpdateQuota { change, value }, Some((quota, _, _))) => {
                let value = i128::from(*value);
                *quota = match change {
                    Change::Patch => value,
                    Change::Increase => (*quota + value).min(i128::from(u64::MAX)),
                    Change::Decrease => (*quota - value).max(0),
                };
                (true, None)
            }
            (Ask::UpdateTtl { change, value }, Some((_, ttl_type, expiry))) => {
                let span = i128::from(*value) * unit(*ttl_type);
                *expiry = match change {
                    Change::Patch => (now + span).min(latest),
                    Change::Increase => (*expiry + span).min(latest),
                    Change::Decrease => *expiry - span,
                };
                (true, None)
            }
            (Ask::Purge, Some(_)) => {
                self.pairs.remove(&request.pair);
                (true, None)
            }
        }
    }
}

fn unit(ttl_type: u8) -> i128 {
    match ttl_type {
        0 => 1,
        1 => 1_000_000,
        _ => 1_000_000_000,
    }
}
