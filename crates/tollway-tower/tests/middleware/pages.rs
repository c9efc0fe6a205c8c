//! The page quotes code that is run elsewhere: every Rust snippet stands, line for line, in something tested.

use std::fs;

use tollway_tower::AdmissionLayer;
use tower_layer::Layer;

use crate::support::{Hello, per_client, request, send};

const PAGE: &str = "../../docs/middleware.md";

/// What it may quote: files whose code, or whose documentation's code, runs with the tests.
const SOURCES: &[&str] = &["src/lib.rs", "src/identify.rs", "src/identify/by_address.rs", "src/delayed.rs"];

#[test]
fn every_snippet_is_code_that_is_tested() {
    let sources: Vec<_> = SOURCES.iter().map(|source| bare(&fs::read_to_string(source).unwrap())).collect();
    let text = fs::read_to_string(PAGE).unwrap();
    let snippets: Vec<_> = blocks(&text, "rust").collect();
    assert_eq!(snippets.len(), 4);
    for snippet in snippets {
        let quoted = sources.iter().any(|source| source.contains(&bare(snippet)));
        assert!(quoted, "{PAGE} shows code that nothing runs:\n{snippet}");
    }
}

#[tokio::test]
async fn a_rejection_has_the_headers_that_the_page_shows() {
    let mut service = AdmissionLayer::new(per_client()).layer(Hello);
    let mut headers = http::HeaderMap::new();
    for _ in 0..3 {
        headers = send(&mut service, request("/", "192.0.2.1", &[])).await.1;
    }
    let text = fs::read_to_string(PAGE).unwrap();
    let mut shown: Vec<_> = blocks(&text, "text").next().unwrap().lines().map(str::to_owned).collect();
    let mut sent: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    shown.sort();
    sent.sort();
    assert_eq!(shown, sent);
}

fn blocks<'a>(text: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

/// The lines without what a page or a comment puts in front of them.
fn bare(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim().trim_start_matches("//!").trim())).collect()
}
