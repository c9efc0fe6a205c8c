//! Runs the tests around the `unsafe` code of the project under Miri, which stops at undefined behaviour.
//!
//! The only `unsafe` code is a hint to the processor (`crates/tollway/src/prefetch.rs`), which Miri cannot run and
//! which is left out under it. What Miri checks is everything around it: the pointers that are computed for the hint,
//! the memory that tables are mapped into, and the casts of that memory to slots. A test of the project
//! (`unsafe_code.rs`) fails if `unsafe` appears in another file.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::step::{Steps, target};

/// Miri is a part of nightly compilers only.
const TOOLCHAIN: &str = "nightly";

/// The exit code of a run without Miri. A check that failed has 1, as in every task.
const NO_MIRI: u8 = 3;

/// The programs whose tests run, and the tests, by a part of their names: those of everything that calls `prefetch` or
/// maps memory, and some of the whole store, with bills and batches. Each of their instructions is interpreted, so
/// tests that make millions of decisions are left out.
const TESTS: &[(&str, &[&str])] = &[
    (
        "--lib",
        &["store::memory::chunk_pool", "store::memory::slot", "store::memory::table", "keys::set_cache"],
    ),
    (
        "--test=memory",
        &[
            "asking_without_spending_takes_no_place",
            "a_place_is_free_again_as_soon_as_its_bucket_says_nothing",
            "reset_gives_a_place_back_once",
            "the_buckets_of_inline_limits_are_made_by_clients",
        ],
    ),
];

pub(crate) const AFTER_HELP: &str = "\
Miri interprets a program and stops at undefined behaviour: memory that is read before it is written, a pointer out of
bounds, a data race. It needs a nightly compiler, which is installed with rustup if it is missing.
Exits with 0 if nothing was found, with 1 if a test failed, and with 3 if Miri cannot be installed here: then nothing
was checked.";

/// Installs Miri if it is missing, and runs the tests.
pub(crate) fn run(steps: &mut Steps) -> Result<ExitCode> {
    if !is_installed()
        && let Err(error) = install(steps)
    {
        eprintln!(
            "\nNOT CHECKED: Miri is not there and cannot be installed: {error:#}\n\
             Run this again where `rustup toolchain install {TOOLCHAIN} --component miri` works."
        );
        return Ok(ExitCode::from(NO_MIRI));
    }
    for (program, tests) in TESTS {
        let mut test = Command::new("rustup");
        test.args(["run", TOOLCHAIN, "cargo", "miri", "test", "--locked", "--package", "tollway", program]);
        test.arg("--target-dir").arg(target()?.join("miri")).arg("--").args(*tests);
        // Cargo tells its children which compiler to use, and that one has no Miri.
        test.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        // A pool of memory lasts as long as the process, and so does the thread that prepares the next part of it.
        steps.run("miri", test.env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-ignore-leaks"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_installed() -> bool {
    let version = Command::new("rustup").args(["run", TOOLCHAIN, "cargo", "miri", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

fn install(steps: &mut Steps) -> Result<()> {
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal", "--component", "miri,rust-src"]);
    steps.run("install miri", &mut install).context("rustup cannot install it")
}
