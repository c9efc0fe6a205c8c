//! Compares bills of three charges with three spends of the same buckets: one id under three limits.

use tollway::Limiter;
use tollway::core::{Bill, Charge, ChargeRequest};
use tollway_bench::id_stream::Popularity;
use tollway_bench::rounds::Contestant;

use crate::MILLION;
use crate::work::{BATCH, Caller, Outcome, REQUESTS, Streams, fill, limiter};

const LIMITS: [&str; 3] = ["PerSecond", "PerMinute", "PerDay"];

/// Measures bills, and returns their table.
pub(crate) fn compare(turns: usize) -> String {
    let mut table = format!(
        "{turns} turns of {REQUESTS} bills, alternating, on one thread: median (lowest to highest), and ratios turn by \
         turn.\n\n\
         | nanoseconds | three spends | a bill of three | time of a bill / of three spends |\n|---|---|---|---|\n"
    );
    let rows: [(&str, Popularity, u32, Ask, Ask); 2] = [
        ("one id, one at a time", Popularity::One, 1, spend_three, spend_bill),
        ("uniform, 1M ids, 64 at a time", Popularity::Uniform, MILLION, spend_three_batches, settle_bills),
    ];
    for (title, popularity, ids, spends, bills) in rows {
        eprintln!("bills: {title}");
        let limiter = limiter(&LIMITS, Outcome::Allowed.token_bucket(), ids);
        fill(ids, |id| {
            for limit in LIMITS {
                assert!(limiter.spend(limit, id, 1).is_ok_and(|decision| decision.allowed()));
            }
        });
        let streams = Streams::new(popularity, ids, 1);
        let (streams, caller) = (&streams, || BillCaller::new(&limiter));
        let caller = &caller;
        let mut contestants = [("three spends", spends), ("a bill", bills)].map(|(name, ask)| Contestant {
            name,
            work: Box::new(move || streams.time(Outcome::Allowed, caller, ask)),
        });
        let standings = streams.alternate(turns, &mut contestants);
        let [spends, bills] = [&standings[0], &standings[1]];
        let ratio = spends.ratio_to(bills);
        table += &format!("| {title} | {:.0} | {:.0} | {ratio:.2} |\n", spends.nanos, bills.nanos);
    }
    table
}

/// A function that asks about these ids, each under all limits, and returns how many were allowed by all.
type Ask = fn(&mut BillCaller, &[String]) -> usize;

struct BillCaller {
    limiter: Limiter,
    callers: [Caller; 3],
}

impl BillCaller {
    fn new(limiter: &Limiter) -> Self {
        Self { limiter: limiter.clone(), callers: LIMITS.map(|limit| Caller::new(limiter, limit)) }
    }
}

/// Asks limit by limit, by name, as a bill does.
fn spend_three(caller: &mut BillCaller, ids: &[String]) -> usize {
    let spend = |limit, id| caller.limiter.spend(limit, id, 1).is_ok_and(|decision| decision.allowed());
    ids.iter().filter(|id| LIMITS.iter().all(|limit| spend(limit, *id))).count()
}

fn spend_bill(caller: &mut BillCaller, ids: &[String]) -> usize {
    let is_allowed = |id: &&String| {
        let charges = LIMITS.map(|limit| ChargeRequest::new(limit, id.as_str(), 1));
        caller.limiter.spend_all(&charges).is_ok_and(|decision| decision.allowed())
    };
    ids.iter().filter(is_allowed).count()
}

fn spend_three_batches(caller: &mut BillCaller, ids: &[String]) -> usize {
    let batches = ids.chunks(BATCH);
    let allowed = batches.map(|ids| caller.callers.each_mut().map(|caller| caller.spend_batch(ids)));
    allowed.map(|[first, second, third]| first.min(second).min(third)).sum()
}

fn settle_bills(caller: &mut BillCaller, ids: &[String]) -> usize {
    let engine = caller.limiter.engine().blocking();
    let policy = caller.limiter.policy();
    let limits = LIMITS.map(|limit| policy.limit(limit).expect("it is configured"));
    let settle = |ids: &[String]| {
        let charges = ids.iter().map(|id| limits.map(|limit| Charge::new(limit, id.as_bytes(), 1)));
        let charges: Vec<_> =
            charges.map(|charges| charges.map(|charge| charge.expect("a cost that fits"))).collect();
        let bills: Vec<_> = charges.iter().map(|charges| Bill::new(charges).expect("three limits")).collect();
        engine.settle(&bills).iter().filter(|decision| decision.allowed()).count()
    };
    ids.chunks(BATCH).map(settle).sum()
}
