//! RESP: answers every command of a Redis client that has arrived, in order.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Missing, Next, Received, Session};
use super::tcp::TcpProtocol;
use crate::bounds::Bounds;
use crate::caller::Authenticator;
use crate::service::{RespAnswered, RespConnection, RespNext, RespScratch, RespService, RespSettings};
use crate::worker::Worker;

/// Speaks RESP, in both versions.
pub(super) struct Resp {
    /// True if clients may bring the numbers of limits.
    pub(super) allow_inline: bool,
    pub(super) auth: Authenticator,
}

impl TcpProtocol for Resp {
    type Shared = RespShared;
    type Session = RespSession;

    fn shared(&self, worker: &Arc<Worker>) -> RespShared {
        let settings = RespSettings::new(self.allow_inline, worker.bounds());
        let service = RespService::new(Arc::clone(&worker.service), settings, self.auth.clone());
        RespShared { service, echo: worker.shared.echo }
    }

    fn session(shared: &Arc<RespShared>, peer: IpAddr, _is_reserved: bool) -> RespSession {
        RespSession { shared: Arc::clone(shared), connection: RespConnection::new(Some(peer)) }
    }
}

/// The state that the connections of one worker share.
pub(super) struct RespShared {
    service: RespService,
    /// True if everything is sent back instead of answered.
    echo: bool,
}

/// Answers the commands of one connection.
pub(super) struct RespSession {
    shared: Arc<RespShared>,
    connection: RespConnection,
}

impl Session for RespSession {
    type Scratch = RespScratch;
    const KEEP_ALIVE: bool = true;

    fn set_certificate(&mut self, name: Arc<str>) {
        self.connection.set_certificate(name);
    }

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        scratch: &mut RespScratch,
        draining: bool,
    ) -> Received {
        let answered = if self.shared.echo {
            output.extend_from_slice(arrived);
            RespAnswered { taken: arrived.len(), next: RespNext::Read }
        } else {
            self.shared.service.answer(&mut self.connection, arrived, output, scratch).await
        };
        let next = match answered.next {
            RespNext::Again => Next::Again,
            // What the client sent after its last command is not read.
            RespNext::Close => Next::Refuse,
            RespNext::Read if answered.taken < arrived.len() => Next::Read(Missing::Frame),
            RespNext::Read if draining => Next::Refuse,
            RespNext::Read => Next::Read(Missing::Nothing),
        };
        Received { taken: answered.taken, next, at: Instant::now() }
    }

    /// Clients keep connections in pools, and Redis never closes one. A full gate closes the longest idle one. But the
    /// commands of a transaction take memory, so one that is not executed is not kept for ever: its time runs from
    /// `MULTI` on, whatever else the client sends. A client that has not logged in is closed after `idle`, too.
    fn read_timeout(&self, missing: Missing, bounds: &Bounds) -> Option<Duration> {
        let usual = match missing {
            Missing::Nothing if !self.shared.service.must_log_in(&self.connection) => None,
            missing => Some(missing.time(bounds)),
        };
        let began = self.connection.transaction_began();
        let of_transaction = began.map(|began| bounds.idle.saturating_sub(began.elapsed()));
        usual.into_iter().chain(of_transaction).min()
    }
}
