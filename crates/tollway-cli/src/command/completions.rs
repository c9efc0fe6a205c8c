//! `tollway completions`: what a shell needs to complete our arguments.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, Outcome};
use crate::output::OutputError;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway completions bash > /etc/bash_completion.d/tollway
  tollway completions zsh > ~/.zfunc/_tollway
  tollway completions fish > ~/.config/fish/completions/tollway.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // Into memory first: the generator panics where its output cannot be written.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "tollway", &mut script);
        io::stdout().write_all(&script).map_err(OutputError::from)?;
        Ok(Outcome::Yes)
    }
}
