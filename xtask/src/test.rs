//! Runs all tests.

use anyhow::Result;

use crate::python;
use crate::setup;
use crate::step::{Steps, cargo};

/// Installs what is missing, then runs the tests. Without arguments `cargo test` builds the examples and tests the
/// documentation as well, and the tests of the Python package follow.
pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    setup::run(steps)?;
    let mut tests = cargo("test --workspace --locked");
    tests.env("TOLLWAY_PYZMQ", python::with_zmq(steps)?).env("TOLLWAY_PROXIES", python::with_proxies(steps)?);
    tests.env("TOLLWAY_REDIS_CLIENTS", python::with_redis_clients(steps)?);
    tests.env("TOLLWAY_BROWSER", python::with_browser(steps)?);
    tests.env("TOLLWAY_OTLP", python::with_otlp(steps)?);
    steps.run("test", tests.args(arguments))?;
    if arguments.is_empty() { python::test(steps, &[]) } else { Ok(()) }
}
