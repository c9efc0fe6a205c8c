//! One thread: accepts clients, and serves those that it accepted.

use std::convert::Infallible;
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::pool::Pool;
use super::proxy::{Client, Settings};

/// How long a client may take to send the head of a request, and how long it may send none.
const HEAD_MAX: Duration = Duration::from_secs(60);

/// How long requests may take that are here when the server is told to stop.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long to wait when nobody can be accepted, because the process has too many files open, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Server = auto::Builder<TokioExecutor>;

pub(super) fn run(
    listener: net::TcpListener,
    settings: &Arc<Settings>,
    draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(listener, settings, draining))
}

async fn serve(
    listener: net::TcpListener,
    settings: &Arc<Settings>,
    mut draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (server, pool) = (server(), Pool::new(settings.upstream.clone()));
    let graceful = GracefulShutdown::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            client = next_client(&listener, settings) => client,
            _ = draining.wait_for(|draining| *draining) => break,
        };
        let (settings, pool) = (Arc::clone(settings), Arc::clone(&pool));
        let client = Arc::new(Client { settings, pool, peer, place: Arc::new(place) });
        tokio::spawn(converse(server.clone(), stream, client, graceful.watcher()));
    }
    drop(listener);
    // Whoever is not done by then is cut off, and so is whatever became a tunnel.
    let _ = timeout(DRAIN_MAX, graceful.shutdown()).await;
    Ok(())
}

fn server() -> Server {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    server.http2().timer(TokioTimer::new());
    server
}

/// The next that connects, once there is room for it.
async fn next_client(
    listener: &TcpListener,
    settings: &Settings,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let clients = Arc::clone(&settings.clients);
    let place = clients.acquire_owned().await.expect("nobody closes it");
    let (stream, peer) = accept(listener).await;
    (stream, peer, place)
}

/// The next that connects. What is wrong with one is no reason to leave the others alone.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it, a small answer may wait for the client to say that it got the one before.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                warn!(%error, "a client cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Until the client has no more requests, or the server drains.
async fn converse(server: Server, stream: TcpStream, client: Arc<Client>, watcher: Watcher) {
    let service = service_fn(|request| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(client.answer(request).await) }
    });
    let conversation = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    // How a client ends a conversation is its own affair.
    let _ = watcher.watch(conversation.into_owned()).await;
}
