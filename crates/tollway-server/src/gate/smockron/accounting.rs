//! The gate to which gatekeepers report what they let through: a SUB socket that binds, and subscribes to everything.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tollway_wire::zmtp::{
    SocketType, ZmtpEvent, ZmtpSession, encode_handshake, encode_pong, encode_subscription,
};

use super::backlog::{Backlog, Messages};
use super::reminders::remind_and_recall;
use super::{Master, decode_all, zmtp_next};
use crate::gate::GateFuture;
use crate::gate::connection::{Missing, Received, Session};
use crate::gate::tcp::TcpProtocol;
use crate::service::SmockronService;
use crate::worker::Worker;

/// Receives reports.
pub(in crate::gate) struct Accounting(pub(in crate::gate) Arc<Master>);

/// The state that the connections of one worker share.
pub(in crate::gate) struct AccountingShared {
    pub(super) worker: Arc<Worker>,
    pub(super) master: Arc<Master>,
    pub(super) service: SmockronService,
    pub(super) backlog: Backlog,
}

impl TcpProtocol for Accounting {
    type Shared = AccountingShared;
    type Session = AccountingSession;

    fn shared(&self, worker: &Arc<Worker>) -> AccountingShared {
        AccountingShared {
            worker: Arc::clone(worker),
            master: Arc::clone(&self.0),
            service: SmockronService::new(Arc::clone(&worker.service)),
            backlog: Backlog::new(worker.bounds().accounting),
        }
    }

    fn session(shared: &Arc<AccountingShared>, _peer: IpAddr, _is_reserved: bool) -> AccountingSession {
        AccountingSession { shared: Arc::clone(shared), zmtp: ZmtpSession::new(SocketType::Sub) }
    }

    fn background(&self, shared: &Arc<AccountingShared>) -> Option<GateFuture> {
        let (shared, reminding) = (Arc::clone(shared), remind_and_recall(Arc::clone(shared)));
        Some(Box::pin(async move {
            // One worker does what is done once for all.
            let first = shared.worker.index == 0;
            tokio::select! {
                () = reminding, if first => {}
                () = super::backlog::record_all(&shared) => {}
            }
        }))
    }

    async fn drained(shared: &AccountingShared) {
        shared.backlog.emptied().await;
    }
}

/// Receives the reports of one gatekeeper.
pub(in crate::gate) struct AccountingSession {
    shared: Arc<AccountingShared>,
    zmtp: ZmtpSession,
}

impl Session for AccountingSession {
    type Scratch = ();
    const READ_SIZE: usize = 64 << 10;
    const ENDLESS: bool = true;

    fn open(&mut self, output: &mut Vec<u8>) -> Missing {
        encode_handshake(SocketType::Sub, output);
        Missing::Frame
    }

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        (): &mut (),
        _draining: bool,
    ) -> Received {
        let mut messages = Messages::with_capacity(arrived.len());
        let (taken, is_broken) = decode_all(&mut self.zmtp, arrived, |event| match event {
            ZmtpEvent::Message(frames) => messages.push(&frames),
            // Only now: libzmq takes what comes before it is ready itself for a part of the handshake, and hangs up.
            ZmtpEvent::Ready => encode_subscription(b"", output),
            ZmtpEvent::Ping(context) => encode_pong(context, output),
            _ => {}
        });
        let metrics = &self.shared.worker.metrics.smockron;
        let count = messages.len() as u64;
        if count > 0 && !self.shared.backlog.put(messages) {
            metrics.overload.add(count);
        }
        let next = zmtp_next(&self.zmtp, taken < arrived.len(), is_broken, metrics);
        Received { taken, next, at: Instant::now() }
    }
}
