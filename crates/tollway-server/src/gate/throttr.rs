//! The Throttr protocol: answers every request that has arrived, in order.

use std::net::IpAddr;
use std::sync::Arc;

use tollway::config::ThrottrSettings;
use tollway_core::algorithm::QuotaOutcome;

use super::connection::{Missing, Next, Received, Session, now};
use super::tcp::TcpProtocol;
use crate::service::ThrottrService;
use crate::worker::Worker;

/// Speaks the Throttr protocol.
pub(super) struct Throttr {
    pub(super) settings: ThrottrSettings,
}

/// The state that the connections of one worker share.
pub(super) struct ThrottrShared {
    worker: Arc<Worker>,
    service: ThrottrService,
}

impl TcpProtocol for Throttr {
    type Shared = ThrottrShared;
    type Session = ThrottrSession;

    fn shared(&self, worker: &Arc<Worker>) -> ThrottrShared {
        let service = ThrottrService::new(Arc::clone(&worker.service), self.settings);
        ThrottrShared { worker: Arc::clone(worker), service }
    }

    fn session(shared: &Arc<ThrottrShared>, _peer: IpAddr, _is_reserved: bool) -> ThrottrSession {
        ThrottrSession(Arc::clone(shared))
    }
}

/// Answers the requests of one connection.
pub(super) struct ThrottrSession(Arc<ThrottrShared>);

impl Session for ThrottrSession {
    type Scratch = Vec<QuotaOutcome>;

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        outcomes: &mut Vec<QuotaOutcome>,
        draining: bool,
    ) -> Received {
        let Self(shared) = self;
        let (taken, is_broken) = if shared.worker.shared.echo {
            output.extend_from_slice(arrived);
            (arrived.len(), false)
        } else {
            let answered = shared.service.answer(arrived, output, outcomes).await;
            (answered.taken, answered.is_broken)
        };
        let next = if is_broken {
            shared.worker.metrics.throttr.unknown_type.one();
            Next::Refuse
        } else if taken < arrived.len() {
            Next::Read(Missing::Frame)
        } else if draining {
            Next::Refuse
        } else {
            Next::Read(Missing::Nothing)
        };
        Received { taken, next, at: now() }
    }
}
