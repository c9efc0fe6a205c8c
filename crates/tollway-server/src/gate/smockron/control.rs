//! The gate at which gatekeepers hear of delays: a PUB socket that binds.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tollway_wire::zmtp::{SocketType, ZmtpEvent, ZmtpSession, encode_handshake, encode_pong};

use super::subscriber::Subscription;
use super::{Master, decode_all, zmtp_next};
use crate::bounds::Bounds;
use crate::gate::connection::{Missing, Received, Session};
use crate::gate::tcp::TcpProtocol;
use crate::metrics::{Page, WorkerMetrics};
use crate::worker::Worker;

/// Publishes delays.
pub(in crate::gate) struct Control(pub(in crate::gate) Arc<Master>);

/// The state that the connections of one worker share.
pub(in crate::gate) struct ControlShared {
    master: Arc<Master>,
    metrics: Arc<WorkerMetrics>,
}

impl TcpProtocol for Control {
    type Shared = ControlShared;
    type Session = ControlSession;

    fn shared(&self, worker: &Arc<Worker>) -> ControlShared {
        ControlShared { master: Arc::clone(&self.0), metrics: Arc::clone(&worker.metrics) }
    }

    fn session(shared: &Arc<ControlShared>, _peer: IpAddr, _is_reserved: bool) -> ControlSession {
        ControlSession {
            shared: Arc::clone(shared),
            zmtp: ZmtpSession::new(SocketType::Pub),
            subscription: shared.master.publisher.join(),
        }
    }

    fn write_metrics(&self, page: &mut Page) {
        let publisher = &self.0.publisher;
        let help = "Subscribers connected to the control address.";
        page.single("tollway_smockron_subscribers", "gauge", help, publisher.subscribers());
        let help = "Delays kept for gatekeepers that reconnect.";
        page.single("tollway_smockron_delays", "gauge", help, publisher.delays());
    }
}

/// Sends one subscriber what is published.
pub(in crate::gate) struct ControlSession {
    shared: Arc<ControlShared>,
    zmtp: ZmtpSession,
    subscription: Subscription,
}

impl Session for ControlSession {
    type Scratch = ();
    const READ_SIZE: usize = 4 << 10;
    const ENDLESS: bool = true;

    fn open(&mut self, output: &mut Vec<u8>) -> Missing {
        encode_handshake(SocketType::Pub, output);
        Missing::Frame
    }

    /// A subscriber that does not read loses messages, and hears of the delays again when it reads.
    fn write_timeout(_bounds: &Bounds) -> Option<Duration> {
        None
    }

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        (): &mut (),
        _draining: bool,
    ) -> Received {
        let Self { shared, zmtp, subscription } = self;
        let metrics = &shared.metrics.smockron;
        let (taken, is_broken) = decode_all(zmtp, arrived, |event| match event {
            ZmtpEvent::Subscribe(topic) if !subscription.subscribe(topic) => metrics.topics_refused.one(),
            ZmtpEvent::Cancel(topic) => subscription.cancel(topic),
            ZmtpEvent::Ping(context) => {
                // A pong follows everything that was published before the ping.
                subscription.take(output);
                encode_pong(context, output);
            }
            // Nothing else that a publisher receives matters.
            _ => {}
        });
        let next = zmtp_next(zmtp, taken < arrived.len(), is_broken, metrics);
        Received { taken, next, at: Instant::now() }
    }

    fn poll_push(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        self.subscription.poll_take(context, output)
    }

    /// A full gate closes those that have not subscribed to anything. Others hear what is published, and are not idle.
    fn is_idle(&self) -> bool {
        !self.subscription.has_topics()
    }

    /// By then, reports that were read before the drain are recorded, and their delays published.
    fn drain_time(bounds: &Bounds) -> Duration {
        2 * bounds.drain_idle
    }
}
