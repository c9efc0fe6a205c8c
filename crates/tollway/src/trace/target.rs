//! The trait that answers the requests of a trace, and its implementation for [`Engine`].

use tollway_core::{Bill, Charge, ChargeError, ChargeRequest, ErrorChain, Policy, Refund, Timestamp, Verb};

use super::{LimitRequest, RuleRequest, TraceReply, TraceRequest};
use crate::engine::{BlockingEngine, Engine};

/// A target that a trace can be replayed against: a limiter, or a gate at the other end of a socket.
pub trait TraceTarget {
    /// Answers one request at the time `at`. Times never run back.
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply;
}

/// Replays against an engine, which must have a manual clock. With the machine's clock it would ignore the times of the
/// trace.
impl TraceTarget for Engine {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        self.clock().set(at);
        match request {
            TraceRequest::Limit(request) => self.answer_limit(request),
            TraceRequest::Rule(request) => self.answer_rule(request),
            TraceRequest::Text(_) | TraceRequest::Throttr(_) | TraceRequest::Smockron(_) => {
                TraceReply::Error(format!("a limiter without a server does not speak \"{}\"", request.gate()))
            }
        }
    }
}

impl Engine {
    /// Answers a request to the gate `limit`, at the current time of the clock.
    pub fn answer_limit(&self, request: &LimitRequest) -> TraceReply {
        answer(&self.blocking(), request).unwrap_or_else(TraceReply::Error)
    }

    /// Answers a request to the gate `rule`, at the current time of the clock.
    pub fn answer_rule(&self, request: &RuleRequest) -> TraceReply {
        let policy = self.policy();
        let blocking = self.blocking();
        let decision = request.find(&policy).and_then(|rule| Ok(blocking.resolve(&request.bill(&rule)?)));
        decision
            .map_or_else(|error| TraceReply::Error(ErrorChain(&error).to_string()), TraceReply::RuleDecision)
    }
}

fn answer(limiter: &BlockingEngine, request: &LimitRequest) -> Result<TraceReply, String> {
    let policy = limiter.engine().policy();
    let charges = charges(&policy, request).map_err(|error| ErrorChain(&error).to_string())?;
    let bill = Bill::new(&charges).map_err(|error| ErrorChain(&error).to_string())?;
    Ok(match request.verb {
        Verb::Spend => decided(&charges, limiter.settle(&[bill])[0]),
        Verb::Check => decided(&charges, limiter.check_bills(&[bill])[0]),
        Verb::Refund => {
            match limiter.refund_charges(&charges).map_err(|error| ErrorChain(&error).to_string())? {
                Refund::UNLIMITED => TraceReply::UnlimitedRefund,
                refund => TraceReply::Refund(refund),
            }
        }
        Verb::Reset => {
            limiter.reset_charges(&charges).map_err(|error| ErrorChain(&error).to_string())?;
            TraceReply::Reset
        }
    })
}

fn charges<'a>(policy: &'a Policy, request: &'a LimitRequest) -> Result<Vec<Charge<'a>>, ChargeError> {
    let verb = request.verb;
    let charge = |request: &'a ChargeRequest<'_>| {
        let charge = policy.charge_request(request)?;
        if verb == Verb::Refund { charge.refundable() } else { Ok(charge) }
    };
    request.charges.iter().map(charge).collect()
}

fn decided(charges: &[Charge<'_>], decision: tollway_core::Decision) -> TraceReply {
    let limit = (charges.len() > 1).then(|| charges[decision.charge].limit().name().to_owned());
    TraceReply::Decision { decision, limit }
}
