//! Runs an ordinary web service behind the layer.

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderName;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tollway_tower::client::gatekeeper::Gatekeeper;
use tollway_tower::{AdmissionLayer, ByHeader, DecisionEvent};

use crate::process::end_with_parent;
use crate::timeline::Outcome;

/// The longest time that a request waits; one that would have to wait longer is rejected.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(name: &str, accounting: &str, control: &str) -> Result<(), Box<dyn Error>> {
    let gatekeeper =
        Gatekeeper::builder(accounting, "web").control_address(control).max_delay(MAX_DELAY).build()?;
    // It need not: without a master everybody passes. But then there would be nothing to see.
    while !gatekeeper.stats().connected {
        sleep(Duration::from_millis(10)).await;
    }
    let layer = AdmissionLayer::new(gatekeeper)
        .identify(ByHeader::new(HeaderName::from_static("x-client")))
        .on_decision(report);
    let answer = format!("service {name} is at your service\n");
    let app = Router::new().route("/", get(|| async { answer })).layer(layer);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    end_with_parent();
    Ok(axum::serve(listener, app).await?)
}

/// Says what became of a request, for the one who shows it.
fn report(decided: DecisionEvent<'_>) {
    let client = String::from_utf8_lossy(decided.id.unwrap_or(b"somebody"));
    let outcome = Outcome::from(decided.outcome);
    // If nobody reads it any more, it is all over.
    let _ = writeln!(io::stdout().lock(), "{client} {outcome}");
}
