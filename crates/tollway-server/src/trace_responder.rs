//! Answers traces as the gates of a server would, without sockets.

use std::sync::Arc;

use tollway::block_on;
use tollway::config::{ThrottrSettings, WatchSettings};
use tollway::engine::Engine;
use tollway::trace::{TraceReply, TraceRequest, TraceTarget, ZmqMessage};
use tollway_core::Timestamp;
use tollway_wire::{resp, rls, text, zmtp};

use crate::audit::Auditor;
use crate::bounds::Bounds;
use crate::caller::{Authenticator, Caller};
use crate::gate::smockron::{Master, Subscription};
use crate::metrics::WorkerMetrics;
use crate::service::{
    RespConnection, RespNext, RespScratch, RespService, RespSettings, Service, SmockronService, TextService,
    ThrottrService,
};
use crate::stats::Stats;
use crate::tap::Tap;
use crate::watch::Watch;

/// Answers a trace as the gates of a server would, at the times the trace says.
///
/// A trace is one Throttr connection: half a request waits for the rest in a later event. What is no request closes
/// it, and the next event opens another. It is one connection of a Redis client, too, who may bring the numbers of
/// limits, and one gatekeeper that hears of every domain.
pub struct TraceResponder {
    limiter: Arc<Engine>,
    service: Arc<Service>,
    text: TextService,
    throttr: ThrottrService,
    inbox: Vec<u8>,
    resp: RespService,
    connection: RespConnection,
    smockron: SmockronService,
    master: Arc<Master>,
    subscription: Subscription,
}

impl TraceResponder {
    /// Creates one that asks this engine, which needs a manual clock: by the machine's clock it would answer for now,
    /// whatever the trace says.
    pub fn new(limiter: Engine, settings: ThrottrSettings) -> Self {
        let limiter = Arc::new(limiter);
        let watch = Arc::new(Watch::new(WatchSettings { is_on: false, ..WatchSettings::DEFAULT }, 0));
        let tap = Arc::new(Tap::new(Arc::clone(&limiter), 0));
        let auditor = Auditor::new(Arc::default(), Arc::clone(&limiter), Arc::clone(&watch));
        let metrics = Arc::new(WorkerMetrics::default());
        let service = Arc::new(Service::new(Arc::clone(&limiter), metrics, watch, tap, auditor, 0));
        let text = TextService::new(Arc::clone(&service), Arc::new(Stats::new(1)), 0);
        let throttr = ThrottrService::new(Arc::clone(&service), settings);
        let settings = RespSettings::new(true, &Bounds::default());
        let resp = RespService::new(Arc::clone(&service), settings, Authenticator::open("resp"));
        let smockron = SmockronService::new(Arc::clone(&service));
        let master = Master::new(&Bounds::default(), &limiter, None).expect("no StatsD host is to be found");
        let subscription = master.publisher.join();
        subscription.subscribe(b"");
        let connection = RespConnection::new(None);
        let inbox = Vec::new();
        Self { limiter, service, text, throttr, inbox, resp, connection, smockron, master, subscription }
    }

    /// Returns the engine that decides.
    pub fn limiter(&self) -> &Engine {
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
        let answered = block_on(self.throttr.answer(&self.inbox, &mut replies, &mut Vec::new()));
        if answered.is_broken {
            self.inbox.clear();
        } else {
            self.inbox.drain(..answered.taken);
        }
        replies
    }

    fn resp(&mut self, words: &[Vec<u8>]) -> String {
        let (mut command, mut replies) = (Vec::new(), Vec::new());
        resp::encode_command(&words.iter().map(|word| &**word).collect::<Vec<_>>(), &mut command);
        let scratch = &mut RespScratch::default();
        let mut rest = &*command;
        loop {
            let answered = block_on(self.resp.answer(&mut self.connection, rest, &mut replies, scratch));
            rest = &rest[answered.taken..];
            match answered.next {
                RespNext::Again => {}
                RespNext::Read => break,
                RespNext::Close => {
                    self.connection = RespConnection::new(None);
                    break;
                }
            }
        }
        resp::reply_text(&replies).expect("a reply of ours is one")
    }

    fn rls(&self, json: &str) -> Result<String, String> {
        let request = rls::from_json(json.as_bytes()).map_err(|error| error.to_string())?;
        let mut reply = Vec::new();
        let policy = self.service.policy();
        let caller = Caller::anyone("rls");
        let answer = self.service.should_rate_limit(&caller, &policy, &request, |response| {
            rls::put_trace_json(&mut reply, response);
        });
        block_on(answer).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    fn smockron(&mut self, message: &ZmqMessage) -> Vec<ZmqMessage> {
        block_on(self.master.account(&self.smockron, [message.iter().map(|frame| &**frame)]));
        let mut published = Vec::new();
        self.subscription.take(&mut published);
        zmtp::messages(&published).map(|frames| frames.map(<[u8]>::to_vec).collect()).collect()
    }
}

impl TraceTarget for TraceResponder {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        self.limiter.clock().set(at);
        match request {
            TraceRequest::Limit(request) => self.limiter.answer_limit(request),
            TraceRequest::Rule(request) => self.limiter.answer_rule(request),
            TraceRequest::Text(datagram) => TraceReply::Text(self.text(datagram)),
            TraceRequest::Throttr(bytes) => TraceReply::Throttr(self.throttr(bytes)),
            TraceRequest::Resp(words) => TraceReply::Resp(self.resp(words)),
            TraceRequest::Smockron(message) => TraceReply::Smockron(self.smockron(message)),
            TraceRequest::Rls(json) => self.rls(json).map_or_else(TraceReply::Error, TraceReply::Rls),
            TraceRequest::Reload(config) => self.limiter.answer_reload(config),
        }
    }
}
