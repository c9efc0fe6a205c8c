//! Serves one client connection until it ends, is idle for too long, makes room for another, or the server drains.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::bounds::{GOODBYE_MAX, SLOW};
use super::patient::Patient;
use super::proxy::Client;
use super::worker::Server;

/// Until the client has no more requests, has sent none for too long, makes room for another, or the server drains.
pub(super) async fn converse(
    server: Server,
    stream: TcpStream,
    client: Arc<Client>,
    mut draining: watch::Receiver<bool>,
) {
    let settings = client.settings();
    let stream = Patient::new(stream, settings.patience());
    let mut idleness = Idleness::new(settings.patience, stream.written());
    let service = service_fn(|request| {
        // Before anything is awaited: what is not looked at yet is under way, too.
        let (busy, client) = (client.begin(), Arc::clone(&client));
        async move { Ok::<_, Infallible>(client.answer(busy, request).await) }
    });
    let mut conversation = pin!(server.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut wanted = pin!(None);
    let over_or_idle = poll_fn(|context| {
        // How a client ends a conversation is its own affair.
        if conversation.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        let has_asked = idleness.has_asked(client.begun());
        if has_asked || !client.is_idle() {
            wanted.set(None);
            idleness.end();
        }
        if !client.is_idle() {
            return Poll::Pending;
        }
        if wanted.is_none() {
            wanted.set(Some(settings.places.wanted()));
        }
        let is_wanted = wanted.as_mut().as_pin_mut().is_some_and(|wanted| wanted.poll(context).is_ready());
        if is_wanted { Poll::Ready(false) } else { idleness.poll_too_long(context).map(|()| false) }
    });
    let (is_over, patience) = tokio::select! {
        is_over = over_or_idle => (is_over, GOODBYE_MAX),
        _ = draining.wait_for(|draining| *draining) => (false, Duration::MAX),
    };
    if !is_over {
        conversation.as_mut().graceful_shutdown();
        // A request that was on its way is answered.
        while timeout(patience, conversation.as_mut()).await.is_err() && !client.is_idle() {}
    }
}

/// How long a client has had no request under way.
struct Idleness {
    patience: Duration,
    since: Option<Instant>,
    /// How many requests there had been.
    begun: u64,
    timer: Pin<Box<Sleep>>,
    written: Arc<AtomicU64>,
    written_before: u64,
}

impl Idleness {
    fn new(patience: Duration, written: Arc<AtomicU64>) -> Self {
        let timer = Box::pin(sleep(patience));
        Self { patience, since: None, begun: 0, timer, written, written_before: 0 }
    }

    /// A request may have come and gone since it was looked for.
    fn has_asked(&mut self, begun: u64) -> bool {
        std::mem::replace(&mut self.begun, begun) != begun
    }

    fn begin(&mut self) -> Instant {
        self.written_before = self.written.load(Ordering::Relaxed);
        *self.since.insert(Instant::now())
    }

    fn end(&mut self) {
        self.since = None;
    }

    /// The timer is moved only when it goes off: a busy client would move it with every request.
    fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let since = match self.since {
            Some(since) => since,
            None => self.begin(),
        };
        loop {
            ready!(self.timer.as_mut().poll(context));
            let end = since + self.patience;
            if Instant::now() < end {
                self.timer.as_mut().reset(end);
            } else if self.still_takes() {
                self.timer.as_mut().reset(Instant::now() + self.patience);
            } else {
                return Poll::Ready(());
            }
        }
    }

    /// The end of a long answer may be on its way for long. To say now and then that one is there does not count.
    fn still_takes(&mut self) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        let more = written - std::mem::replace(&mut self.written_before, written);
        more as f64 >= SLOW as f64 * self.patience.as_secs_f64()
    }
}
