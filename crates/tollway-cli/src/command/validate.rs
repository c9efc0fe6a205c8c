//! `tollway validate`: checks a configuration file, and prints what it means.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use tollway::config::{Config, ConfigError, ConfigErrors, describe};
use tollway::core::ErrorChain;
use tollway_server::{AccessFileError, AccessFileWarning, check_access_files, open_gates, plain_text_gates};

use super::Outcome;
use crate::output::OutputError;

/// Check a configuration file
///
/// Prints every limit with the time in which one unit and the whole bucket refill, and every rule in its canonical form
/// with the names of its logs. For an invalid file, prints all errors, each with its line, its column and a way to fix
/// it. Fields that have no effect, gates that everybody who can reach them may use, and gates whose tokens cross the
/// network as plain text are warnings. If the file itself has no errors, the certificates, token files and HMAC keys of
/// gates are checked as well, and their contents are never printed.
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
    /// Makes open gates errors, as "tollway serve --require-auth" does
    #[arg(long, env = "TOLLWAY_REQUIRE_AUTH")]
    require_auth: bool,
}

impl Validate {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match Config::from_file(&self.file) {
            Ok(config) => {
                let own = self.file.display().to_string();
                let Some(file_warnings) = check_files(&config, &own)? else { return Ok(Outcome::No) };
                let open: Vec<_> = open_gates(&config.gates).iter().map(|open| open.to_string()).collect();
                if self.require_auth && !open.is_empty() {
                    open.iter().try_for_each(|open| writeln!(io::stderr(), "{own}: {open}"))?;
                    return Ok(Outcome::No);
                }
                write!(io::stdout(), "{}", describe(&config)).map_err(OutputError::from)?;
                for ConfigError { file, line, column, message, .. } in &config.warnings {
                    let file = file.as_ref().unwrap_or(&own);
                    writeln!(io::stderr(), "{file}:{line}:{column}: warning: {message}")?;
                }
                let plain = plain_text_gates(&config.gates).into_iter().map(|plain| plain.to_string());
                let of_gates = open.into_iter().chain(plain).map(|gate| format!("{own}: warning: {gate}"));
                for warning in file_warnings.into_iter().chain(of_gates) {
                    writeln!(io::stderr(), "{warning}")?;
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

/// Checks the certificates, the tokens and the keys of the gates that are on. Returns warnings about them, or `None` if
/// one is wrong, after printing what is. Each begins with the place in the configuration that names the file.
fn check_files(config: &Config, own: &str) -> io::Result<Option<Vec<String>>> {
    let (warnings, errors) = check_access_files(&config.gates);
    let warning = |warning: &AccessFileWarning| {
        format!("{}: warning: {}", place(config, own, Some(&warning.path)), warning.message)
    };
    let error = |error: &AccessFileError| {
        format!("{}: {}", place(config, own, error.path()), ErrorChain(error.of_file()))
    };
    let mut warnings: Vec<_> = warnings.iter().map(warning).collect();
    let mut errors: Vec<_> = errors.iter().map(error).collect();
    // Gates can share a file.
    errors.dedup();
    warnings.dedup();
    errors.iter().try_for_each(|error| writeln!(io::stderr(), "{error}"))?;
    Ok(errors.is_empty().then_some(warnings))
}

/// Returns the place in the configuration `own` that names the file at `path`, such as `tollway.yaml:3:11`.
fn place(config: &Config, own: &str, path: Option<&Path>) -> String {
    let named = config.named_files.iter().find(|named| Some(&*named.path) == path);
    named.map_or_else(|| own.to_owned(), |named| format!("{own}:{}:{}", named.line, named.column))
}

/// An error without a line is about the file, not about what it says.
fn unreadable(errors: &ConfigErrors) -> bool {
    errors.errors().iter().all(|error| error.line == 0)
}
