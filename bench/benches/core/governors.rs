//! Compares single spends with the `governor` crate: both of its stores, with its default hasher and with a fast one,
//! each with both of its clocks.
//!
//! The upkeep clock is a cached time, which a thread of its own renews every millisecond. That thread runs only while
//! its contestant does. Both clocks use one filled store, which moves from one limiter to the next: 10M ids take more
//! than a gigabyte.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, QuantaClock, QuantaInstant, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::{DashMapStateStore, HashMapStateStore, KeyedStateStore};
use governor::{Quota, RateLimiter};
use tollway_bench::id_stream::Popularity;
use tollway_bench::rounds::{ContestResult, Contestant};

use crate::work::{BATCH, Caller, Outcome, REQUESTS, Streams, fill, filled_limiter};

/// A row that is measured with one and with two threads.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    title: &'static str,
    popularity: Popularity,
    ids: u32,
    outcome: Outcome,
}

impl Row {
    pub(crate) const fn new(
        name: &'static str,
        title: &'static str,
        popularity: Popularity,
        ids: u32,
        outcome: Outcome,
    ) -> Self {
        Self { name, title, popularity, ids, outcome }
    }
}

/// The contestants in the order of their columns. Each of governor's is the faster of its two stores.
const COLUMNS: [&str; 6] = [
    "governor",
    "governor, upkeep",
    "governor, foldhash",
    "governor, foldhash, upkeep",
    "tollway",
    "tollway, 64 at a time",
];
const OURS: [usize; 2] = [4, 5];

/// Measures the rows, and returns their tables.
pub(crate) fn compare(rows: &[&Row], turns: usize) -> String {
    let mut nanos =
        format!("| nanoseconds a decision | {} |\n|---|---|---|---|---|---|---|\n", COLUMNS.join(" | "));
    let mut ratios = "| times as fast as governor | one at a time, to its default | to foldhash \
                      | 64 at a time, to its default | to foldhash |\n|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        for (threads, standings) in measure(row, turns) {
            let threads = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
            let denied = if row.outcome == Outcome::Denied { ", denied" } else { "" };
            let title = format!("{}{denied}, {threads}", row.title);
            let columns = COLUMNS.map(|name| fastest(&standings, |standing| in_column(standing, name)));
            let cells: Vec<_> = columns.iter().map(|column| format!("{:.0}", column.nanos)).collect();
            nanos += &format!("| {title} | {} |\n", cells.join(" | "));
            let [default, foldhash] = [false, true].map(|foldhash| {
                fastest(&standings, |standing| {
                    standing.name.starts_with("governor") && standing.name.contains("foldhash") == foldhash
                })
            });
            let beside = |ours: usize, other| columns[ours].ratio_to(other).as_ratio();
            let cells = OURS.map(|ours| format!("{} | {}", beside(ours, default), beside(ours, foldhash)));
            ratios += &format!("| {title} | {} |\n", cells.join(" | "));
        }
    }
    format!(
        "{turns} turns of {REQUESTS} decisions a thread, alternating, each turn with a new stream of ids: median \
         (lowest to highest),\nand ratios turn by turn, to governor's fastest store and clock.\n\n{nanos}\n{ratios}"
    )
}

/// Returns true if the standing, without the name of governor's store, has this name.
fn in_column(standing: &ContestResult, column: &str) -> bool {
    standing.name.replace(", dashmap", "").replace(", hashmap", "") == column
}

fn fastest(standings: &[ContestResult], wanted: impl Fn(&ContestResult) -> bool) -> &ContestResult {
    let candidates = standings.iter().filter(|standing| wanted(standing));
    let by_median = |a: &&ContestResult, b: &&ContestResult| a.nanos.median.total_cmp(&b.nanos.median);
    candidates.min_by(by_median).expect("every column has a contestant")
}

