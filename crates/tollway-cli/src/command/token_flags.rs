//! The token that a command sends to a server.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;

/// The variable with the token itself. There is no flag for it: everybody on a machine can see the flags of a program.
const TOKEN: &str = "TOLLWAY_TOKEN";
/// The most bytes of a file that are read: more than the longest token, and a line end.
const FILE_MAX: u64 = 1024;

/// The flags of commands that ask a server.
#[derive(Args)]
pub(super) struct TokenFlags {
    /// The file with the token for the server [default: the token in the variable TOLLWAY_TOKEN, or none]
    #[arg(long, value_name = "FILE", env = "TOLLWAY_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl TokenFlags {
    /// Returns the token, if there is one.
    pub(super) fn read(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else {
            let Some(token) = env::var_os(TOKEN).filter(|token| !token.is_empty()) else { return Ok(None) };
            return token.into_string().map(Some).map_err(|_| anyhow!("{TOKEN} must be ASCII"));
        };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text));
        read.with_context(|| format!("the token cannot be read from {}", path.display()))?;
        Ok(Some(text.trim().to_owned()))
    }
}
