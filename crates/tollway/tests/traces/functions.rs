//! Rules as a program's functions and blocks ask them.

use tollway::block_on;
use tollway::core::{ErrorChain, RuleDecision, RuleLookupError, RuleRequest, Timestamp};
use tollway::engine::Engine;
use tollway::rate_limit::{RateLimitError, RuleGuard};
use tollway::trace::{TraceReply, TraceRequest, TraceTarget};
use tollway::{AsyncLimiter, RateLimit};

/// A limiter by a manual clock, whose rules are asked by a [`RateLimit`].
pub(crate) struct Functions {
    limiter: Engine,
    asked: usize,
}

impl Functions {
    pub(crate) fn new(limiter: Engine) -> Self {
        Self { limiter, asked: 0 }
    }

    /// Every other one is awaited.
    fn ask(&mut self, request: &RuleRequest<'_>) -> Result<RuleDecision, String> {
        let limit = self.limit(request).map_err(|error| ErrorChain(&error).to_string())?;
        self.asked += 1;
        let answer = if self.asked.is_multiple_of(2) { block_on(limit.enter_async()) } else { limit.enter() };
        match answer {
            Ok(permit) => Ok(permit.decision()),
            Err(RateLimitError::Exceeded(denied)) => Ok(denied.decision()),
            Err(RateLimitError::Selector(missing)) => {
                let rule = request.rule.text().to_owned();
                Err(RuleLookupError::MissingSelector { rule, selector: missing.selector }.to_string())
            }
            Err(error) => Err(ErrorChain(&error).to_string()),
        }
    }

    /// In a program of its own: a trace may have one key under several rules, and a program may not.
    fn limit<'a>(&self, request: &'a RuleRequest<'_>) -> Result<RuleGuard<'a>, RuleLookupError> {
        let policy = self.limiter.policy();
        let rule = request.find(&policy)?;
        let limit =
            RateLimit::new(AsyncLimiter::from(self.limiter.clone())).limit(rule.limit().rule().clone())?;
        let limit = limit.on_full(rule.limit().on_full()).on_store_failure(rule.limit().on_store_failure());
        let limit = if rule.key().is_empty() { limit } else { limit.key(rule.key()) };
        // As values: a function that is not needed is not called, and a denial then knows less of when to come again.
        Ok(request.selectors.iter().fold(limit, |limit, (name, value)| limit.selector(name, &**value)))
    }
}

impl TraceTarget for Functions {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        self.limiter.clock().set(at);
        match request {
            TraceRequest::Rule(request) => {
                self.ask(request).map_or_else(TraceReply::Error, TraceReply::RuleDecision)
            }
            TraceRequest::Limit(request) => self.limiter.answer_limit(request),
            TraceRequest::Reload(config) => self.limiter.answer_reload(config),
            TraceRequest::Text(_)
            | TraceRequest::Throttr(_)
            | TraceRequest::Resp(_)
            | TraceRequest::Smockron(_)
            | TraceRequest::Rls(_) => {
                unreachable!("such traces are not run here")
            }
        }
    }
}