/// Fills all stores with the ids of a row, and measures them with one thread and with two.
fn measure(row: &Row, turns: usize) -> Vec<(usize, Vec<ContestResult>)> {
    eprintln!("{}: filling", row.name);
    let dashmap = FilledStore::new(row, DashMapStateStore::<String>::default());
    let dashmap_foldhash = FilledStore::new(row, DashMapStateStore::with_hasher(foldhash()));
    let hashmap = FilledStore::new(row, HashMapStateStore::<String>::default());
    let hashmap_foldhash =
        FilledStore::new(row, HashMapStateStore::new(std::collections::HashMap::with_hasher(foldhash())));
    let ours = filled_limiter(row.outcome.token_bucket(), row.ids);
    let run = |threads: usize| {
        let streams = Streams::new(row.popularity, row.ids, threads);
        let caller = || Caller::new(&ours, crate::work::LIMIT);
        let mut contestants =
            dashmap.contestants(["governor, dashmap", "governor, dashmap, upkeep"], &streams);
        contestants.extend(
            dashmap_foldhash.contestants(
                ["governor, dashmap, foldhash", "governor, dashmap, foldhash, upkeep"],
                &streams,
            ),
        );
        // Behind one lock: it could only lose with two threads.
        if threads == 1 {
            contestants
                .extend(hashmap.contestants(["governor, hashmap", "governor, hashmap, upkeep"], &streams));
            contestants.extend(hashmap_foldhash.contestants(
                ["governor, hashmap, foldhash", "governor, hashmap, foldhash, upkeep"],
                &streams,
            ));
        }
        contestants.push(Contestant {
            name: COLUMNS[OURS[0]],
            work: Box::new(|| streams.time(row.outcome, caller, Caller::spend_each)),
        });
        contestants.push(Contestant {
            name: COLUMNS[OURS[1]],
            work: Box::new(|| streams.time(row.outcome, caller, Caller::spend_in_batches)),
        });
        let standings = streams.alternate(turns, &mut contestants);
        eprintln!("{}, {threads} threads, batches of {BATCH}", row.name);
        for standing in &standings {
            eprintln!("  {:38} {:>26} ns", standing.name, format!("{:.1}", standing.nanos));
        }
        (threads, standings)
    };
    [1, 2].map(run).into()
}

fn foldhash() -> foldhash::fast::RandomState {
    foldhash::fast::RandomState::default()
}

/// A limiter of governor's that answers as its defaults do.
type Limiter<S, C> = RateLimiter<String, S, C, NoOpMiddleware<QuantaInstant>>;

/// A store of governor's that has a state for every id of a row.
struct FilledStore<S> {
    /// The store, except while a limiter has it.
    store: RefCell<Option<S>>,
    outcome: Outcome,
}

impl<S: KeyedStateStore<String> + Sync> FilledStore<S> {
    fn new(row: &Row, store: S) -> Self {
        let limiter: Limiter<S, _> = RateLimiter::new(quota(row.outcome), store, QuantaClock::default());
        fill(row.ids, |id| assert!(limiter.check_key(id).is_ok()));
        Self { store: RefCell::new(Some(limiter.into_state_store())), outcome: row.outcome }
    }

    /// Returns a contestant with the clock that reads the processor's counter, and one with the cached time.
    fn contestants<'a>(&'a self, names: [&'a str; 2], streams: &'a Streams) -> Vec<Contestant<'a>> {
        let read = move || self.turn(QuantaClock::default(), streams);
        let cached = move || {
            let clock = QuantaUpkeepClock::from_interval(Duration::from_millis(1));
            self.turn(clock.expect("no other upkeep thread runs"), streams)
        };
        let [first, second] = names;
        vec![
            Contestant { name: first, work: Box::new(read) },
            Contestant { name: second, work: Box::new(cached) },
        ]
    }

    fn turn<C: Clock<Instant = QuantaInstant> + Sync>(&self, clock: C, streams: &Streams) -> f64 {
        let store = self.store.take().expect("one limiter has it at a time");
        let limiter: Limiter<S, C> = RateLimiter::new(quota(self.outcome), store, clock);
        let nanos = streams.time(
            self.outcome,
            || (),
            |(), ids| ids.iter().filter(|id| limiter.check_key(id).is_ok()).count(),
        );
        self.store.replace(Some(limiter.into_state_store()));
        nanos
    }
}

fn quota(outcome: Outcome) -> Quota {
    let (burst, seconds) = outcome.numbers();
    let burst = NonZeroU32::new(burst).expect("not zero");
    Quota::with_period(Duration::from_secs(seconds)).expect("not zero").allow_burst(burst)
}
