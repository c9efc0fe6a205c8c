//! Compares the algorithms with the token bucket, in the same store.

use std::time::Duration;

use tollway::Limiter;
use tollway::core::algorithm::{FixedWindow, SlidingLog, SlidingWindow, TokenBucket, WINDOW_COUNT_MAX};
use tollway_bench::id_stream::Popularity;
use tollway_bench::rounds::Contestant;

use crate::MILLION;
use crate::work::{Caller, LIMIT, Outcome, REQUESTS, Streams, filled_limiter};

/// The time after which the buckets of a row that were used once are unused again, and a sweep may drop them.
#[derive(Clone, Copy)]
struct Lifetime {
    of_windows: Duration,
    of_token_buckets: Duration,
    of_logs: Duration,
}

/// Every bucket stays in the store: the rows compare decisions, not the making of buckets. Logs are short-lived all
/// the same, because they would grow from turn to turn.
const KEPT: Lifetime = Lifetime {
    of_windows: Duration::from_hours(1_000),
    of_token_buckets: Duration::from_secs(100),
    of_logs: Duration::from_secs(1),
};
/// Nearly every bucket has expired when it is asked for again, and many were swept.
const EXPIRING: Lifetime = Lifetime {
    of_windows: Duration::from_secs(1),
    of_token_buckets: Duration::from_secs(1),
    of_logs: Duration::from_secs(1),
};
/// The log of one id would otherwise be full after milliseconds.
const HOT: Lifetime = Lifetime { of_logs: Duration::from_micros(100), ..KEPT };

/// The longest log that is kept here. No period has so many requests of one id.
const LOG: u64 = 4_096;

/// Measures the algorithms, and returns their table.
pub(crate) fn compare(turns: usize) -> String {
    let mut table = format!(
        "{turns} turns of {REQUESTS} decisions, alternating, on one thread: median (lowest to highest) in nanoseconds, \
         and\nthe speed relative to the token bucket, turn by turn.\n\n\
         | | token bucket | fixed window | sliding window | sliding log |\n|---|---|---|---|---|\n"
    );
    for (title, popularity, ids, lifetime) in [
        ("uniform, 100k ids", Popularity::Uniform, MILLION / 10, KEPT),
        ("uniform, 1M ids", Popularity::Uniform, MILLION, KEPT),
        ("uniform, 10M ids", Popularity::Uniform, 10 * MILLION, KEPT),
        ("uniform, 1M ids, buckets expire after a second", Popularity::Uniform, MILLION, EXPIRING),
        ("one id", Popularity::One, 1, HOT),
    ] {
        let limiters = limiters(ids, lifetime);
        let streams = Streams::new(popularity, ids, 1);
        for (way, ask) in
            [("one at a time", Caller::spend_each as Ask), ("64 at a time", Caller::spend_in_batches)]
        {
            eprintln!("algorithms: {title}, {way}");
            let mut contestants = limiters.each_ref().map(|(name, limiter)| Contestant {
                name,
                work: Box::new(|| streams.time(Outcome::Allowed, || Caller::new(limiter, LIMIT), ask)),
            });
            let standings = streams.alternate(turns, &mut contestants);
            let cells = standings.iter().enumerate().map(|(index, standing)| match index {
                0 => format!("{:.0}", standing.nanos),
                _ => format!("{:.0}: {:.2}", standing.nanos, standing.ratio),
            });
            table += &format!("| {title}, {way} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
    }
    table
}

type Ask = fn(&mut Caller, &[String]) -> usize;

/// Returns a limiter for each algorithm, with a bucket for every id, and with numbers that deny nothing.
fn limiters(ids: u32, lifetime: Lifetime) -> [(&'static str, Limiter); 4] {
    let (burst, _) = Outcome::Allowed.numbers();
    let bucket = TokenBucket::new(burst.into(), 1, lifetime.of_token_buckets);
    let fixed = FixedWindow::new(burst.into(), lifetime.of_windows, Duration::ZERO);
    let window = SlidingWindow::new(WINDOW_COUNT_MAX, lifetime.of_windows);
    let log = SlidingLog::new(LOG, lifetime.of_logs);
    let in_range = "numbers in range";
    [
        ("token bucket", filled_limiter(bucket.expect(in_range), ids)),
        ("fixed window", filled_limiter(fixed.expect(in_range), ids)),
        ("sliding window", filled_limiter(window.expect(in_range), ids)),
        ("sliding log", filled_limiter(log.expect(in_range), ids)),
    ]
}
