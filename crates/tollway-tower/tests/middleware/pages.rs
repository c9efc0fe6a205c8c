//! Tests that `docs/middleware.md` shows the headers that are sent. Its Rust code is tested with the doc tests.

use std::fs;

use tollway_tower::AdmissionLayer;
use tower_layer::Layer;

use crate::servers::{get_from, listen};
use crate::support::{Hello, per_client, request, send};

mod quick_start {
    include!("quick_start.rs");

    pub(super) async fn run(listener: TcpListener) -> Result<(), Box<dyn Error>> {
        serve(listener).await
    }
}

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

/// The first example of the page, run as it stands there, limits its clients.
#[tokio::test]
async fn the_quick_start_limits() {
    let text = fs::read_to_string(PAGE).unwrap();
    assert_eq!(blocks(&text, "rust").next().unwrap(), include_str!("quick_start.rs"));
    let (listener, address) = listen().await;
    let requests = async {
        let mut statuses = Vec::new();
        for _ in 0..40 {
            statuses.push(get_from(address, "/", &[]).await.0);
        }
        statuses
    };
    let statuses = tokio::select! {
        served = quick_start::run(listener) => panic!("{served:?}"),
        statuses = requests => statuses,
    };
    assert_eq!(statuses[..20], [200; 20]);
    assert!(statuses.contains(&429), "{statuses:?}");
}

fn blocks<'a>(text: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}
