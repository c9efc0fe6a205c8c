//! Limits and rules, asked for over HTTP.

use tollway::core::Verb;
use tollway::core::{ChargeKind, Decision, Nanos, Refund, Rule, RuleDecision, RuleRef, Timestamp, Verdict};
use tollway::trace::{ChargeText, LimitRequest, RuleRequest, TraceReply, TraceRequest, TraceTarget};
use tollway_client::http::{
    AskError, ChargeRequest, Client, HttpRuleRequest, ResponseError, RuleResponse, ServerResponse,
};

use crate::support::Harness;

pub(crate) struct OverHttp {
    pub(crate) gate: Harness,
    client: Client,
}

impl TraceTarget for OverHttp {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        self.gate.clock.set(at);
        let request = match request {
            TraceRequest::Limit(request) => request,
            TraceRequest::Rule(request) => return self.rule(request),
            _ => panic!("HTTP does not speak `{}`", request.gate()),
        };
        match &request.charges[..] {
            // JSON has no such id; a query string has.
            [charge] if std::str::from_utf8(&charge.id).is_err() => {
                self.through_the_gate(request.verb, charge)
            }
            _ => self.by_command(request),
        }
    }
}

impl OverHttp {
    pub(crate) fn new(gate: Harness) -> Self {
        let client = Client::new(&gate.server.http_addr().unwrap().to_string());
        Self { gate, client }
    }

    fn by_command(&self, request: &LimitRequest) -> TraceReply {
        let ask = |charge: &ChargeText| ChargeRequest {
            limit: charge.limit.clone().into(),
            id: charge.id.clone().into(),
            cost: charge.cost,
            kind: ChargeKind::Spend,
        };
        let asks: Vec<_> = request.charges.iter().map(ask).collect();
        match self.client.ask(request.verb, &asks) {
            Ok(answer) => reply(answer, asks.len()),
            Err(AskError::Answer(ResponseError::Problem { detail, .. })) => TraceReply::Error(detail),
            Err(error) => panic!("{error}"),
        }
    }

    fn rule(&self, request: &RuleRequest) -> TraceReply {
        let (name, key) = match &request.rule {
            RuleRef::Named(name) => (name.clone(), request.key.clone()),
            RuleRef::Written(text) => (name_of(text), Some(request.key.clone().unwrap_or_default())),
        };
        let selectors = request.selectors.iter().map(|(name, value)| {
            let value = String::from_utf8(value.clone()).unwrap();
            (name.into(), Some(value.into()))
        });
        let mut asked =
            HttpRuleRequest { rule: name.into(), key: key.map(Into::into), selectors: selectors.collect() };
        let ruled = match &request.rule {
            // Only the configuration can name a rule, so what is none cannot be resolved; but it can be explained.
            RuleRef::Written(text) if text.parse::<Rule>().is_err() => {
                asked.rule = text.into();
                self.client.explain(&asked).map(|explained| panic!("{explained:?}"))
            }
            _ => self.client.resolve(&asked),
        };
        match ruled {
            Ok(ruled) => TraceReply::RuleDecision(ruling(ruled)),
            Err(AskError::Answer(ResponseError::Problem { detail, .. })) => TraceReply::Error(detail),
            Err(error) => panic!("{error}"),
        }
    }

    fn through_the_gate(&self, verb: Verb, charge: &ChargeText) -> TraceReply {
        assert_eq!(verb, Verb::Spend, "the gate only spends");
        let id: String = charge.id.iter().map(|byte| format!("%{byte:02x}")).collect();
        let reply = self.gate.get(&format!("/v1/gate?limit={}&id={id}&cost={}", charge.limit, charge.cost));
        let number = |name| reply.header(name).map_or(0, |value| value.parse().unwrap());
        let decision = Decision::new(
            if reply.status == 204 { Verdict::Allow } else { Verdict::Deny },
            number("x-ratelimit-remaining"),
            Nanos::from_secs(number("retry-after")),
            Nanos::from_secs(number("x-ratelimit-reset")),
        );
        TraceReply::Decision { decision, limit: None }
    }
}

/// What a rule is called where it needs a name.
pub(crate) fn name_of(rule: &str) -> String {
    rule.bytes().fold("x".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

fn ruling(ruled: RuleResponse) -> RuleDecision {
    let verdict = match (ruled.allowed, ruled.reason.as_deref()) {
        (true, None) => Verdict::Allow,
        (true, Some("full")) => Verdict::AllowFull,
        (false, None) => Verdict::Deny,
        (false, Some("full")) => Verdict::DenyFull,
        (_, Some(reason)) => panic!("{reason}"),
    };
    let never = if ruled.allowed { Nanos::ZERO } else { Nanos::FOREVER };
    let mut decision = RuleDecision::new(verdict, ruled.retry_after.unwrap_or(never));
    decision.degraded = ruled.degraded;
    decision
}

fn reply(answer: ServerResponse, charges: usize) -> TraceReply {
    match answer {
        ServerResponse::Decision {
            allowed,
            remaining,
            retry_after,
            reset_after,
            limit,
            reason,
            degraded,
        } => {
            let verdict = match (allowed, reason.as_deref(), remaining) {
                (true, None, None) => Verdict::Unlimited,
                (true, None, Some(_)) => Verdict::Allow,
                (true, Some("full"), _) => Verdict::AllowFull,
                (false, None, _) => Verdict::Deny,
                (false, Some("full"), _) => Verdict::DenyFull,
                (_, Some(reason), _) => panic!("{reason}"),
            };
            let (remaining, retry) = (remaining.unwrap_or(u64::MAX), retry_after.unwrap_or(Nanos::FOREVER));
            let mut decision = Decision::new(verdict, remaining, retry, reset_after.unwrap());
            decision.degraded = degraded;
            TraceReply::Decision { decision, limit: (charges > 1).then_some(limit) }
        }
        ServerResponse::Refund { remaining: None, .. } => TraceReply::UnlimitedRefund,
        ServerResponse::Refund { refunded, remaining: Some(remaining), reset_after } => {
            TraceReply::Refund(Refund::new(refunded, remaining, reset_after.unwrap()))
        }
        ServerResponse::Reset => TraceReply::Reset,
    }
}
