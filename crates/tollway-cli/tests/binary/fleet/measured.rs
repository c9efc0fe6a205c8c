//! What came of a run, by what the service saw and the gatekeepers counted.

use std::fmt;
use std::time::{Duration, Instant};

use super::load::{GREEDY, Sent};
use super::members::{Arrival, BURST, Fleet, GUARDS, RATE};

pub(crate) struct Measured {
    seconds: f64,
    /// A burst, and then the rate.
    pub(crate) expected: f64,
    /// What the service saw of the greedy client.
    pub(crate) passed: f64,
    /// How much of it did not wait.
    pub(crate) at_once: u64,
    delayed: u64,
    rejected: u64,
    pub(crate) overtaken: usize,
    /// Everything that was ever said about anybody else.
    pub(crate) others_delayed: usize,
}

impl Measured {
    pub(crate) async fn new(fleet: &Fleet, lasting: Duration) -> Self {
        let (greedy, others): (Vec<_>, Vec<_>) =
            fleet.arrivals().into_iter().partition(|arrival| arrival.client == GREEDY);
        let end = greedy[0].at + lasting;
        let told = fleet.overheard.told();
        Self {
            seconds: lasting.as_secs_f64(),
            expected: f64::from(BURST) + f64::from(RATE) * lasting.as_secs_f64(),
            passed: count(&greedy, greedy[0].at, end),
            at_once: fleet.count("accepted").await.saturating_sub(others.len() as u64),
            delayed: fleet.count("delayed").await,
            rejected: fleet.count("rejected").await,
            overtaken: (0..GUARDS).map(|guard| overtaken(&greedy, guard)).sum(),
            others_delayed: told.iter().filter(|told| told.client != GREEDY).count(),
        }
    }
}

/// As a row of a table, under its head.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seconds  expected  passed  at once  delayed  rejected  out of order  others delayed")?;
        write!(f, "{:>7}  {:>8}  {:>6}  ", self.seconds, self.expected, self.passed)?;
        write!(f, "{:>7}  {:>7}  {:>8}  ", self.at_once, self.delayed, self.rejected)?;
        write!(f, "{:>12}  {:>14}", self.overtaken, self.others_delayed)
    }
}

/// How many came from then until then.
pub(crate) fn count(arrivals: &[Arrival], from: Instant, until: Instant) -> f64 {
    let count = arrivals.iter().filter(|arrival| (from..until).contains(&arrival.at)).count();
    f64::from(u32::try_from(count).unwrap())
}

/// How many came later than one that was sent after them through the same gatekeeper.
fn overtaken(arrivals: &[Arrival], guard: usize) -> usize {
    let numbers = arrivals.iter().filter(|arrival| arrival.guard == guard).map(|arrival| arrival.number);
    let mut latest = 0;
    let is_overtaken = |number: &u32| {
        latest = latest.max(*number);
        *number < latest
    };
    numbers.filter(is_overtaken).count()
}

/// Requests that did not get what they should: an answer of the service, or, for who is greedy, a rejection.
pub(crate) fn failures(sent: &[Sent]) -> Vec<&Sent> {
    let as_it_should = |sent: &&Sent| match sent.answer {
        Ok(200) => true,
        Ok(503) => sent.client == GREEDY,
        _ => false,
    };
    sent.iter().filter(|sent| !as_it_should(sent)).collect()
}
