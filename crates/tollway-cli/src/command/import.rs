//! `tollway import`: converts the limits of other programs to a configuration.

mod directives;
mod envoy;
mod imported;
mod nginx;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};

use self::imported::{ImportError, Imported, Position};
use super::Outcome;
use crate::output::OutputError;

/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Convert limits of nginx or Envoy to a configuration
///
/// Prints a configuration to standard output. What it cannot say is never dropped in silence: it is listed in comments
/// at the top, and on standard error with its place in the file. Read that list before you use the file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway import nginx /etc/nginx/nginx.conf > tollway.yaml
  tollway import envoy ratelimit.yaml > tollway.yaml
  tollway validate tollway.yaml

Exit status: 0 converted, 1 the file has errors or no limits, 2 the file cannot be read.")]
pub(crate) struct Import {
    #[command(subcommand)]
    source: Source,
}

#[derive(Subcommand)]
enum Source {
    Envoy(Envoy),
    Nginx(Nginx),
}

/// Convert the descriptors of Envoy's rate limit service to limits
///
/// Each descriptor that has a rate_limit becomes a limit with a fixed window, for callers that name the limit, such as
/// clients of HTTP. Envoy itself needs no import: a file with "domain" and "descriptors" is a configuration as it
/// is.
///
/// These are listed instead of converted: the matching of descriptors, shadow_mode, quota_mode, replaces, names, and
/// limits that allow everything or nothing.
#[derive(Args)]
#[command(after_help = "\
Example:
  $ tollway import envoy ratelimit.yaml
  limits:
    # domain shop: route=login, remote_address
    # the id is the value of remote_address
    shop.route-login.remote_address: { algorithm: fixed_window, count: 5, period: 1m }")]
struct Envoy {
    /// The file of the rate limit service, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Convert limit_req_zone and limit_req of an nginx configuration
///
/// Each zone becomes a token bucket that admits the same requests: rate=10r/s with burst=20 is
/// { burst: 21, count: 10, period: 1s }, because nginx does not count the first request of a burst. Comments say in
/// which server and location the limit is used, and which id it counts.
///
/// These are listed instead of converted: delays (without nodelay nginx makes requests wait; Tollway answers at once),
/// limit_req_status, limit_req_dry_run and limit_conn, the size of a zone, and files that are included: import each of
/// them by itself.
#[derive(Args)]
#[command(after_help = "\
Example:
  $ tollway import nginx nginx.conf
  limits:
    # limit_req_zone at line 2: the id is $binary_remote_addr
    # line 6: server example.com, location /login: burst=20 nodelay
    login: { burst: 21, count: 10, period: 1s, id: ip, ipv6_prefix: 128 }

nginx asks for this limit with \"auth_request\"; docs/proxies.md has the configuration.")]
struct Nginx {
    /// The file of nginx, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Import {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.source {
            Source::Envoy(Envoy { file }) => convert(&file, envoy::import),
            Source::Nginx(Nginx { file }) => convert(&file, nginx::import),
        }
    }
}

/// Reads a file, and prints what `import` makes of it.
fn convert(
    path: &Path,
    import: impl FnOnce(&str) -> Result<Imported, Vec<ImportError>>,
) -> anyhow::Result<Outcome> {
    let is_stdin = path == Path::new("-");
    let file = if is_stdin { "(stdin)".to_owned() } else { path.display().to_string() };
    let source = || -> io::Result<Box<dyn Read>> {
        Ok(if is_stdin { Box::new(io::stdin()) } else { Box::new(File::open(path)?) })
    };
    let text = source().and_then(read).with_context(|| format!("{file} cannot be read"))?;
    let mut stderr = io::stderr().lock();
    match import(&text) {
        Ok(imported) => {
            let yaml = imported.to_yaml(&file);
            io::stdout().write_all(yaml.as_bytes()).map_err(OutputError::from)?;
            for left_out in &imported.left_out {
                let place = left_out.at.map(|Position { line, column }| format!(":{line}:{column}"));
                let place = place.unwrap_or_default();
                writeln!(stderr, "{file}{place}: not carried over: {}", left_out.text)?;
            }
            Ok(Outcome::Yes)
        }
        Err(errors) => {
            for ImportError { at: Position { line, column }, message } in errors {
                writeln!(stderr, "{file}:{line}:{column}: {message}")?;
            }
            Ok(Outcome::No)
        }
    }
}

/// Returns the text of a file. Bytes that are not UTF-8 are replaced: they are in comments, or in names that no limit
/// can have anyway.
fn read(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {FILE_MAX} bytes"),
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
