//! `tollway token`: makes a new token.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tollway_server::{LimitGlobs, NewToken, Scopes};

use super::Outcome;
use crate::output::print_line;

/// Make a new token for a client
///
/// Prints the token to standard output, alone, and the line for the token file of the server to standard error. The
/// line has a digest and no secret. With --out the token goes to a new file that only you can read; "> FILE" makes one
/// that others on this machine can usually read. A server reads the file again when it changes. To replace a token, add
/// a second one with another name, give it to the client, and then remove the line of the first.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway token shop --scope decide,refund --append tokens.txt --out shop.token
  tollway token shop --scope decide --limits 'shop-*,login' --append tokens.txt --out shop.token
  tollway token ops --scope admin

Scopes: decide (spend, check), refund, read (inspect, keys, explain, metrics, console), admin (reset, and all others).
In the configuration of the server, \"tokens: tokens.txt\" names the file. Clients send the token as
\"Authorization: Bearer TOKEN\", Redis clients as their password, and this program by --token-file or TOLLWAY_TOKEN.")]
pub(crate) struct Token {
    /// The name of the token, which the audit log shows: 1 to 64 letters, digits, ".", "_" and "-"
    #[arg(value_name = "NAME")]
    name: String,
    /// The scopes of the token: decide, refund, read, admin, or several of them, separated by commas
    #[arg(long, value_name = "SCOPE,...")]
    scope: Scopes,
    /// The limits and rules that the token is for, as patterns with * and ?, separated by commas [default: all]
    #[arg(long, value_name = "GLOB,...")]
    limits: Option<LimitGlobs>,
    /// Adds the line to this token file, which is made if it does not exist
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// Writes the token to this new file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Token {
    /// Removes the file with the token, which was made a moment ago: a token without its line is of no use, and would
    /// be in the way of the next attempt.
    fn remove_out(&self) {
        if let Some(path) = &self.out {
            let _ = fs::remove_file(path);
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let token = NewToken::generate(&self.name, self.scope, self.limits.as_ref())?;
        // First, because a line without its token would be of no use.
        if let Some(path) = &self.out {
            token.write_secret_to(path)?;
        }
        // Lines that begin with "#" are comments of a token file, so that all of standard error can be added to one.
        let place = match &self.append {
            Some(path) => {
                token.append_to(path).inspect_err(|_| self.remove_out())?;
                format!("is now in {}", path.display())
            }
            None => "is for the token file of the server".to_owned(),
        };
        let for_client = match &self.out {
            Some(path) => format!("# The token of {} is in {}, for the client.", self.name, path.display()),
            None => format!("# The token of {} is for the client, and is not shown again.", self.name),
        };
        writeln!(io::stderr(), "{for_client}\n# This line {place}:\n{}", token.line())?;
        if self.out.is_none() {
            print_line(token.secret().as_bytes())?;
        }
        Ok(Outcome::Yes)
    }
}
