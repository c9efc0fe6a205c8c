//! Limits and rules, asked for over HTTP.

use tollway::core::Verb;
use tollway::core::{Decision, Nanos, Refund, Rule, RuleRef, RuleRequest, Timestamp, Verdict};
use tollway::trace::{LimitRequest, TraceReply, TraceRequest, TraceTarget};
use tollway_client::ClientError;
use tollway_client::http::blocking::Client;
use tollway_client::http::{ChargeRequest, HttpRuleRequest};
use tollway_testbed::TEST_TIMEOUT;

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
        let client =
            Client::with_timeout(&gate.server.http_addr().unwrap().to_string(), TEST_TIMEOUT).unwrap();
        Self { gate, client }
    }

    fn by_command(&self, request: &LimitRequest) -> TraceReply {
        match self.ask(request) {
            Ok(reply) => reply,
            Err(ClientError::Problem { detail, .. }) => error(&detail),
            Err(error) => panic!("{error}"),
        }
    }

    fn ask(&self, request: &LimitRequest) -> Result<TraceReply, ClientError> {
        let LimitRequest { verb, charges, rules } = request;
        let configured: Vec<_> = rules.iter().map(configured).collect();
        let decided = |decision: Decision| TraceReply::decision(request, decision);
        Ok(match verb {
            Verb::Spend => decided(self.client.spend_bill(charges, &configured)?),
            Verb::Check => decided(self.client.check_bill(charges, &configured)?),
            Verb::Refund | Verb::Reset if !rules.is_empty() => {
                // The client has no such call.
                let body = format!(r#"{{"rules":[{{"rule":"{}"}}]}}"#, rules[0].rule.text());
                let problem = self.gate.post(&format!("/v1/{}", verb.name()), &body).json();
                let detail = problem["detail"].as_str().unwrap();
                let detail = detail.strip_prefix("\"rules\": ").unwrap();
                TraceReply::Error(detail.split(" at line").next().unwrap().to_owned())
            }
            Verb::Refund => match self.client.refund_all(charges)? {
                Refund::UNLIMITED => TraceReply::UnlimitedRefund,
                refund => TraceReply::Refund(refund),
            },
            Verb::Reset => {
                self.client.reset_all(charges)?;
                TraceReply::Reset
            }
        })
    }

    fn rule(&self, request: &RuleRequest<'_>) -> TraceReply {
        let RuleRequest { rule, key, selectors } = configured(request);
        let selectors = selectors
            .into_iter()
            .map(|(name, value)| (name, Some(String::from_utf8(value.into_owned()).unwrap().into())));
        let mut asked = HttpRuleRequest { rule: rule.text().into(), key, selectors: selectors.collect() };
        let decided = match &request.rule {
            // Only the configuration can name a rule, so what is none cannot be resolved; but it can be explained.
            RuleRef::Written(text) if text.parse::<Rule>().is_err() => {
                asked.rule = text.into();
                self.client.explain(&asked).map(|explained| panic!("{explained:?}"))
            }
            _ => self.client.rule_request(&asked),
        };
        match decided {
            Ok(decision) => TraceReply::RuleDecision(decision),
            // An expression is configured under another name.
            Err(ClientError::Problem { detail, .. }) => {
                error(&detail.replace(rule.text(), request.rule.text()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn through_the_gate(&self, verb: Verb, charge: &ChargeRequest<'_>) -> TraceReply {
        assert_eq!(verb, Verb::Spend, "the gate only spends");
        let id: String = charge.id.iter().map(|byte| format!("%{byte:02x}")).collect();
        let reply = self.gate.get(&format!("/v1/gate?limit={}&id={id}&cost={}", charge.limit, charge.cost));
        let number = |name| reply.header(name).map_or(0, |value| value.parse().unwrap());
        let decision = Decision::new(
            if reply.status == 200 { Verdict::Allow } else { Verdict::Deny },
            number("x-ratelimit-remaining"),
            Nanos::from_secs(number("retry-after")),
            Nanos::from_secs(number("x-ratelimit-reset")),
        );
        TraceReply::Decision { decision, limit: None }
    }
}

/// Returns the request with its written rule replaced by the configured rule of the same text.
fn configured<'a>(request: &RuleRequest<'a>) -> RuleRequest<'a> {
    let mut request = request.clone();
    if let RuleRef::Written(text) = &request.rule {
        request.rule = RuleRef::Named(name_of(text));
        request.key.get_or_insert_default();
    }
    request
}

/// The name under which the policy has a rule that the trace gives as an expression.
pub(crate) fn name_of(rule: &str) -> String {
    rule.bytes().fold("x".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Returns the reply of a trace, which has no list of the names that there are.
fn error(detail: &str) -> TraceReply {
    TraceReply::Error(detail.split("; there are ").next().unwrap_or_default().to_owned())
}
