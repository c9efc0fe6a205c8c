//! Measures a run by what the service saw and the gatekeepers counted.

use std::fmt;

use super::load::{GREEDY, Sent};
use super::members::{Arrival, Fleet, GUARDS};

pub(crate) struct Measured {
    /// The time from the first to the last request of the greedy client, by the clock of the service.
    pub(crate) seconds: f64,
    /// The number of requests that the service saw of the greedy client.
    pub(crate) passed: f64,
    /// The number of these that did not wait.
    pub(crate) at_once: u64,
    delayed: u64,
    pub(crate) rejected: u64,
    pub(crate) overtaken: usize,
    /// Everything that was ever said about anybody else.
    pub(crate) others_delayed: usize,
}

impl Measured {
    pub(crate) async fn new(fleet: &Fleet) -> Self {
        let (greedy, others): (Vec<_>, Vec<_>) =
            fleet.arrivals().into_iter().partition(|arrival| arrival.client == GREEDY);
        let delayed = fleet.overheard.clients();
        Self {
            seconds: (greedy[greedy.len() - 1].at - greedy[0].at).as_secs_f64(),
            passed: f64::from(u32::try_from(greedy.len()).unwrap()),
            at_once: fleet.count("accepted").await.saturating_sub(others.len() as u64),
            delayed: fleet.count("delayed").await,
            rejected: fleet.count("rejected").await,
            overtaken: (0..GUARDS).map(|guard| overtaken(&greedy, guard)).sum(),
            others_delayed: delayed.iter().filter(|client| !client.ends_with(GREEDY)).count(),
        }
    }
}

/// As a row of a table, under its head.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seconds  passed  at once  delayed  rejected  out of order  others delayed")?;
        write!(f, "{:>7.1}  {:>6}  ", self.seconds, self.passed)?;
        write!(f, "{:>7}  {:>7}  {:>8}  ", self.at_once, self.delayed, self.rejected)?;
        write!(f, "{:>12}  {:>14}", self.overtaken, self.others_delayed)
    }
}

/// Counts requests that came later than one that was sent after them through the same gatekeeper.
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
