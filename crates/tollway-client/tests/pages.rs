//! The pages quote code that is compiled elsewhere: every Rust snippet stands, line for line, in the documentation of
//! this crate.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

use std::fs;

const PAGES: &[&str] = &["../../docs/gatekeeper.md", "../../docs/text.md", "../../docs/throttr.md"];

const SOURCES: &[&str] = &[
    "src/gatekeeper.rs",
    "src/text.rs",
    "src/text/blocking.rs",
    "src/throttr.rs",
    "src/throttr/blocking.rs",
];

#[test]
fn every_snippet_is_code_that_is_compiled() {
    let sources: Vec<_> = SOURCES.iter().map(|source| bare(&fs::read_to_string(source).unwrap())).collect();
    for page in PAGES {
        let text = fs::read_to_string(page).unwrap();
        let snippets: Vec<_> =
            text.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert_eq!(snippets.len(), 2, "{page}");
        for snippet in snippets {
            let quoted = sources.iter().any(|source| source.contains(&bare(snippet)));
            assert!(quoted, "{page} shows code that nothing compiles:\n{snippet}");
        }
    }
}

/// The lines without what a page or a comment puts in front of them.
fn bare(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim().trim_start_matches("//!").trim())).collect()
}
