//! Checks that everything compiles for macOS, without Apple's SDK and without a Mac.
//!
//! `cargo check` links nothing, so Rust needs only the target's standard library. The one C part is in *ring*, which
//! the feature `redis` brings in for TLS: its build script wants a C compiler for macOS. A check reads nothing of what
//! that compiler writes, so the program `true` takes its place, and all Rust code is checked. What is not checked is
//! the C and assembly of *ring* itself.
//!
//! `tollway-bench` is left out: it pins its peers to cores with `taskset` and reads `/proc`, which only Linux has.
//! Tests are left out as well, because the programs that they start are installed on Debian only.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{Steps, cargo, target};

const TARGET: &str = "x86_64-apple-darwin";

/// Installs the target's standard library if it is missing, then checks every crate that is meant for macOS.
pub(crate) fn run(steps: &mut Steps) -> Result<()> {
    if !is_installed()? {
        let mut add = Command::new("rustup");
        let added = steps.run("macos target", add.args(["target", "add", TARGET]));
        added.with_context(|| {
            format!(
                "the standard library for {TARGET} is missing; install it with `rustup target add {TARGET}`"
            )
        })?;
    }
    let mut check =
        cargo("check --workspace --exclude tollway-bench --exclude tollway-simulator --locked --target");
    check.arg(TARGET).arg("--target-dir").arg(target()?.join("macos"));
    // A warning here is code that only Linux uses, and that should be behind the same `cfg`.
    check.env("RUSTFLAGS", "-D warnings");
    let compiler = ["CC_x86_64_apple_darwin", "AR_x86_64_apple_darwin"].map(|variable| (variable, "true"));
    steps.run("macos", check.envs(compiler))
}

/// Returns whether the compiler in use has the standard library for the target.
fn is_installed() -> Result<bool> {
    let arguments = ["--print", "target-libdir", "--target", TARGET];
    let output = Command::new("rustc").args(arguments).output().context("cannot start rustc")?;
    if !output.status.success() {
        bail!("this rustc has no target {TARGET}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(std::path::Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}
