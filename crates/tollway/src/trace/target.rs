//! What can be asked by a trace.

use tollway_core::{Bill, Charge, ChargeError, Policy, Timestamp, Verb};

use super::{LimitRequest, Reply, Request, RuleRequest};
use crate::limiter::Limiter;

/// Whatever answers requests when told what time it is: a limiter, or a gate at the other end of a socket.
pub trait Target {
    /// Answers one request at the moment it is made. Moments never run back.
    fn answer(&mut self, at: Timestamp, request: &Request) -> Reply;
}

/// A limiter by a manual clock. By the machine's clock it would answer for now, whatever the trace says.
impl Target for Limiter {
    fn answer(&mut self, at: Timestamp, request: &Request) -> Reply {
        self.clock().set(at);
        match request {
            Request::Limit(request) => self.answer_limit(request),
            Request::Rule(request) => self.answer_rule(request),
            Request::Text(_) | Request::Throttr(_) | Request::Smockron(_) => {
                Reply::Error(format!("a limiter alone does not speak `{}`", request.gate()))
            }
        }
    }
}

impl Limiter {
    /// Answers a request that speaks of limits by name, now.
    pub fn answer_limit(&self, request: &LimitRequest) -> Reply {
        answer(self, request).unwrap_or_else(Reply::Error)
    }

    /// Answers a request that asks for a rule, now.
    pub fn answer_rule(&self, request: &RuleRequest) -> Reply {
        let policy = self.policy();
        let ruling = request.find(&policy).and_then(|rule| Ok(self.resolve(&request.bill(&rule)?)));
        ruling.map_or_else(|error| Reply::Error(error.to_string()), Reply::Ruling)
    }
}

fn answer(limiter: &Limiter, request: &LimitRequest) -> Result<Reply, String> {
    let policy = limiter.policy();
    let charges = charges(&policy, request).map_err(|error| error.to_string())?;
    let bill = Bill::new(&charges).map_err(|error| error.to_string())?;
    Ok(match request.verb {
        Verb::Spend => decided(&charges, limiter.settle(&[bill])[0]),
        Verb::Check => decided(&charges, limiter.check_bills(&[bill])[0]),
        Verb::Refund if charges.iter().all(|charge| charge.algorithm().is_none()) => Reply::UnlimitedRefund,
        Verb::Refund => Reply::Refund(limiter.refund_charges(&charges).map_err(|error| error.to_string())?),
        Verb::Reset => {
            limiter.reset_charges(&charges).map_err(|error| error.to_string())?;
            Reply::Reset
        }
    })
}

fn charges<'a>(policy: &'a Policy, request: &'a LimitRequest) -> Result<Vec<Charge<'a>>, ChargeError> {
    let charge = |text: &'a super::ChargeText| {
        let charge = policy.charge(&text.limit, &text.id, text.cost)?;
        if request.verb == Verb::Refund { charge.refundable() } else { Ok(charge) }
    };
    request.charges.iter().map(charge).collect()
}

fn decided(charges: &[Charge<'_>], decision: tollway_core::Decision) -> Reply {
    let limit = (charges.len() > 1).then(|| charges[decision.charge].limit().name().to_owned());
    Reply::Decision { decision, limit }
}
