//! The parts of the project's own tools that its tests use as well.

pub mod words;

/// The crates that `cargo xtask features` checks. A test compares the list with the manifests.
pub const CRATES_WITH_FEATURES: &[&str] =
    &["tollway", "tollway-wire", "tollway-tower", "tollway-client", "tollway-server", "tollway-cli"];
