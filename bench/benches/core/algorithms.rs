//! Compares the algorithms with the token bucket, in the same store.

use std::time::Duration;

use tollway::Limiter;
use tollway::core::algorithm::{FixedWindow, SlidingLog, SlidingWindow, WINDOW_COUNT_MAX};
use tollway_bench::id_stream::Popularity;
use tollway_bench::rounds::Contestant;

use crate::MILLION;
use crate::work::{Caller, LIMIT, Outcome, REQUESTS, Streams, filled_limiter};

/// The window of a million ids. It is so short that a bucket is in another one at nearly every request, and a log keeps
/// few entries.
const PERIOD: Duration = Duration::from_secs(1);
/// The window of one id, whose log would otherwise be full after milliseconds.
const HOT_PERIOD: Duration = Duration::from_micros(100);
/// The longest log that is kept here. No period has so many requests of one id.
const LOG: u64 = 4_096;

/// Measures the algorithms, and returns their table.
pub(crate) fn compare(turns: usize) -> String {
    let mut table = format!(
        "{turns} turns of {REQUESTS} decisions, alternating, on one thread: median (lowest to highest) in nanoseconds, \
         and\nthe speed relative to the token bucket, turn by turn.\n\n\
         | | token bucket | fixed window | sliding window | sliding log |\n|---|---|---|---|---|\n"
    );
    for (title, popularity, ids, period) in [
        ("uniform, 1M ids", Popularity::Uniform, MILLION, PERIOD),
        ("one id", Popularity::One, 1, HOT_PERIOD),
    ] {
        let limiters = limiters(ids, period);
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
fn limiters(ids: u32, period: Duration) -> [(&'static str, Limiter); 4] {
    let (burst, _) = Outcome::Allowed.numbers();
    let fixed = FixedWindow::new(burst.into(), period, Duration::ZERO).expect("numbers in range");
    let window = SlidingWindow::new(WINDOW_COUNT_MAX, period).expect("numbers in range");
    let log = SlidingLog::new(LOG, period).expect("numbers in range");
    [
        ("token bucket", filled_limiter(Outcome::Allowed.token_bucket(), ids)),
        ("fixed window", filled_limiter(fixed, ids)),
        ("sliding window", filled_limiter(window, ids)),
        ("sliding log", filled_limiter(log, ids)),
    ]
}
