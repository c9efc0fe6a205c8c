//! `tollway validate`: checks a configuration file, and prints what it means.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tollway::config::{Config, ConfigError, ConfigErrors, describe};
use tollway::core::ErrorChain;

use super::Outcome;
use crate::output::OutputError;

/// Check a configuration file
///
/// Prints every limit with the time in which one unit and the whole bucket refill, and every rule in its canonical form
/// with the names of its logs. For an invalid file, prints all errors, each with its line, its column and a way to fix
/// it. Fields that have no effect are warnings.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway validate tollway.yaml
  tollway validate candidate.yaml && cp candidate.yaml /etc/tollway.yaml

Exit status: 0 valid, 1 invalid, 2 the file cannot be read.")]
pub(crate) struct Validate {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Validate {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match Config::from_file(&self.file) {
            Ok(config) => {
                write!(io::stdout(), "{}", describe(&config)).map_err(OutputError::from)?;
                let own = self.file.display().to_string();
                for ConfigError { file, line, column, message, .. } in &config.warnings {
                    let file = file.as_ref().unwrap_or(&own);
                    writeln!(io::stderr(), "{file}:{line}:{column}: warning: {message}")?;
                }
            }
            Err(errors) if unreadable(&errors) => return Err(errors.into()),
            Err(errors) => {
                writeln!(io::stderr(), "{}", ErrorChain(&errors))?;
                return Ok(Outcome::No);
            }
        }
        Ok(Outcome::Yes)
    }
}

/// An error without a line is about the file, not about what it says.
fn unreadable(errors: &ConfigErrors) -> bool {
    errors.errors().iter().all(|error| error.line == 0)
}
