//! The text protocol over UDP: receives what has arrived, answers all of it, and sends all replies together.

mod authentication;
mod replay;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Protocol, Socket};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollway::clock::Clock;
use tollway::config::{TextHmac, TrustedNetworks};
use tollway_core::LogThrottle;
use tollway_wire::text::ReplyEncoder;
use tracing::warn;

pub use self::authentication::KeyFileError;
pub(crate) use self::authentication::Rejected;
pub(super) use self::authentication::check_key_file;
use self::authentication::{KeyFile, SignatureChecker};
use super::tcp::{RETRY_PAUSE, propagate};
use super::{Gate, GateFuture};
use crate::bounds::LOG_PAUSE;
use crate::datagrams::{Datagrams, Inbox, Outbox, Peer};
use crate::reload::Reloadable;
use crate::service::TextService;
use crate::stats::Stats;
use crate::worker::Worker;

/// The number of batches that each worker answers at a time if the store is shared: while one waits for its answers,
/// the others are received.
const BATCHES_IN_FLIGHT: usize = 8;
/// The number of times that a drain receives the datagrams that had arrived when it began. A flood must not keep it.
const LAST_RECEIVES: usize = 16;

/// The time for which receiving may fail before the server is not healthy. A lack of memory for a moment is no reason
/// to replace a server.
const FAILURE_MAX: Duration = Duration::from_secs(1);

/// Speaks the text protocol.
pub(super) struct TextGate {
    address: SocketAddr,
    trusted: TrustedNetworks,
    /// Checks signatures, if the gate has keys.
    signatures: Option<SignatureChecker>,
    stats: Arc<Stats>,
    /// One for all workers and batches: if one cannot receive, hardly any of them can.
    throttle: LogThrottle,
}

impl TextGate {
    pub(super) fn new(address: SocketAddr, trusted: TrustedNetworks, workers: usize) -> Self {
        let throttle = LogThrottle::new(LOG_PAUSE, Instant::now());
        let stats = Arc::new(Stats::new(workers.max(1)));
        Self { address, trusted, signatures: None, stats, throttle }
    }

    /// Answers signed datagrams only, and remembers at most `max` of them. Returns the file of the keys as well, which
    /// is to be reloaded.
    pub(super) fn with_hmac(
        self,
        hmac: &TextHmac,
        max: usize,
        clock: &Clock,
    ) -> Result<(Self, Box<dyn Reloadable>), KeyFileError> {
        let key_file = KeyFile::open(&hmac.keys)?;
        let signatures = Some(SignatureChecker::new(&key_file, hmac, max, clock));
        Ok((Self { signatures, ..self }, Box::new(key_file)))
    }
}

impl Gate for TextGate {
    fn name(&self) -> &'static str {
        "text"
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn transport(&self) -> Protocol {
        Protocol::UDP
    }

    fn serve(self: Arc<Self>, socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture> {
        let datagrams = Arc::new(Datagrams::new(socket.into())?);
        let mut batches = JoinSet::new();
        for _ in 0..if worker.awaits_store() { BATCHES_IN_FLIGHT } else { 1 } {
            let service =
                TextService::new(Arc::clone(&worker.service), Arc::clone(&self.stats), worker.index);
            let batch = TextBatch {
                gate: Arc::clone(&self),
                datagrams: Arc::clone(&datagrams),
                worker: Arc::clone(&worker),
                service,
                inbox: Inbox::new(),
                outbox: Outbox::new(),
                encoder: ReplyEncoder::new(),
            };
            batches.spawn(batch.run());
        }
        Ok(Box::pin(async move {
            while let Some(ended) = batches.join_next().await {
                propagate(ended);
            }
        }))
    }
}

/// Answers one batch of datagrams at a time.
struct TextBatch {
    gate: Arc<TextGate>,
    datagrams: Arc<Datagrams>,
    worker: Arc<Worker>,
    service: TextService,
    inbox: Inbox,
    outbox: Outbox,
    encoder: ReplyEncoder,
}

impl TextBatch {
    /// Answers everybody until the server drains.
    async fn run(mut self) {
        let datagrams = Arc::clone(&self.datagrams);
        let mut draining = pin!(self.worker.drain.clone().started());
        loop {
            tokio::select! {
                biased;
                () = &mut draining => break,
                received = datagrams.receive(&mut self.inbox) => {
                    let has_received = match received {
                        Ok(()) => true,
                        Err(error) => tokio::select! {
                            () = &mut draining => break,
                            has_received = self.retry(error) => has_received,
                        },
                    };
                    // Not in the select above: a drain must not drop datagrams that have been received.
                    if has_received {
                        self.answer().await;
                    }
                }
            }
        }
        for _ in 0..LAST_RECEIVES {
            if datagrams.receive_now(&mut self.inbox).is_err() {
                return;
            }
            self.answer().await;
        }
    }

    /// Tries to receive again until there is no error, and returns true if datagrams were received. The pauses keep an
    /// error that lasts from taking a core: the runtime calls such a socket readable all the time.
    async fn retry(&mut self, mut error: io::Error) -> bool {
        let (began, mut failed) = (Instant::now(), None);
        loop {
            self.worker.metrics.text.receive_errors.one();
            if let Some(held_back) = self.gate.throttle.allow(Instant::now()) {
                warn!(%error, held_back, "text gate cannot receive datagrams");
            }
            if began.elapsed() >= FAILURE_MAX {
                failed.get_or_insert_with(|| self.worker.shared.health.fail_task());
            }
            sleep(RETRY_PAUSE).await;
            match self.datagrams.receive_now(&mut self.inbox) {
                Ok(()) => return true,
                // Nothing has arrived, but something could.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(again) => error = again,
            }
        }
    }

    async fn answer(&mut self) {
        let Self { gate, datagrams, worker, service, inbox, outbox, encoder } = self;
        let metrics = &worker.metrics.text;
        // The sender may be forged, and the answer longer than the question: others could be flooded with it.
        // Datagrams of one peer come one after another, and its networks are looked up for the first of them.
        let mut last: Option<(&Peer, bool)> = None;
        let trusted = inbox.iter().filter(|(peer, _)| {
            let trusted = match last {
                Some((last, trusted)) if std::ptr::eq(last, *peer) => trusted,
                _ => gate.trusted.contain(peer.address),
            };
            last = Some((peer, trusted));
            if !trusted {
                metrics.untrusted.one();
            }
            trusted
        });
        if worker.shared.echo {
            for (peer, datagram) in trusted {
                outbox.push(peer, |out| out.extend_from_slice(datagram));
            }
        } else if let Some(signatures) = &gate.signatures {
            let signatures = signatures.batch();
            // What is rejected gets no reply, so nobody can be flooded with replies by somebody without a key.
            let signed = trusted.filter_map(|(peer, datagram)| match signatures.check(datagram) {
                Ok((signer, request)) => Some(((peer, signer), request)),
                Err(rejected) => {
                    metrics.rejected[rejected as usize].one();
                    None
                }
            });
            let answers = service.answer(signed, |(peer, signer), id, reply| {
                outbox.push(peer, |out| {
                    let start = out.len();
                    encoder.encode(id, reply, out);
                    signer.sign(start, out);
                });
            });
            answers.await;
        } else {
            let answers = service
                .answer(trusted, |peer, id, reply| outbox.push(peer, |out| encoder.encode(id, reply, out)));
            answers.await;
        }
        if !outbox.is_empty() {
            metrics.send_errors.add(datagrams.send(outbox).await as u64);
        }
    }
}
