//! Counts how often keys were used, for the key rules that have `stats`.
//!
//! Each worker writes its own counters, so that two cores never wait for one; a reader adds them up. These are the only
//! names of keys that are kept, so their number is bounded.

use std::collections::HashMap;
use std::sync::Mutex;

use tollway_core::Timestamp;
use tollway_wire::text::{KeyStats, OverLimit};

/// The length of a window: five minutes. A window ends at a multiple of it, by the wall clock.
const WINDOW_SECONDS: u64 = 300;
/// The number of keys that each worker keeps statistics of. Later keys have none.
const KEYS_MAX: usize = 100_000;

/// Holds the statistics of all keys, one table for each worker.
#[derive(Debug)]
pub(crate) struct Stats {
    workers: Vec<Mutex<HashMap<Box<[u8]>, Record>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    n_req: u64,
    n_over: u64,
    window: u64,
    max_rate: f64,
    last_max_rate: f64,
}

impl Stats {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn record(&self, worker: usize, key: &[u8], answer: &OverLimit, now: Timestamp) {
        let mut records = self.workers[worker].lock().expect("nobody panics while counting");
        if let Some(record) = records.get_mut(key) {
            record.add(answer, now);
        } else if records.len() < KEYS_MAX {
            records.entry(key.into()).or_default().add(answer, now);
        }
    }

    /// Returns the statistics of a key; zeros for a key that is not known.
    pub(crate) fn of(&self, key: &[u8], now: Timestamp) -> KeyStats {
        let mut sum = KeyStats::default();
        for records in &self.workers {
            let record = records.lock().expect("nobody panics while counting").get(key).copied();
            let record = record.unwrap_or_default().at(now);
            sum.n_req += record.n_req;
            sum.n_over += record.n_over;
            sum.last_max_rate = sum.last_max_rate.max(whole_part(record.last_max_rate));
        }
        sum
    }
}

impl Record {
    fn add(&mut self, answer: &OverLimit, now: Timestamp) {
        *self = self.at(now);
        self.n_req += 1;
        self.n_over += u64::from(answer.over);
        self.max_rate = self.max_rate.max(answer.rate);
    }

    /// Returns the record as it reads in the window of `now`.
    fn at(self, now: Timestamp) -> Self {
        let window = now.as_nanos() / 1_000_000_000 / WINDOW_SECONDS;
        match window.saturating_sub(self.window) {
            0 => self,
            1 => Self { window, last_max_rate: self.max_rate, max_rate: 0.0, ..self },
            _ => Self { window, last_max_rate: 0.0, max_rate: 0.0, ..self },
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is at least 0, and `as` saturates"
)]
const fn whole_part(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests {
    use tollway_core::Nanos;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_secs(seconds)
    }

    fn answer(rate: f64, over: bool) -> OverLimit {
        OverLimit::new(over, rate, 10.0, 1)
    }

    #[test]
    fn the_highest_rate_is_that_of_the_window_before() {
        let stats = Stats::new(2);
        stats.record(0, b"k", &answer(7.9, false), at(10));
        stats.record(1, b"k", &answer(12.1, true), at(299));
        stats.record(0, b"k", &answer(3.0, false), at(299));
        let read = |seconds| stats.of(b"k", at(seconds));
        assert_eq!(read(299), KeyStats::new(3, 1, 0));
        assert_eq!(read(300), KeyStats::new(3, 1, 12));
        assert_eq!(read(599).last_max_rate, 12);
        assert_eq!(read(600).last_max_rate, 0, "nothing came in the window before");
        stats.record(0, b"k", &answer(5.5, false), at(600));
        assert_eq!((read(600).last_max_rate, read(900).last_max_rate), (0, 5));
    }

    #[test]
    fn the_keys_that_are_kept_are_bounded() {
        let stats = Stats::new(1);
        for number in 0..=KEYS_MAX {
            stats.record(0, number.to_string().as_bytes(), &answer(1.0, false), at(0));
        }
        assert_eq!(stats.of(b"0", at(0)).n_req, 1);
        assert_eq!(stats.of(KEYS_MAX.to_string().as_bytes(), at(0)), KeyStats::default());
    }
}
