//! The Python package, in a virtual environment of its own under `target/`.
//!
//! What is tested is what would be installed: a wheel. It is built here and nowhere else, so that no file of a build ends
//! up beside the sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::setup::PYTHON;
use crate::step::{Steps, target};

const CRATE: &str = "crates/tollway-python";

/// Tests the package, as the debug build has it.
pub(crate) fn test(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let environment = Environment::with(steps, "python", &Path::new(CRATE).join("tests/requirements.txt"))?;
    environment.install_package(steps, &["--profile", "dev", "--strip"])?;
    steps.run("test python", environment.python("-m pytest --quiet").arg(CRATE).args(arguments))
}

/// Measures it, as the release build has it, beside a peer.
pub(crate) fn bench(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let requirements = Path::new(CRATE).join("bench/requirements.txt");
    let environment = Environment::with(steps, "python-bench", &requirements)?;
    environment.install_package(steps, &["--release", "--strip"])?;
    let bench = format!("{CRATE}/bench/bench.py");
    steps.run("bench python", environment.python(&bench).args(arguments))
}

/// A Python with libzmq and WebSockets, which Rust tests talk to; they find it by `TOLLWAY_PYZMQ`.
pub(crate) fn with_zmq(steps: &mut Steps) -> Result<PathBuf> {
    Ok(Environment::with(steps, "zmq", Path::new("testbed/zmq.txt"))?.0.join("bin/python"))
}

/// A virtual environment.
struct Environment(PathBuf);

impl Environment {
    /// The one of this name, made if it is not there, with these packages in it.
    fn with(steps: &mut Steps, name: &str, requirements: &Path) -> Result<Self> {
        let environment = Self(target()?.join(name));
        if !environment.0.join("bin/pip").is_file() {
            let mut make = Command::new(PYTHON);
            steps.run("environment", make.args(["-m", "venv"]).arg(&environment.0))?;
        }
        let mut install = environment.python("-m pip install --quiet --disable-pip-version-check");
        steps.run("packages", install.arg("--requirement").arg(requirements))?;
        Ok(environment)
    }

    /// Builds the wheel and installs it in place of an earlier one.
    fn install_package(&self, steps: &mut Steps, profile: &[&str]) -> Result<()> {
        let wheels = self.0.join("wheels");
        let mut build = self.python("-m maturin build --quiet --locked --out");
        build.arg(&wheels).args(profile).arg("--interpreter").arg(self.0.join("bin/python"));
        steps.run("wheel", build.arg("--manifest-path").arg(Path::new(CRATE).join("Cargo.toml")))?;
        let mut install = self.python("-m pip install --quiet --disable-pip-version-check --no-index");
        install.args(["--no-deps", "--force-reinstall", "--find-links"]).arg(&wheels);
        steps.run("install", install.arg("tollway"))
    }

    fn python(&self, arguments: &str) -> Command {
        let mut command = Command::new(self.0.join("bin/python"));
        command.args(arguments.split_whitespace());
        command
    }
}
