//! Runs the command `tollway`.
//!
//! Every subcommand is a file in `command/`: its arguments, its help, and a `run` that returns its [`Outcome`], which
//! is the exit code: 0 for yes, 1 for no (a reply differed, a file is invalid), 2 for an error.

mod command;
mod hint;
mod logging;
mod output;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use tollway::core::ErrorChain;

use crate::command::{Arguments, Outcome};
use crate::output::OutputError;

/// The exit code that a shell reports for a program that wrote to a pipe which nobody read any more.
const READER_LEFT: u8 = 141;

fn main() -> ExitCode {
    match Arguments::parse().command.run() {
        Ok(Outcome::Yes) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => {
            ExitCode::from(READER_LEFT)
        }
        Err(error) => {
            // Not `eprintln`, which panics where nobody listens.
            let hint = hint::hint(&error).map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            let _ = writeln!(io::stderr(), "tollway: {}{hint}", ErrorChain(error.as_ref()));
            ExitCode::from(2)
        }
    }
}
