//! Runs one hot path on a thread of its own, so that a tool can count the instructions of that thread.
//!
//! ```text
//! tollway-instructions            lists the paths, each with the number of requests that it makes
//! tollway-instructions spend-hot  runs one of them
//! ```
//!
//! `cargo xtask instructions` runs each path under callgrind. The main thread prepares, and is the client of the gates;
//! only the thread that decides is counted. Ids, their order and the number of requests never change. The decisions are
//! checked, so that no path is short because it fails.

mod decisions;
mod gates;

use std::error::Error;
use std::process::ExitCode;

/// A path: its name, the number of requests that it makes, and how it runs.
type HotPath = (&'static str, usize, fn() -> Result<(), Box<dyn Error>>);

const PATHS: [HotPath; 14] = [
    ("spend-hot", decisions::REQUESTS, decisions::spend_hot),
    ("spend-cold", decisions::REQUESTS, decisions::spend_cold),
    ("spend-denied", decisions::REQUESTS, decisions::spend_denied),
    ("spend-many", decisions::REQUESTS, decisions::spend_many),
    ("bills-64-at-a-time", decisions::REQUESTS, decisions::settle_in_batches),
    ("fixed-window", decisions::REQUESTS, decisions::spend_fixed_window),
    ("sliding-window", decisions::REQUESTS, decisions::spend_sliding_window),
    ("bill-of-three", decisions::REQUESTS, decisions::spend_bills),
    ("rule", decisions::REQUESTS, decisions::ask_rule),
    ("sliding-log", decisions::REQUESTS, decisions::spend_log),
    ("text", gates::SINGLE_REQUESTS, gates::text),
    ("throttr", gates::BATCHED_REQUESTS, gates::throttr),
    ("resp-cl-throttle", gates::BATCHED_REQUESTS, gates::resp),
    ("http-spend", gates::SINGLE_REQUESTS, gates::http),
];

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        PATHS.iter().for_each(|(name, requests, _)| println!("{name} {requests}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, _, run)) = PATHS.iter().find(|(known, ..)| *known == name) else {
        eprintln!("no path is called {name}");
        return ExitCode::FAILURE;
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
