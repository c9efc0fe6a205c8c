//! One worker thread: accepts clients, and serves those that it accepted.

use std::convert::Infallible;
use std::io;
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::bounds::{DRAIN_MAX, HEAD_MAX, PENDING_RESETS_MAX, PING_AFTER, PONG_MAX, STREAMS_MAX};
use crate::connection::Connection;
use crate::guard::Shared;
use crate::pool::Pool;
use crate::socket;
use crate::stream_tasks::StreamTasks;

/// The pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves HTTP/1.1 and HTTP/2.
pub(crate) type Server = auto::Builder<StreamTasks>;

/// Serves clients on this thread until the proxy has drained.
pub(crate) fn run(
    listener: net::TcpListener,
    shared: &Arc<Shared>,
    draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(listener, shared, draining))
}

async fn serve(
    listener: net::TcpListener,
    shared: &Arc<Shared>,
    mut draining: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (server, pool) = (server(shared), Pool::new(Arc::clone(shared)));
    // Each connection holds a sender, so the channel closes with the last of them.
    let (open, mut all_closed) = mpsc::channel::<Infallible>(1);
    loop {
        let next = async {
            let (stream, peer) = accept(&listener).await;
            (stream, peer, shared.permits.acquire().await)
        };
        let (stream, peer, permit) = tokio::select! {
            next = next => next,
            _ = draining.wait_for(|draining| *draining) => break,
        };
        let connection = Connection::new(Arc::clone(shared), Arc::clone(&pool), peer, permit);
        let serving = connection.serve(server.clone(), stream, draining.clone());
        let open = open.clone();
        tokio::spawn(async move {
            serving.await;
            drop(open);
        });
    }
    drop((listener, open));
    if timeout(DRAIN_MAX, all_closed.recv()).await.is_err() {
        warn!(after = ?DRAIN_MAX, "closing connections whose requests have not ended");
    }
    Ok(())
}

fn server(shared: &Shared) -> Server {
    let mut server = auto::Builder::new(StreamTasks { timeout: shared.client_stall() });
    // A client that sends no whole head is idle, and has the timeout of idle clients.
    server.http1().header_read_timeout(None).max_buf_size(HEAD_MAX as usize);
    let mut http2 = server.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING_AFTER).keep_alive_timeout(PONG_MAX);
    http2.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_MAX);
    http2.max_pending_accept_reset_streams(PENDING_RESETS_MAX);
    server
}

/// Accepts the next connection. One that fails is logged, and does not end the listener.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // This fails if the client has disconnected already, which its first read will tell.
                let _ = socket::configure(&stream);
                return (stream, peer);
            }
            Err(error) => {
                warn!(%error, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
