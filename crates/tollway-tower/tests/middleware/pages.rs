//! Tests that `docs/middleware.md` shows the headers that are sent. Its Rust code is tested with the doc tests.

use std::fs;

use tollway_tower::AdmissionLayer;
use tower_layer::Layer;

use crate::support::{Hello, per_client, request, send};

const PAGE: &str = "../../docs/middleware.md";

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
