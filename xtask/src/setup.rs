//! Installs the programs that the tests start.
//!
//! A program that is found is left alone. A missing one is installed on Debian as root, which is how a fresh CI machine
//! runs. Everywhere else the missing packages are printed, with the command that would install them.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, iter};

use anyhow::{Context, Result, bail};

use crate::step::Steps;

/// A program's name, and the Debian package that contains it.
pub(crate) type Program = (&'static str, &'static str);

/// The Python that creates virtual environments; it must be 3.9 or later.
pub(crate) const PYTHON: &str = "python3";

/// Every program that a test starts, with its package.
const TEST_PROGRAMS: &[Program] = &[
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("haproxy", "haproxy"),
    ("nginx", "nginx"),
    ("openssl", "openssl"),
    ("promtool", "prometheus"),
    (PYTHON, "python3-venv"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    // A Sentinel is this program too, by another flag.
    ("redis-server", "redis-server"),
    ("tmux", "tmux"),
];

/// Installs what the tests need.
pub(crate) fn run(steps: &mut Steps) -> Result<()> {
    install(steps, TEST_PROGRAMS)
}

/// Installs what is missing, and starts nothing.
pub(crate) fn install(steps: &mut Steps, programs: &[Program]) -> Result<()> {
    let packages = missing(programs);
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root() || find("apt-get").is_none() {
        bail!("this needs {0}: install it, on Debian with `apt-get install {0}` as root", packages.join(" "));
    }
    let _quiet = QuietServices::begin().context("cannot keep services from starting")?;
    steps.run("package lists", &mut apt_get("update"))?;
    // A broken earlier install stops every later one until it is mended.
    let install = format!("install --no-install-recommends {}", packages.join(" "));
    if steps.run("install", &mut apt_get(&install)).is_err() {
        steps.run("mend packages", &mut apt_get("--fix-broken install"))?;
        steps.run("install again", &mut apt_get(&install))?;
    }
    let packages = missing(programs);
    if !packages.is_empty() {
        bail!("{} was installed and is still not found", packages.join(" "));
    }
    Ok(())
}

/// Returns the packages of the programs that are not found.
fn missing(programs: &[Program]) -> Vec<&'static str> {
    programs.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect()
}

fn is_there(program: &str) -> bool {
    // Debian has a Python that cannot make environments until another package is installed.
    let makes_environments = || Command::new(program).args(["-c", "import ensurepip"]).status();
    find(program).is_some()
        && (program != PYTHON || makes_environments().is_ok_and(|status| status.success()))
}

/// Returns the path of a program. Servers live in `/usr/sbin`, which is not on everybody's path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).chain(iter::once("/usr/sbin".into()));
    places.find_map(|place| Some(place.join(program)).filter(|file| file.is_file()))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn apt_get(arguments: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--yes").args(arguments.split_whitespace());
    command
}

/// Keeps packages from starting their services while this value lives: tests start their own, on ports of their own.
struct QuietServices {
    ours: Option<PathBuf>,
}

impl QuietServices {
    /// Writes the script that Debian consults before it starts a service. A script that exists already is kept.
    fn begin() -> io::Result<Self> {
        let script = Path::new("/usr/sbin/policy-rc.d");
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(script) {
            Ok(mut file) => {
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(Self { ours: Some(script.to_owned()) })
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: None }),
            Err(error) => Err(error),
        }
    }
}

impl Drop for QuietServices {
    fn drop(&mut self) {
        if let Some(script) = &self.ours
            && let Err(error) = fs::remove_file(script)
        {
            eprintln!("cannot remove {}: {error}", script.display());
        }
    }
}
