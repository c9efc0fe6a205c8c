use std::error::Error;
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tollway::Limiter;
use tollway_tower::{AdmissionLayer, LocalLimit};

async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_yaml("limits: { PerClient: { burst: 20, count: 10, period: 1m } }")?;
    let layer = AdmissionLayer::new(LocalLimit::new(limiter, "PerClient")?).exempt_path("/healthz");
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}
