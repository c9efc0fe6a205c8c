//! Every gate's answers, without a socket.

use std::sync::Arc;

use tollgate::Limiter;
use tollgate::config::OnInsert;
use tollgate::trace::{Reply, Request, Target};
use tollgate::waiting::block_on;
use tollgate_core::Timestamp;
use tollgate_wire::text;

use crate::metrics::WorkerMetrics;
use crate::service::{Service, TextService, ThrottrService};
use crate::stats::Stats;

/// Answers a trace as the gates of a server would, at the times the trace says.
///
/// A trace is one Throttr connection: half a request waits for the rest in a later event. What is no request closes
/// it, and the next event opens another.
pub struct Desk {
    limiter: Arc<Limiter>,
    text: TextService,
    throttr: ThrottrService,
    inbox: Vec<u8>,
}

impl Desk {
    /// Asks this limiter, which needs a manual clock: by the machine's it would answer for now, whatever the trace says.
    pub fn new(limiter: Limiter, on_insert: OnInsert) -> Self {
        let limiter = Arc::new(limiter);
        let service = Arc::new(Service::new(Arc::clone(&limiter), Arc::new(WorkerMetrics::default())));
        let text = TextService::new(Arc::clone(&service), Arc::new(Stats::new(1)), 0);
        Self { limiter, text, throttr: ThrottrService::new(service, on_insert), inbox: Vec::new() }
    }

    /// What decides.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn text(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut answer = None;
        block_on(self.text.answer(std::iter::once(((), datagram)), |(), id, reply| {
            text::encode(id, reply, answer.insert(Vec::new()));
        }));
        answer
    }

    fn throttr(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.inbox.extend_from_slice(bytes);
        let mut replies = Vec::new();
        let heard = block_on(self.throttr.answer(&self.inbox, &mut replies, &mut Vec::new()));
        if heard.broken {
            self.inbox.clear();
        } else {
            self.inbox.drain(..heard.taken);
        }
        replies
    }
}

impl Target for Desk {
    fn answer(&mut self, at: Timestamp, request: &Request) -> Reply {
        self.limiter.clock().set(at);
        match request {
            Request::Limit(request) => self.limiter.answer_limit(request),
            Request::Rule(request) => self.limiter.answer_rule(request),
            Request::Text(datagram) => Reply::Text(self.text(datagram)),
            Request::Throttr(bytes) => Reply::Throttr(self.throttr(bytes)),
        }
    }
}
