//! Runs the steps of a task: each is printed and timed, and the first that fails ends the task.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The steps that one task has taken, with their times.
pub(crate) struct Steps {
    taken: Vec<(String, Duration)>,
}

impl Steps {
    /// Enters the root of the workspace, from where every path counts, wherever cargo was called.
    pub(crate) fn at_root() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lives in the workspace")?;
        env::set_current_dir(root).with_context(|| format!("cannot enter {}", root.display()))?;
        Ok(Self { taken: Vec::new() })
    }

    /// Runs a command that must succeed.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let shown = shown(command);
        self.take(name, &shown, || {
            let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
            if !status.success() {
                bail!("`{shown}` failed: {status}");
            }
            Ok(())
        })
    }

    /// Runs a function that must succeed; `shown` describes it.
    pub(crate) fn take(&mut self, name: &str, shown: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("==> {name}: {shown}");
        let began = Instant::now();
        work().with_context(|| format!("step `{name}`"))?;
        self.taken.push((name.to_owned(), began.elapsed()));
        Ok(())
    }

    /// Prints the time of every step.
    pub(crate) fn summarize(&self) {
        for (name, took) in &self.taken {
            eprintln!("{:>8.1}s  {name}", took.as_secs_f64());
        }
        let total: Duration = self.taken.iter().map(|(_, took)| took).sum();
        eprintln!("{:>8.1}s  in all", total.as_secs_f64());
    }
}

/// Returns a command for the cargo that runs this task, with arguments as they would be typed.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments.split_whitespace());
    command
}

/// Returns the folder where cargo builds.
pub(crate) fn target() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(env::current_dir().context("the root is there")?.join(target))
}

/// Returns the number of cores that this process may use.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the name of the platform that the compiler runs on, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host() -> Result<String> {
    let output =
        Command::new("rustc").args(["--print", "host-tuple"]).output().context("cannot start rustc")?;
    if !output.status.success() {
        bail!("rustc cannot name its platform: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Formats a command as it would be typed, with the variables that were set for it.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}='{}'", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words =
        std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}
