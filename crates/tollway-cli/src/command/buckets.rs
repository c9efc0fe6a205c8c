//! `tollway buckets`: moves live buckets between memory, journals and Redis.

mod export;
mod import;
mod place;
mod progress;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use tollway::core::Nanos;
use tollway::export::ExportReader;

use self::export::Export;
use self::import::Import;
use super::Outcome;

/// Move live buckets between a running server, a journal directory and Redis
///
/// An export has what every id has used. Imported elsewhere, the same ids are limited as before: nobody gets a second
/// burst because a store was replaced. If the target has a bucket already, the stricter state of both stays.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway buckets export redis://old:6379 --output buckets.export
  tollway buckets verify buckets.export
  tollway buckets import buckets.export redis+cluster://a:6379,b:6379

The limits of nginx and Envoy are converted with \"tollway import\": that moves a configuration, not what was used.")]
pub(crate) struct Buckets {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Export(Export),
    Import(Import),
    Verify(Verify),
}

impl Buckets {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.action {
            Action::Export(export) => export.run(),
            Action::Import(import) => import.run(),
            Action::Verify(verify) => verify.run(),
        }
    }
}

/// Check that an export is whole, and print what it has
#[derive(Args)]
#[command(after_help = "\
Example:
  $ tollway buckets verify buckets.export
  buckets.export: 4120 buckets with their ids, exported at 2026-01-02T03:04:05Z

Exit status: 0 it is whole, 2 it is cut, damaged or something else.")]
struct Verify {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Verify {
    fn run(self) -> anyhow::Result<Outcome> {
        let mut reader = open(&self.file)?;
        let mut buckets = 0;
        while let Some(batch) = reader.next_batch().with_context(|| cannot_use(&self.file))? {
            buckets += batch.len();
        }
        let ids = if reader.header().has_names() { "their ids" } else { "hashes of their ids" };
        let at = tollway_wire::http::Rfc3339(reader.header().created());
        let line = format!("{}: {buckets} buckets with {ids}, exported at {at}", shown(&self.file));
        crate::output::print_line(line.as_bytes())?;
        Ok(Outcome::Yes)
    }
}

/// Opens an export, and reads its header.
fn open(file: &Path) -> anyhow::Result<ExportReader<Box<dyn Read>>> {
    let input: Box<dyn Read> = if is_standard(file) {
        Box::new(io::stdin())
    } else {
        let opened = File::open(file).with_context(|| format!("{} cannot be read", file.display()))?;
        Box::new(BufReader::new(opened))
    };
    ExportReader::open(input).with_context(|| cannot_use(file))
}

/// Returns whether the file stands for standard input or output.
fn is_standard(file: &Path) -> bool {
    file == Path::new("-")
}

fn shown(file: &Path) -> String {
    if is_standard(file) { "(stdin)".to_owned() } else { file.display().to_string() }
}

fn cannot_use(file: &Path) -> String {
    format!("{} cannot be used", shown(file))
}

/// The number of times that a store is asked which gives no answer. Everything that is asked can be asked twice.
const ATTEMPTS: u32 = 5;
/// The pause before a store is asked again.
const PAUSE: Nanos = Nanos::from_millis(500);

/// Runs a call again if the store gave no answer.
fn with_attempts<T, E>(
    mut call: impl FnMut() -> Result<T, E>,
    is_passing: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for attempt in 1.. {
        match call() {
            Err(error) if attempt < ATTEMPTS && is_passing(&error) => std::thread::sleep(PAUSE.as_duration()),
            done => return done,
        }
    }
    unreachable!("the last attempt returns")
}
