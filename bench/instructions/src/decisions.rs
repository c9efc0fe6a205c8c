//! Makes decisions with the library, in memory.

use std::error::Error;
use std::time::Duration;

use tollway::core::{Bill, Charge, ChargeRequest, RuleBill};
use tollway::{FixedWindow, Handle, IntoAlgorithm, Limiter, SlidingLog, SlidingWindow, TokenBucket};

/// The requests of each path.
pub(crate) const REQUESTS: usize = 32_768;
/// The ids of a path that is not about one id.
const IDS: usize = 16_384;
const BATCH: usize = 64;
const LIMIT: &str = "PerUser";
const BILL: [&str; 3] = ["PerUser", "PerMinute", "PerDay"];

/// Spends on one id, which is allowed.
pub(crate) fn spend_hot() -> Result<(), Box<dyn Error>> {
    let handle = generous(&[LIMIT])?.handle(LIMIT)?;
    let ids = vec!["user-0000000000".to_owned(); REQUESTS];
    spend_each(&handle, &ids[..1]);
    counted(|| spend_each(&handle, &ids), REQUESTS)
}

/// Spends on ids in no order, which all have buckets.
pub(crate) fn spend_cold() -> Result<(), Box<dyn Error>> {
    let handle = generous(&[LIMIT])?.handle(LIMIT)?;
    let ids = ids();
    spend_each(&handle, &ids);
    counted(|| spend_each(&handle, &ids), REQUESTS)
}

/// Spends on ids that have nothing left.
pub(crate) fn spend_denied() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().limit(LIMIT, TokenBucket::per_hour(1)).build()?;
    let (handle, ids) = (limiter.handle(LIMIT)?, ids());
    spend_each(&handle, &ids);
    counted(|| spend_each(&handle, &ids), 0)
}

/// Spends on ids in no order, 64 at a time.
pub(crate) fn spend_many() -> Result<(), Box<dyn Error>> {
    let (handle, ids) = (generous(&[LIMIT])?.handle(LIMIT)?, ids());
    spend_each(&handle, &ids);
    let mut decisions = Vec::with_capacity(BATCH);
    let spend = |ids: &[String]| {
        decisions.clear();
        handle
            .spend_many(ids, 1, &mut decisions)
            .map_or(0, |()| decisions.iter().filter(|made| made.allowed()).count())
    };
    counted(|| ids.chunks(BATCH).map(spend).sum(), REQUESTS)
}

/// Spends on ids in no order, under a limit whose buckets are fixed windows.
pub(crate) fn spend_fixed_window() -> Result<(), Box<dyn Error>> {
    spend_window(FixedWindow::new(1_000_000, Duration::from_secs(3_600), Duration::ZERO)?)
}

/// Spends on ids in no order, under a limit whose buckets are sliding windows.
pub(crate) fn spend_sliding_window() -> Result<(), Box<dyn Error>> {
    spend_window(SlidingWindow::new(1_000_000, Duration::from_secs(3_600))?)
}

fn spend_window(window: impl IntoAlgorithm) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().limit(LIMIT, window).build()?;
    let (handle, ids) = (limiter.handle(LIMIT)?, ids());
    spend_each(&handle, &ids);
    counted(|| spend_each(&handle, &ids), REQUESTS)
}

/// Settles bills of one charge for ids in no order, 64 at a time, as the gates do.
pub(crate) fn settle_in_batches() -> Result<(), Box<dyn Error>> {
    let limiter = generous(&[LIMIT])?;
    let ids = ids();
    spend_each(&limiter.handle(LIMIT)?, &ids);
    let (engine, policy) = (limiter.engine().blocking(), limiter.policy());
    let limit = policy.limit(LIMIT).ok_or("no such limit")?;
    let spend = |ids: &[String]| {
        let charges: Vec<_> = ids.iter().filter_map(|id| Charge::new(limit, id.as_bytes(), 1).ok()).collect();
        let bills: Vec<_> = charges.iter().map(Bill::one).collect();
        engine.settle(&bills).iter().filter(|decision| decision.allowed()).count()
    };
    counted(|| ids.chunks(BATCH).map(spend).sum(), REQUESTS)
}

/// Spends on ids in no order, each under three limits at once.
pub(crate) fn spend_bills() -> Result<(), Box<dyn Error>> {
    let (limiter, ids) = (generous(&BILL)?, ids());
    for limit in BILL {
        spend_each(&limiter.handle(limit)?, &ids);
    }
    let spend = |id: &&String| {
        let charges = BILL.map(|limit| ChargeRequest::new(limit, id.as_str(), 1));
        limiter.spend_all(&charges).is_ok_and(|decision| decision.allowed())
    };
    counted(|| ids.iter().filter(spend).count(), REQUESTS)
}

/// Asks a rule with one rate, for ids in no order that it allows.
pub(crate) fn ask_rule() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().rule("upload", "user:1000/h").build()?;
    let (engine, policy, ids) = (limiter.engine().blocking(), limiter.policy(), ids());
    let rule = policy.rule("upload").ok_or("no such rule")?;
    let ask = |id: &&String| {
        let bill: Result<RuleBill<'_>, _> = rule.bill_of("upload", |_| Some(Some(id.as_bytes())));
        bill.is_ok_and(|bill| engine.resolve(&bill).allowed())
    };
    ids.iter().filter(ask).count();
    counted(|| ids.iter().filter(ask).count(), REQUESTS)
}

/// Spends on ids in no order, under a limit that keeps the times of requests.
pub(crate) fn spend_log() -> Result<(), Box<dyn Error>> {
    let log = SlidingLog::new(1_000, Duration::from_secs(3_600))?;
    let limiter = Limiter::builder().limit(LIMIT, log).build()?;
    let (handle, ids) = (limiter.handle(LIMIT)?, ids());
    spend_each(&handle, &ids);
    counted(|| spend_each(&handle, &ids), REQUESTS)
}

/// Runs the work on a thread of its own, which is the one that is counted. It must allow as many requests as expected.
fn counted(work: impl FnOnce() -> usize + Send, expected: usize) -> Result<(), Box<dyn Error>> {
    let allowed = std::thread::scope(|scope| scope.spawn(work).join()).map_err(|_| "the work panicked")?;
    if allowed != expected {
        return Err(format!("{allowed} of {REQUESTS} were allowed, not {expected}").into());
    }
    Ok(())
}

fn spend_each(handle: &Handle, ids: &[String]) -> usize {
    ids.iter().filter(|id| handle.spend(id, 1).is_ok_and(|decision| decision.allowed())).count()
}

/// Returns a limiter whose limits deny nothing, and whose buckets are not full again before the end.
fn generous(names: &[&str]) -> Result<Limiter, Box<dyn Error>> {
    let add = |builder: tollway::LimiterBuilder, name: &&str| {
        builder.limit(name, TokenBucket::per_hour(1).burst(1_000_000))
    };
    Ok(names.iter().fold(Limiter::builder(), add).build()?)
}

/// Returns the ids of all requests. The step is odd, so that all ids come equally often, and none soon again.
fn ids() -> Vec<String> {
    (0..REQUESTS).map(|request| format!("user-{:010}", request * 7_919 % IDS)).collect()
}
