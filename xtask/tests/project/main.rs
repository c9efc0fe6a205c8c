//! Holds the project to its own rules: arrows between crates, attributes of answers, benchmarks, links, plain words.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

mod answers;
mod benchmarks;
mod dependencies;
mod links;
mod plain_words;
