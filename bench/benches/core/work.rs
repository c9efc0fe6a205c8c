//! The work of one turn: a stream of ids for each thread, and the limiters of Tollway that decide about it.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tollway::core::algorithm::{Algorithm, TokenBucket};
use tollway::core::{Decision, Limit, Nanos, Policy};
use tollway::store::memory::Memory;
use tollway::{Clock, Handle, Limiter};
use tollway_bench::id_stream::{IdBuffer, IdDraw, Popularity};
use tollway_bench::rounds::{ContestResult, Contestant, alternate_prepared, time_threads};

/// The requests of one thread in a turn.
pub(crate) const REQUESTS: usize = 500_000;
/// The requests that are decided together.
pub(crate) const BATCH: usize = 64;
/// The name of the limit that everything is asked under.
pub(crate) const LIMIT: &str = "PerUser";

/// The decision that every request of a row gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The burst is so large that it is never used up. Refilling one unit takes longer than a row, so no bucket is full
    /// again meanwhile: a store may drop full ones, and the ids would not all be present.
    Allowed,
    /// The burst is one, and filling the store has used it up for an hour.
    Denied,
}

impl Outcome {
    /// Returns the burst of the limit, and the seconds in which one unit refills.
    pub(crate) const fn numbers(self) -> (u32, u64) {
        match self {
            Self::Allowed => (40_000_000, 100),
            Self::Denied => (1, 3_600),
        }
    }

    pub(crate) fn token_bucket(self) -> TokenBucket {
        let (burst, seconds) = self.numbers();
        TokenBucket::new(burst.into(), 1, Nanos::from_secs(seconds).into()).expect("numbers in range")
    }

    /// Ends the run if not all, or not none, of the requests of a turn were allowed.
    pub(crate) fn expect(self, allowed: usize, requests: usize) {
        let expected = if self == Self::Allowed { requests } else { 0 };
        assert_eq!(allowed, expected, "of {requests} requests, as many were allowed");
    }
}

/// Streams that are new in every turn.
pub(crate) struct Streams {
    sources: RefCell<Vec<IdDraw>>,
    current: RefCell<Vec<Vec<u32>>>,
}

impl Streams {
    pub(crate) fn new(popularity: Popularity, ids: u32, threads: usize) -> Self {
        let seeds = 1..=threads as u64;
        let sources = seeds.map(|seed| IdDraw::new(popularity, ids, seed)).collect();
        Self { sources: RefCell::new(sources), current: RefCell::default() }
    }

    /// Runs the contestants in turns, each with the same new streams.
    pub(crate) fn alternate(&self, turns: usize, contestants: &mut [Contestant<'_>]) -> Vec<ContestResult> {
        alternate_prepared(turns, || self.renew(), contestants)
    }

    fn renew(&self) {
        let mut sources = self.sources.borrow_mut();
        *self.current.borrow_mut() = sources.iter_mut().map(|source| source.stream(REQUESTS)).collect();
    }

    /// Runs each stream on a thread of its own. Only `ask` is timed, not the writing of the ids; it gets what `prepare`
    /// returned on its thread, and returns the number of requests that were allowed.
    pub(crate) fn time<T>(
        &self,
        outcome: Outcome,
        prepare: impl Fn() -> T + Sync,
        ask: impl Fn(&mut T, &[String]) -> usize + Sync,
    ) -> f64 {
        let streams = self.current.borrow();
        let streams: &[Vec<u32>] = &streams;
        time_threads(streams.len(), |thread, wait_for_all| {
            let (mut arrivals, mut state, mut took, mut allowed) =
                (IdBuffer::new(), prepare(), Duration::ZERO, 0);
            wait_for_all();
            for numbers in streams[thread].chunks(IdBuffer::SIZE) {
                let ids = arrivals.fill(numbers);
                let started = Instant::now();
                allowed += ask(&mut state, ids);
                took += started.elapsed();
            }
            outcome.expect(allowed, REQUESTS);
            (took, REQUESTS)
        })
    }
}

/// Calls `spend` once for every id, so that all buckets exist.
pub(crate) fn fill(ids: u32, mut spend: impl FnMut(&String)) {
    let mut arrivals = IdBuffer::new();
    let numbers: Vec<u32> = (0..ids).collect();
    numbers.chunks(IdBuffer::SIZE).for_each(|numbers| arrivals.fill(numbers).iter().for_each(&mut spend));
}

/// Returns a limiter with one limit and a bucket for every id.
pub(crate) fn filled_limiter(algorithm: impl Into<Algorithm>, ids: u32) -> Limiter {
    let limiter = limiter(&[LIMIT], algorithm, ids);
    let handle = limiter.handle(LIMIT).expect("it is configured");
    fill(ids, |id| assert!(handle.spend(id, 1).is_ok_and(|decision| decision.allowed())));
    limiter
}

/// Returns a limiter with these limits, which are all alike, and room for a bucket of every id under each.
pub(crate) fn limiter(names: &[&str], algorithm: impl Into<Algorithm>, ids: u32) -> Limiter {
    let algorithm = algorithm.into();
    let limits = names.iter().map(|name| Limit::new(name).expect("a name").with_default(algorithm));
    let policy = Policy::new(limits.collect()).expect("the names differ");
    // A tenth more than is needed, and never less than the default.
    let room = (ids as usize * names.len() * 11 / 10).max(tollway::store::memory::MAX_BUCKETS);
    Limiter::with(policy, Memory::new(room), Clock::monotonic())
}

/// A caller that asks Tollway on one thread.
pub(crate) struct Caller {
    handle: Handle,
    decisions: Vec<Decision>,
}

impl Caller {
    pub(crate) fn new(limiter: &Limiter, limit: &str) -> Self {
        Self {
            handle: limiter.handle(limit).expect("it is configured"),
            decisions: Vec::with_capacity(BATCH),
        }
    }

    /// Spends one for each id, one after another, and returns how many were allowed.
    pub(crate) fn spend_each(&mut self, ids: &[String]) -> usize {
        ids.iter().filter(|id| self.handle.spend(id, 1).is_ok_and(|decision| decision.allowed())).count()
    }

    /// Spends one for each id, in batches, and returns how many were allowed.
    pub(crate) fn spend_in_batches(&mut self, ids: &[String]) -> usize {
        ids.chunks(BATCH).map(|ids| self.spend_batch(ids)).sum()
    }

    /// Spends one for each id of one batch, and returns how many were allowed.
    pub(crate) fn spend_batch(&mut self, ids: &[String]) -> usize {
        self.decisions.clear();
        self.handle.spend_many(ids, 1, &mut self.decisions).expect("ids and costs that the limit takes");
        self.decisions.iter().filter(|decision| decision.allowed()).count()
    }
}
