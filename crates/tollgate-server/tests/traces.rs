//! Every trace of the project, asked over HTTP.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod support;

use std::fs;
use std::path::Path;

use support::{Harness, start_with};
use tollgate::core::Verb;
use tollgate::core::{Decision, Kind, Nanos, Refund, Timestamp, Verdict};
use tollgate::trace::{ChargeText, LimitRequest, Reader, Reply, Request, Target, matches};
use tollgate_client::http::{Answer, AnswerError, Ask, AskError, Client};

#[test]
fn the_http_gate_answers_the_traces() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut ran = 0;
    for file in fs::read_dir(traces).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "trace") {
            let config = fs::read_to_string(file.with_extension("yaml")).unwrap();
            let trace = fs::read_to_string(&file).unwrap();
            if asks_for_limits_alone(&trace) {
                run(&file.display().to_string(), &config, &trace);
                ran += 1;
            }
        }
    }
    assert!(ran > 10, "only {ran} traces were found");
}

#[test]
fn the_gate_says_when_a_store_has_no_room() {
    let config = "
        max_buckets: 1
        limits: { L: { burst: 3, count: 1, period: 1s }, M: { burst: 3, count: 1, period: 1s, on_full: allow } }
    ";
    let trace = "
        0s  limit  spend L:first   => allow remaining=2 retry_after=0s reset_after=1s
        0s  limit  spend L:second  => deny full remaining=0 retry_after=1s reset_after=1s
        0s  limit  spend M:second  => allow full remaining=0 retry_after=0s reset_after=0s
    ";
    run("inline", config, trace);
}

#[test]
#[should_panic(expected = "inline:1: limit  spend L:a => allow remaining=2 retry_after=0s reset_after=1s")]
fn a_reply_that_differs_is_found() {
    run(
        "inline",
        "limits: { L: { burst: 3, count: 1, period: 1s } }",
        "0s limit spend L:a => allow remaining=3",
    );
}

fn asks_for_limits_alone(trace: &str) -> bool {
    let mut events = Reader::new(trace.as_bytes()).map(Result::unwrap);
    events.all(|event| matches!(event.request, Request::Limit(_)))
}

fn run(name: &str, config: &str, trace: &str) {
    let gate = start_with(config, |settings| settings.workers = 1);
    let client = Client::new(&gate.server.http_addr().unwrap().to_string());
    let mut target = OverHttp { gate, client };
    for event in Reader::new(trace.as_bytes()) {
        let event = event.unwrap();
        let reply = target.answer(event.at, &event.request);
        let as_expected = event.expected.as_deref().is_none_or(|expected| matches(expected, &reply));
        assert!(as_expected, "{name}:{}: {} => {reply}", event.line, event.request);
    }
}

struct OverHttp {
    gate: Harness,
    client: Client,
}

impl Target for OverHttp {
    fn answer(&mut self, at: Timestamp, request: &Request) -> Reply {
        self.gate.clock.set(at);
        let Request::Limit(request) = request else {
            panic!("HTTP does not speak `{}`", request.gate());
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
    fn by_command(&self, request: &LimitRequest) -> Reply {
        let ask = |charge: &ChargeText| Ask {
            limit: charge.limit.clone().into(),
            id: charge.id.clone().into(),
            cost: charge.cost,
            kind: Kind::Spend,
        };
        let asks: Vec<_> = request.charges.iter().map(ask).collect();
        match self.client.ask(request.verb, &asks) {
            Ok(answer) => reply(answer, asks.len()),
            Err(AskError::Answer(AnswerError::Problem { detail, .. })) => Reply::Error(detail),
            Err(error) => panic!("{error}"),
        }
    }

    fn through_the_gate(&self, verb: Verb, charge: &ChargeText) -> Reply {
        assert_eq!(verb, Verb::Spend, "the gate only spends");
        let id: String = charge.id.iter().map(|byte| format!("%{byte:02x}")).collect();
        let reply = self.gate.get(&format!("/v1/gate?limit={}&id={id}&cost={}", charge.limit, charge.cost));
        let number = |name| reply.header(name).map_or(0, |value| value.parse().unwrap());
        let decision = Decision {
            verdict: if reply.status == 204 { Verdict::Allow } else { Verdict::Deny },
            remaining: number("x-ratelimit-remaining"),
            retry_after: Nanos::from_secs(number("retry-after")),
            reset_after: Nanos::from_secs(number("x-ratelimit-reset")),
            charge: 0,
        };
        Reply::Decision { decision, limit: None }
    }
}

fn reply(answer: Answer, charges: usize) -> Reply {
    match answer {
        Answer::Decision { allowed, remaining, retry_after, reset_after, limit, reason } => {
            let verdict = match (allowed, reason.as_deref(), remaining) {
                (true, None, None) => Verdict::Unlimited,
                (true, None, Some(_)) => Verdict::Allow,
                (true, Some("full"), _) => Verdict::AllowFull,
                (false, None, _) => Verdict::Deny,
                (false, Some("full"), _) => Verdict::DenyFull,
                (_, Some(reason), _) => panic!("{reason}"),
            };
            let decision = Decision {
                verdict,
                remaining: remaining.unwrap_or(u64::MAX),
                retry_after: retry_after.unwrap_or(Nanos::FOREVER),
                reset_after: reset_after.unwrap(),
                charge: 0,
            };
            Reply::Decision { decision, limit: (charges > 1).then_some(limit) }
        }
        Answer::Refund { remaining: None, .. } => Reply::UnlimitedRefund,
        Answer::Refund { refunded, remaining: Some(remaining), reset_after } => {
            Reply::Refund(Refund { refunded, remaining, reset_after: reset_after.unwrap() })
        }
        Answer::Reset => Reply::Reset,
    }
}
