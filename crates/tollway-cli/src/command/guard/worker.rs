//! One thread: accepts clients, and serves those that it accepted.

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

use super::bounds::{ASK_AFTER, ASKED_MAX, DRAIN_MAX, HEAD_MAX, STREAMS_MAX, TAKEN_BACK_MAX};
use super::conversation::converse;
use super::pool::Pool;
use super::proxy::{Client, Settings};
use super::sockets;
use super::streams::Streams;

/// How long to wait when nobody can be accepted, because the process has too many files open, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) type Server = auto::Builder<Streams>;

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
    let (server, pool) = (server(settings), Pool::new(settings.upstream.clone(), settings.timeout));
    let (here, mut gone) = mpsc::channel::<Infallible>(1);
    loop {
        let (stream, client) = tokio::select! {
            client = next_client(&listener, settings, &pool) => client,
            _ = draining.wait_for(|draining| *draining) => break,
        };
        let conversation = converse(server.clone(), stream, client, draining.clone());
        let here = here.clone();
        tokio::spawn(async move {
            conversation.await;
            drop(here);
        });
    }
    drop((listener, here));
    // Whoever is not done by then is cut off, and so is whatever became a tunnel.
    let _ = timeout(DRAIN_MAX, gone.recv()).await;
    Ok(())
}

fn server(settings: &Settings) -> Server {
    let mut server = auto::Builder::new(Streams { patience: settings.patience() });
    // Who sends no whole head is idle, and idleness has its own bound.
    server.http1().header_read_timeout(None).max_buf_size(HEAD_MAX as usize);
    let mut http2 = server.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(ASK_AFTER).keep_alive_timeout(ASKED_MAX);
    http2.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_MAX);
    http2.max_pending_accept_reset_streams(TAKEN_BACK_MAX);
    server
}

/// The next that connects, once there is room for it.
async fn next_client(
    listener: &TcpListener,
    settings: &Arc<Settings>,
    pool: &Arc<Pool>,
) -> (TcpStream, Arc<Client>) {
    let (stream, peer) = accept(listener).await;
    let place = settings.places.take().await;
    (stream, Client::new(Arc::clone(settings), Arc::clone(pool), peer, place))
}

/// The next that connects. What is wrong with one is no reason to leave the others alone.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Who hung up already is found out soon enough.
                let _ = sockets::prepare(&stream);
                return (stream, peer);
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
