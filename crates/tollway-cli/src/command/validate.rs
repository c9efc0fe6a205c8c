//! `tollway validate`: checks a configuration file, and prints what it means.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tollway::config::{Config, ConfigError, ConfigErrors, Gates, describe};
use tollway::core::ErrorChain;
use tollway_server::{check_tls_files, check_token_file, open_gates};

use super::Outcome;
use crate::output::OutputError;

/// Check a configuration file
///
/// Prints every limit with the time in which one unit and the whole bucket refill, and every rule in its canonical form
/// with the names of its logs. For an invalid file, prints all errors, each with its line, its column and a way to fix
/// it. Fields that have no effect, and gates that everybody who can reach them may use, are warnings. The certificates
/// and token files of gates are checked as well, and their contents are never printed.
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
                let Some(file_warnings) = check_files(&config.gates)? else { return Ok(Outcome::No) };
                write!(io::stdout(), "{}", describe(&config)).map_err(OutputError::from)?;
                let own = self.file.display().to_string();
                for ConfigError { file, line, column, message, .. } in &config.warnings {
                    let file = file.as_ref().unwrap_or(&own);
                    writeln!(io::stderr(), "{file}:{line}:{column}: warning: {message}")?;
                }
                let open = open_gates(&config.gates).into_iter().map(|open| open.to_string());
                for warning in file_warnings.into_iter().chain(open) {
                    writeln!(io::stderr(), "{own}: warning: {warning}")?;
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

/// Checks the certificates and the tokens of the gates that are on. Returns warnings about them, or `None` if one is
/// wrong, after printing what is.
fn check_files(gates: &Gates) -> io::Result<Option<Vec<String>>> {
    let (mut warnings, mut checked, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (address, access) in [
        (gates.http, &gates.http_access),
        (gates.admin, &gates.admin_access),
        (gates.throttr, &gates.throttr_access),
        (gates.resp, &gates.resp_access),
        (gates.rls, &gates.rls_access),
    ] {
        if address.is_none() || checked.contains(&access) {
            continue;
        }
        match access.tls.as_ref().map(check_tls_files) {
            Some(Ok(found)) => warnings.extend(found.iter().map(ToString::to_string)),
            Some(Err(error)) => errors.push(ErrorChain(&error).to_string()),
            None => {}
        }
        if let Some(Err(error)) = access.tokens.as_deref().map(check_token_file) {
            errors.push(ErrorChain(&error).to_string());
        }
        checked.push(access);
    }
    errors.dedup();
    errors.iter().try_for_each(|error| writeln!(io::stderr(), "{error}"))?;
    Ok(errors.is_empty().then_some(warnings))
}

/// An error without a line is about the file, not about what it says.
fn unreadable(errors: &ConfigErrors) -> bool {
    errors.errors().iter().all(|error| error.line == 0)
}
