//! Checks that any trace is answered or refused, and that the answers make a trace that matches them.
#![no_main]

use std::cell::LazyCell;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollway::Clock;
use tollway::config::Config;
use tollway::core::{Policy, Timestamp};
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway::trace::{TraceReader, TraceReply, TraceRequest, TraceTarget, matches, parse_line};

/// Every algorithm, some formats and some rules, under names that the project's own traces use.
const LIMITS: &str = "limits:
  A: { burst: 9, count: 1, period: 1s }
  Orders: { burst: 3, count: 1, period: 100ms, on_full: allow }
  Log: { algorithm: sliding_log, count: 3, period: 1s }
  Leaky: { algorithm: smoothed_rate, count: 3, period: 1s }
  Strict: { algorithm: smoothed_rate, count: 3, period: 1s, strict: true }
  Daily: { algorithm: quota, count: 5, period: 10s }
  Minute: { algorithm: fixed_window, count: 3, period: 60s, offset: 1s }
  Sliding: { algorithm: sliding_window, count: 10, period: 60s }
  Address: { burst: 9, count: 1, period: 1s, id: ipAddress }
  Names: { burst: 9, count: 1, period: 1s, id: 'regId:fqdnSet' }
  Unlimited: {}
rules:
  upload: Or('3/s', And('user:5/h', 'apikey:2/h'))
  login: { rule: user:2/m, on_full: allow }";

static POLICY: LazyLock<Policy> = LazyLock::new(|| Config::parse(LIMITS, "fuzz.yaml").expect("valid").policy);

/// Few enough that a trace runs out of room.
const MAX_BUCKETS: usize = 8;

fuzz_target!(|trace: &[u8]| {
    // Making a store takes longer than reading most traces, and many of these ask no limit.
    let mut limiter = LazyCell::new(|| {
        Engine::with(POLICY.clone(), Memory::new(MAX_BUCKETS), Clock::manual(Timestamp::EPOCH))
    });
    for event in TraceReader::new(trace).map_while(Result::ok) {
        let reply = match &event.request {
            TraceRequest::Limit(_) | TraceRequest::Rule(_) | TraceRequest::Reload(_) => {
                limiter.answer(event.at, &event.request)
            }
            // What can be asked in bytes can be answered in bytes: an echo.
            TraceRequest::Text(text) => TraceReply::Text(Some(text.clone()).filter(|text| !text.is_empty())),
            TraceRequest::Throttr(bytes) => TraceReply::Throttr(bytes.clone()),
            TraceRequest::Resp(_) => TraceReply::Resp("+OK".to_owned()),
            TraceRequest::Smockron(message) => TraceReply::Smockron(vec![message.clone()]),
            TraceRequest::Rls(_) => TraceReply::Rls("{}".to_owned()),
        };
        let line = event.with_reply(&reply).to_string();
        let again = parse_line(line.as_bytes(), event.line).expect("a line we wrote").expect("an event");
        assert_eq!(
            (again.at, &again.request, &again.text.trim_end()),
            (event.at, &event.request, &event.text.trim_end())
        );
        assert!(matches(&again.expected.expect("a reply we wrote"), &reply), "{line}");
    }
});
