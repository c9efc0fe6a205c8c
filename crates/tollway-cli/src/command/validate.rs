//! `tollway validate`: is this file right, and what does it say?

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tollway::config::{Config, ConfigError, ConfigErrors, describe};

use super::Outcome;
use crate::output::OutputError;

/// Check a configuration file and print it as it was understood
///
/// Prints every limit with what follows from its numbers: how long one unit takes to come, and how long an empty
/// bucket takes to fill; and every rule in its canonical form, with the names of its logs. A file that is wrong is answered by
/// all of its errors, each with its line, its column and what would be right. What is right but has no effect is warned about.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway validate tollway.yaml
  tollway validate candidate.yaml && cp candidate.yaml /etc/tollway.yaml

Exit status: 0 if the file is right, 1 if it is not, 2 if it cannot be read.")]
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
                for warning in &config.warnings {
                    let ConfigError { line, column, message, .. } = warning;
                    writeln!(io::stderr(), "{}:{line}:{column}: warning: {message}", self.file.display())?;
                }
            }
            Err(errors) if unreadable(&errors) => return Err(errors.into()),
            Err(errors) => {
                writeln!(io::stderr(), "{errors}")?;
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
