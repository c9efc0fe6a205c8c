//! The trait that answers the requests of a trace, and its implementation for [`Engine`].

use tollway_core::{ErrorChain, Refund, RuleRequest, Timestamp};

use super::{LimitRequest, TraceReply, TraceRequest};
use crate::block_on::block_on;
#[cfg(feature = "yaml")]
use crate::config::Config;
use crate::engine::{Engine, VerbAnswer};

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
            TraceRequest::Reload(config) => self.answer_reload(config),
            TraceRequest::Text(_)
            | TraceRequest::Throttr(_)
            | TraceRequest::Resp(_)
            | TraceRequest::Smockron(_)
            | TraceRequest::Rls(_) => {
                TraceReply::Error(format!("a limiter without a server does not speak \"{}\"", request.gate()))
            }
        }
    }
}

impl Engine {
    /// Answers a request to the gate `limit`, at the current time of the clock.
    pub fn answer_limit(&self, request: &LimitRequest) -> TraceReply {
        let (policy, blocking) = (self.policy(), self.blocking());
        let answer =
            block_on(blocking.engine().perform(&policy, request.verb, &request.charges, &request.rules));
        match answer {
            Ok(VerbAnswer::Decision(_, decision)) => TraceReply::decision(request, decision),
            Ok(VerbAnswer::Refund(_, Refund::UNLIMITED)) => TraceReply::UnlimitedRefund,
            Ok(VerbAnswer::Refund(_, refund)) => TraceReply::Refund(refund),
            Ok(VerbAnswer::Reset(_)) => TraceReply::Reset,
            Err(error) => TraceReply::Error(ErrorChain(&error).to_string()),
        }
    }

    /// Answers a request to the gate `rule`, at the current time of the clock.
    pub fn answer_rule(&self, request: &RuleRequest<'_>) -> TraceReply {
        let policy = self.policy();
        let blocking = self.blocking();
        let decision = request.find(&policy).and_then(|rule| Ok(blocking.resolve(&request.bill(&rule)?)));
        decision
            .map_or_else(|error| TraceReply::Error(ErrorChain(&error).to_string()), TraceReply::RuleDecision)
    }

    /// Replaces the policy with that of a configuration, as a server does when its file has changed. Settings that a
    /// server reads at start only, such as the store, are ignored; a configuration with errors changes nothing.
    #[cfg(feature = "yaml")]
    pub fn answer_reload(&self, config: &str) -> TraceReply {
        match Config::parse(config, "reload") {
            Ok(config) => {
                self.reload(config.policy);
                TraceReply::Reloaded
            }
            Err(errors) => TraceReply::Error(ErrorChain(&errors).to_string()),
        }
    }

    /// Answers that this program was built without the parser of configurations.
    #[cfg(not(feature = "yaml"))]
    pub fn answer_reload(&self, _config: &str) -> TraceReply {
        TraceReply::Error("a configuration cannot be read without the feature \"yaml\"".to_owned())
    }
}
