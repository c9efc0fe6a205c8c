//! Checks the features of the crates that have any: none of them, or each by itself, with cargo-hack.
//!
//! Each by itself means, for each crate: no features, each feature alone, the default ones, and all of them.
//! Combinations of two and more are not tried: their number doubles with every feature, and a feature here only adds to
//! what is there.
//!
//! Each check is a run of clippy for one crate, so that only this crate's own dependencies choose the features of what
//! they share, and code that no feature uses any more is an error. Development dependencies need no `--no-dev-deps`,
//! which would rewrite manifests for a while: they are not built here, and so they add no features either.

use anyhow::Result;
use xtask::CRATES_WITH_FEATURES;

use crate::step::{Steps, cargo};
use crate::tools::plugin;

/// The version that is installed where there is none. Building it takes about 70 seconds of CPU time, once.
const CARGO_HACK: &str = "0.6.46";

/// Checks each crate without any feature. With the lint of the whole workspace, which has all features, it finds most
/// mistakes in a fraction of the time: a feature only adds to what is there.
pub(crate) fn check_none(steps: &mut Steps) -> Result<()> {
    for name in CRATES_WITH_FEATURES {
        let mut check = cargo("clippy --locked --no-default-features --package");
        steps.run("no features", check.args([name, "--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Installs cargo-hack if it is missing, then checks each feature.
pub(crate) fn check_each(steps: &mut Steps) -> Result<()> {
    let mut hack = plugin(steps, "cargo-hack", CARGO_HACK)?;
    hack.args("hack clippy --each-feature --locked".split_whitespace());
    hack.args(CRATES_WITH_FEATURES.iter().flat_map(|name| ["--package", name]));
    steps.run("features", hack.args(["--", "-D", "warnings"]))
}
