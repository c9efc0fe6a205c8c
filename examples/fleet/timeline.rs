//! Prints the outcome of each client's requests, as they happen.
//!
//! ```text
//!            greedy at A   greedy at B   modest at A   modest at B
//!   0.5 s    ####          ####~         #
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tollway_tower::AdmitOutcome;

use crate::SERVICES;
use crate::clients::CLIENTS;

/// One line of the timeline.
const LINE: Duration = Duration::from_millis(500);

/// A service's report that tells the outcome of one request.
pub(crate) struct OutcomeReport {
    pub(crate) service: usize,
    pub(crate) client: String,
    pub(crate) outcome: Outcome,
}

/// The outcome that a request had.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    AtOnce,
    Waited,
    Rejected,
}

impl OutcomeReport {
    pub(crate) fn read(service: usize, line: &str) -> Option<Self> {
        let (client, word) = line.split_once(' ')?;
        let all = [Outcome::AtOnce, Outcome::Waited, Outcome::Rejected];
        let outcome = all.into_iter().find(|outcome| outcome.to_string() == word)?;
        Some(Self { service, client: client.to_owned(), outcome })
    }
}

impl From<AdmitOutcome> for Outcome {
    fn from(outcome: AdmitOutcome) -> Self {
        match outcome {
            AdmitOutcome::Delayed { .. } => Self::Waited,
            AdmitOutcome::Rejected { .. } => Self::Rejected,
            _ => Self::AtOnce,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtOnce => "passed at once",
            Self::Waited => "passed after a wait",
            Self::Rejected => "rejected",
        })
    }
}

impl Outcome {
    const fn sign(self) -> char {
        match self {
            Self::AtOnce => '#',
            Self::Waited => '~',
            Self::Rejected => '.',
        }
    }
}

pub(crate) struct Timeline {
    began: Instant,
    totals: HashMap<(String, Outcome), u32>,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        println!("  # passed at once   ~ passed after a wait   . rejected\n");
        let head = row(|client, service| format!("{client} at {}", SERVICES[service]));
        println!("  {:8}{}", "", head.trim_end());
        Self { began: Instant::now(), totals: HashMap::new() }
    }

    /// Shows what is reported, for so long.
    pub(crate) fn follow(&mut self, reports: &Receiver<OutcomeReport>, lasting: Duration) {
        let mut due = self.began;
        while due < self.began + lasting {
            due += LINE;
            let mut signs: HashMap<(String, usize), String> = HashMap::new();
            while let Ok(report) = reports.recv_timeout(due.saturating_duration_since(Instant::now())) {
                let OutcomeReport { service, client, outcome } = report;
                *self.totals.entry((client.clone(), outcome)).or_default() += 1;
                signs.entry((client, service)).or_default().push(outcome.sign());
            }
            let cell =
                |client: &str, service| signs.remove(&(client.to_owned(), service)).unwrap_or_default();
            println!("  {:4.1} s  {}", (due - self.began).as_secs_f64(), row(cell).trim_end());
        }
    }

    /// Prints the totals and explains them.
    pub(crate) fn explain(&self, seconds: u32) {
        println!();
        for (client, per_second) in CLIENTS {
            let total = |outcome| self.totals.get(&(client.to_owned(), outcome)).copied().unwrap_or(0);
            let [at_once, waited, rejected] =
                [Outcome::AtOnce, Outcome::Waited, Outcome::Rejected].map(total);
            println!(
                "{client}, {per_second} per second: {at_once} passed at once, {waited} after a wait, {rejected} were rejected"
            );
        }
        // Whoever waited at the end has passed in the second after.
        let seconds = seconds + 1;
        let limit = 8 + 4 * seconds;
        println!(
            "\nEight at once and four per second are {limit} in {seconds} seconds: greedy gets no more, from both services"
        );
        println!("together. A client below its limit is never delayed. No request waited for the master.");
    }
}

/// Builds a row that has one cell for each client at each service.
fn row(mut cell: impl FnMut(&str, usize) -> String) -> String {
    let mut row = String::new();
    for (client, _) in CLIENTS {
        for service in 0..SERVICES.len() {
            row += &format!("{:<14}", cell(client, service));
        }
    }
    row
}
