//! Holds the project to its own rules: arrows between crates, attributes of answers, benchmarks, fuzz targets,
//! guarantees, links, plain words, unsafe code.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

mod answers;
mod benchmarks;
mod dependencies;
mod fuzz_targets;
mod guarantees;
mod links;
mod plain_words;
mod unsafe_code;
