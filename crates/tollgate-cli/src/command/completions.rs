//! `tollgate completions`: what a shell needs to complete our arguments.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Arguments, Outcome};
use crate::output::OutputError;

/// Print a script that teaches a shell to complete tollgate's commands and options
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct Completions {
    /// The shell to teach
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // Into memory first: the generator panics where its output cannot be written.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "tollgate", &mut script);
        io::stdout().write_all(&script).map_err(OutputError::from)?;
        Ok(Outcome::Yes)
    }
}
