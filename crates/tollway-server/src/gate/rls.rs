//! Serves Envoy's rate limit service over gRPC, with the services for health and reflection beside it.
//!
//! hyper serves the connections, because Envoy speaks HTTP/2, and tonic the services beside it. The messages are those
//! of [`tollway_wire::rls`]. Accepting, and the limits of connections, are those of the other gates.

mod connection;
mod framing;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Socket;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollway_wire::rls;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use self::connection::RlsConnections;
use super::limit::ConnectionLimit;
use super::tcp::Acceptor;
use super::tls::TlsServer;
use super::{Gate, GateFuture};
use crate::caller::Authenticator;
use crate::worker::Worker;

/// Listens for proxies that ask over gRPC.
pub(super) struct RlsGate {
    address: SocketAddr,
    limit: Arc<ConnectionLimit>,
    tls: Option<Arc<TlsServer>>,
    auth: Authenticator,
}

impl RlsGate {
    pub(super) fn new(
        address: SocketAddr,
        limit: ConnectionLimit,
        tls: Option<Arc<TlsServer>>,
        auth: Authenticator,
    ) -> Self {
        Self { address, limit: Arc::new(limit), tls, auth }
    }
}

impl Gate for RlsGate {
    fn name(&self) -> &'static str {
        "rls"
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn serve(self: Arc<Self>, socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture> {
        let listener = TcpListener::from_std(socket.into())?;
        let health = HealthReporter::new();
        let health_service = HealthServer::new(HealthService::from_health_reporter(health.clone()));
        let drain = worker.drain.clone();
        let mut background = JoinSet::new();
        background.spawn(async move {
            health.set_service_status(rls::SERVICE, ServingStatus::Serving).await;
            drain.started().await;
            health.set_service_status(rls::SERVICE, ServingStatus::NotServing).await;
            health.set_service_status("", ServingStatus::NotServing).await;
        });
        let connections = RlsConnections::new(Arc::clone(&worker), self.auth.clone(), health_service);
        let connections = connections.map_err(io::Error::other)?;
        let acceptor = Acceptor::new(&self.limit, self.tls.as_ref(), connections, worker);
        Ok(Box::pin(acceptor.run(listener, background)))
    }

    fn connection_limit(&self) -> Option<&ConnectionLimit> {
        Some(&self.limit)
    }

    fn tls(&self) -> Option<&TlsServer> {
        self.tls.as_deref()
    }
}
