//! Tests and measures the Python package, in a virtual environment under `target/`.
//!
//! The tests run against a wheel, as users install it. The wheel is built under `target/` as well, so that no file of a
//! build ends up beside the sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::setup::PYTHON;
use crate::step::{Steps, cargo, target};

const CRATE: &str = "crates/tollway-python";

/// Tests a debug build of the package. Its tests find the server by `TOLLWAY_BINARY`.
pub(crate) fn test(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let environment = Environment::with(steps, "python", &Path::new(CRATE).join("tests/requirements.txt"))?;
    environment.install_package(steps, &["--profile", "dev", "--strip"])?;
    steps.run("server", &mut cargo("build --locked --package tollway-cli"))?;
    let mut tests = environment.python("-m pytest --quiet");
    tests.env("TOLLWAY_BINARY", target()?.join("debug/tollway"));
    steps.run("test python", tests.arg(CRATE).args(arguments))
}

/// Measures a release build of the package beside a peer.
pub(crate) fn bench(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let requirements = Path::new(CRATE).join("bench/requirements.txt");
    let environment = Environment::with(steps, "python-bench", &requirements)?;
    environment.install_package(steps, &["--release", "--strip"])?;
    let bench = format!("{CRATE}/bench/bench.py");
    steps.run("bench python", environment.python(&bench).args(arguments))
}

/// Installs libzmq and WebSockets for Python, and returns the path of that Python. Rust tests find it by
/// `TOLLWAY_PYZMQ`.
pub(crate) fn with_zmq(steps: &mut Steps) -> Result<PathBuf> {
    Ok(Environment::with(steps, "zmq", Path::new("testbed/zmq.txt"))?.0.join("bin/python"))
}

/// Installs the messages of OpenTelemetry for Python, and returns the path of that Python. Rust tests find it by
/// `TOLLWAY_OTLP`.
pub(crate) fn with_otlp(steps: &mut Steps) -> Result<PathBuf> {
    Ok(Environment::with(steps, "otlp", Path::new("testbed/otlp.txt"))?.0.join("bin/python"))
}

/// Installs proxies, and returns the folder whose `bin` has them. Rust tests find it by `TOLLWAY_PROXIES`.
pub(crate) fn with_proxies(steps: &mut Steps) -> Result<PathBuf> {
    Ok(Environment::with(steps, "proxies", Path::new("testbed/proxies.txt"))?.0)
}

/// Installs clients of Redis for Python and Node.js, and returns the folder whose `bin` has both languages, with the
/// packages of the second in `node_modules`. Rust tests find it by `TOLLWAY_REDIS_CLIENTS`.
pub(crate) fn with_redis_clients(steps: &mut Steps) -> Result<PathBuf> {
    with_node_packages(steps, "redis-clients")
}

/// Installs what drives a browser, and returns the folder whose `bin` has Node.js, with its packages in `node_modules`.
/// Rust tests find it by `TOLLWAY_BROWSER`.
pub(crate) fn with_browser(steps: &mut Steps) -> Result<PathBuf> {
    with_node_packages(steps, "browser")
}

/// Installs the packages of `testbed/NAME.txt`, Node.js among them, and those of `testbed/NAME.json`.
fn with_node_packages(steps: &mut Steps, name: &str) -> Result<PathBuf> {
    let folder = Environment::with(steps, name, Path::new(&format!("testbed/{name}.txt")))?.0;
    fs::copy(format!("testbed/{name}.json"), folder.join("package.json"))?;
    let mut install = Command::new(folder.join("bin/npm"));
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"]);
    steps.run("packages", install.arg(&folder))?;
    Ok(folder)
}

/// A virtual environment, named by its folder.
struct Environment(PathBuf);

impl Environment {
    /// Returns the environment of this name with these packages installed, and creates it if it is missing.
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
