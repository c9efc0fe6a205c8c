//! Runs all tests.

use anyhow::Result;

use crate::python;
use crate::setup;
use crate::step::{Steps, cargo};

/// Installs what is missing, then runs the tests. Without arguments `cargo test` builds the examples and tests the
/// documentation as well, and the tests of the Python package follow.
pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    setup::run(steps)?;
    let zmq = python::with_zmq(steps)?;
    steps.run("test", cargo("test --workspace --locked").args(arguments).env("TOLLWAY_PYZMQ", zmq))?;
    if arguments.is_empty() { python::test(steps, &[]) } else { Ok(()) }
}
