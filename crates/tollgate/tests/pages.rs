//! The pages quote code that is run elsewhere: every Rust snippet stands, line for line, in something tested.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

use std::fs;

/// Pages with snippets, seen from this crate.
const PAGES: &[&str] = &["../../docs/library.md"];

/// What they may quote: files whose code, or whose documentation's code, runs with the tests.
const SOURCES: &[&str] = &["src/lib.rs", "../../examples/embed.rs"];

#[test]
fn every_snippet_is_code_that_is_tested() {
    let sources: Vec<_> = SOURCES.iter().map(|source| bare(&fs::read_to_string(source).unwrap())).collect();
    for page in PAGES {
        let text = fs::read_to_string(page).unwrap();
        let snippets: Vec<_> =
            text.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(!snippets.is_empty(), "{page} has no snippets");
        for snippet in snippets {
            let quoted = sources.iter().any(|source| source.contains(&bare(snippet)));
            assert!(quoted, "{page} shows code that nothing runs:\n{snippet}");
        }
    }
}

/// The lines without what a page or a comment puts in front of them.
fn bare(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim().trim_start_matches("//!").trim())).collect()
}
