//! Runs a web service behind the layer: `cargo run -p tollway-tower --example axum`
//!
//! ```console
//! $ for i in 1 2 3 4 5 6 7; do curl -sw ' %{http_code} after %{time_total} s\n' http://127.0.0.1:3000/; done
//! ```
//!
//! Five requests pass at once. The sixth and the seventh wait for their turn, half a second each. A client that keeps
//! sending faster than that gets an answer that says when to come again.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollway::Limiter;
use tollway_tower::{AdmissionLayer, ByAddress, Delayed, LocalLimit};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let limiter = Limiter::from_yaml(POLICY)?;
    let app = app(layer(limiter)?).into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

/// Five at once, and two a second.
const POLICY: &str = "limits: { PerClient: { burst: 5, count: 2, period: 1s } }";

type Layer = AdmissionLayer<Delayed<LocalLimit>>;

/// Limits each address. Who is early waits for up to two seconds.
fn layer(limiter: Limiter) -> Result<Layer, Box<dyn Error>> {
    let limit = Delayed::new(LocalLimit::new(limiter, "PerClient")?, Duration::from_secs(2));
    // The proxy in front of the service runs on this machine, if there is one.
    let by_address = ByAddress::peer().trust_proxies(["127.0.0.0/8".parse()?, "::1".parse()?]);
    Ok(AdmissionLayer::new(limit).identify(by_address).exempt_path("/healthz").always_add_headers(true))
}

fn app(layer: Layer) -> Router {
    let counts = layer.clone();
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/counts", get(move || async move { format!("{:#?}\n", counts.counts()) }))
        .route("/healthz", get(|| async { "well" }))
        .layer(layer)
}

#[cfg(test)]
mod tests {
    use tollway::core::Timestamp;
    use tollway::store::memory::Memory;
    use tollway::{Clock, Config};

    use super::*;

    #[tokio::test]
    async fn each_address_is_told_what_it_has_left() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let config = Config::parse(POLICY, "policy").unwrap();
        let limiter = Limiter::with(config.policy, Memory::new(config.memory_bounds), clock);
        let layer = layer(limiter).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(layer.clone()).into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        for (path, client, left) in [
            ("/", "198.51.100.1", Some("\"PerClient\";r=4;t=1")),
            ("/", "198.51.100.1", Some("\"PerClient\";r=3;t=1")),
            ("/", "198.51.100.2", Some("\"PerClient\";r=4;t=1")),
            ("/healthz", "198.51.100.1", None),
            ("/counts", "198.51.100.1", Some("\"PerClient\";r=2;t=1")),
        ] {
            let request = ureq::get(format!("http://{address}{path}")).header("x-forwarded-for", client);
            let response = tokio::task::spawn_blocking(|| request.call().unwrap()).await.unwrap();
            let said = response.headers().get("ratelimit").map(|value| value.to_str().unwrap());
            assert_eq!(said, left, "{path} {client}");
        }
        assert_eq!((layer.counts().passed, layer.counts().exempt), (4, 1));
        serving.abort();
    }
}
