//! Writes HTTP responses, each in one pass.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! X-Content-Type-Options: nosniff
//! Cache-Control: no-store
//! Date: Sun, 06 Nov 1994 08:49:37 GMT
//! RateLimit-Policy: "Login";q=5;w=60        see `rate_limit_headers`
//! RateLimit: "Login";r=0;t=12
//! X-RateLimit-Limit: 5
//! X-RateLimit-Remaining: 0
//! X-RateLimit-Reset: 60
//! Retry-After: 12
//! Content-Type: application/json
//! Content-Length: 79
//!
//! {"allowed":false,"remaining":0,"retry_after":12,"reset_after":60,"limit":"Login"}
//! ```
//!
//! Headers carry whole seconds, rounded up, because their grammar has nothing finer. The body is exact.

use tollway_core::{Charge, Decision, Nanos, Refund, RuleDecision, Verdict};

use super::explain::RuleExplanation;
use super::inspect::BucketReport;
use super::keys_page::KeysPage;
use super::live::TopReport;
use super::problem_details::ProblemDetails;
use super::rate_limit_headers::{HeaderSink, add_decision_headers, add_retry_after};
use super::status::HttpStatus;
use super::throttlecrab::ThrottlecrabRequest;
use crate::decimal::{put_seconds, put_u64};
use crate::json::put_string;

/// The number of bytes that are reserved for the head of a response, so that the buffer grows at most once.
const HEAD_SIZE: usize = 512;

/// The content type that every response has, except problems.
const JSON: &str = "application/json";

/// Writes one response to a connection's write buffer.
#[derive(Debug)]
pub struct ResponseWriter<'o> {
    /// The write buffer that the response is appended to.
    pub outbox: &'o mut Vec<u8>,
    /// A buffer in which the body is built, because its length comes first. It is reused to save an allocation.
    pub scratch: &'o mut Vec<u8>,
    /// The value that the `Date` header has.
    pub date: &'o str,
    /// True if the connection is closed after this response.
    pub close: bool,
    /// True if this answers a `HEAD` request, which gets headers only.
    pub head_only: bool,
}

impl ResponseWriter<'_> {
    /// Answers a spend or a check. The status is 200, 429, or 503 if the store did not answer.
    pub fn decision(mut self, charges: &[Charge<'_>], decision: &Decision) -> HttpStatus {
        let status = status_of(decision.verdict);
        put_decision(self.scratch, charges[decision.charge].limit().name(), decision);
        self.start(status);
        add_decision_headers(&mut self, charges, decision);
        self.finish_with_scratch(JSON);
        status
    }

    /// Answers a proxy about charges, with headers only. `denied` is the status of a denial, if it asked for one.
    pub fn gate(
        mut self,
        charges: &[Charge<'_>],
        decision: &Decision,
        denied: Option<HttpStatus>,
    ) -> HttpStatus {
        let status = self.start_gate(decision.verdict, denied);
        add_decision_headers(&mut self, charges, decision);
        self.finish_empty();
        status
    }

    /// Answers a proxy about a rule, with headers only. `denied` is the status of a denial, if it asked for one.
    pub fn gate_rule(mut self, decision: &RuleDecision, denied: Option<HttpStatus>) -> HttpStatus {
        let status = self.start_gate(decision.verdict, denied);
        add_retry_after(&mut self, decision.allowed(), decision.retry_nanos);
        self.finish_empty();
        status
    }

    /// Answers a request of a throttlecrab client. The status is 200 for a denial too.
    pub fn throttle(mut self, request: &ThrottlecrabRequest<'_>, decision: &Decision) -> HttpStatus {
        request.put_answer(decision, self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Sends an error in the form that throttlecrab clients read.
    pub fn throttle_error(mut self, status: HttpStatus, detail: &str) -> HttpStatus {
        self.scratch.extend_from_slice(br#"{"error":"#);
        put_string(self.scratch, detail);
        self.scratch.push(b'}');
        self.start(status);
        self.finish_with_scratch(JSON);
        status
    }

    /// Answers a refund.
    pub fn refund(mut self, charges: &[Charge<'_>], refund: &Refund) -> HttpStatus {
        put_refund(self.scratch, charges, refund);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Answers a reset.
    pub fn reset(mut self) -> HttpStatus {
        self.start(HttpStatus::Ok);
        self.finish(JSON, br#"{"reset":true}"#);
        HttpStatus::Ok
    }

    /// Answers a request about a rule, or a bill that this rule decided. The status is 200, 429, or 503 if the store
    /// did not answer.
    pub fn rule_decision(mut self, decision: &RuleDecision, rule: Option<&str>) -> HttpStatus {
        let status = status_of(decision.verdict);
        put_rule_decision(self.scratch, decision, rule);
        self.start(status);
        add_retry_after(&mut self, decision.allowed(), decision.retry_nanos);
        self.finish_with_scratch(JSON);
        status
    }

    /// Answers a request to explain a rule.
    pub fn rule_explanation(mut self, explanation: &RuleExplanation) -> HttpStatus {
        explanation.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Answers a query for the state of a bucket.
    pub fn bucket_report(mut self, report: &BucketReport) -> HttpStatus {
        report.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Answers a query for a page of keys.
    pub fn keys_page(mut self, page: &KeysPage) -> HttpStatus {
        page.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Answers a query for the ids that use the most.
    pub fn top_report(mut self, report: &TopReport) -> HttpStatus {
        report.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// Starts a stream of server-sent events with these. It has no length: it ends with the connection. The answer to a
    /// `HEAD` has no events, so it is complete at once and the connection stays.
    pub fn events(mut self, first: &[u8]) -> HttpStatus {
        self.close |= !self.head_only;
        self.start(HttpStatus::Ok);
        self.header("Content-Type", "text/event-stream");
        self.outbox.extend_from_slice(b"\r\n");
        if !self.head_only {
            self.outbox.extend_from_slice(first);
        }
        HttpStatus::Ok
    }

    /// Sends an error.
    pub fn problem(mut self, problem: &ProblemDetails) -> HttpStatus {
        problem.put_json(self.scratch);
        self.start(problem.status);
        if let Some(methods) = problem.allow {
            self.header("Allow", methods);
        }
        if let Some(challenge) = problem.challenge {
            self.header("WWW-Authenticate", challenge);
        }
        if problem.status == HttpStatus::ServiceUnavailable {
            self.header("Retry-After", "1");
        }
        self.finish_with_scratch("application/problem+json");
        problem.status
    }

    /// Sends any other document.
    pub fn document(mut self, status: HttpStatus, content_type: &str, body: &[u8]) -> HttpStatus {
        self.start(status);
        self.finish(content_type, body);
        status
    }

    /// Sends a part of a page for browsers. The policy says which sources the page may use.
    pub fn page(mut self, content_type: &str, content_policy: &str, body: &[u8]) -> HttpStatus {
        self.start(HttpStatus::Ok);
        self.header("Content-Security-Policy", content_policy);
        self.header("Referrer-Policy", "no-referrer");
        self.finish(content_type, body);
        HttpStatus::Ok
    }

    fn start(&mut self, status: HttpStatus) {
        self.outbox.reserve(HEAD_SIZE);
        self.outbox.extend_from_slice(status.head_start());
        self.header("Date", self.date);
        if self.close {
            self.outbox.extend_from_slice(b"Connection: close\r\n");
        }
    }

    /// Starts the answer to a proxy, and returns its status.
    fn start_gate(&mut self, verdict: Verdict, denied: Option<HttpStatus>) -> HttpStatus {
        let status = match (verdict, denied) {
            // Not 204, which Envoy takes for a denial.
            (verdict, _) if verdict.allowed() => HttpStatus::Ok,
            // Also without the store: a proxy that asked for a status may let the request through on a 503.
            (_, Some(denied)) => denied,
            (Verdict::DenyUnreachable, None) => HttpStatus::ServiceUnavailable,
            (_, None) => HttpStatus::TooManyRequests,
        };
        self.start(status);
        status
    }

    fn header(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.outbox.extend_from_slice(part.as_bytes());
        }
    }

    /// Appends a header with a number. `name` includes the colon and has a known length, which saves a call to
    /// `memcpy`.
    fn number<const N: usize>(&mut self, name: &[u8; N], value: u64) {
        self.outbox.extend_from_slice(name);
        put_u64(self.outbox, value);
        self.outbox.extend_from_slice(b"\r\n");
    }

    fn finish_with_scratch(mut self, content_type: &str) {
        let body = std::mem::take(self.scratch);
        self.length_and_body(content_type, &body);
        *self.scratch = body;
        self.scratch.clear();
    }

    fn finish(mut self, content_type: &str, body: &[u8]) {
        self.length_and_body(content_type, body);
    }

    fn finish_empty(mut self) {
        self.number(b"Content-Length: ", 0);
        self.outbox.extend_from_slice(b"\r\n");
    }

    fn length_and_body(&mut self, content_type: &str, body: &[u8]) {
        self.header("Content-Type", content_type);
        self.number(b"Content-Length: ", body.len() as u64);
        self.outbox.extend_from_slice(b"\r\n");
        if !self.head_only {
            self.outbox.extend_from_slice(body);
        }
    }
}

impl HeaderSink for ResponseWriter<'_> {
    #[inline]
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.extend_from_slice(name.as_bytes());
        self.outbox.extend_from_slice(b": ");
        write(self.outbox);
        self.outbox.extend_from_slice(b"\r\n");
    }
}

fn status_of(verdict: Verdict) -> HttpStatus {
    match verdict {
        // Not 429: the client is not over a limit, and must not look as if it were in logs and dashboards.
        Verdict::DenyUnreachable => HttpStatus::ServiceUnavailable,
        verdict if verdict.allowed() => HttpStatus::Ok,
        _ => HttpStatus::TooManyRequests,
    }
}

fn put_decision(out: &mut Vec<u8>, limit: &str, decision: &Decision) {
    let allowed: &[u8] = if decision.allowed() {
        br#"{"allowed":true,"remaining":"#
    } else {
        br#"{"allowed":false,"remaining":"#
    };
    out.extend_from_slice(allowed);
    match decision.verdict {
        Verdict::Unlimited | Verdict::AllowUnreachable | Verdict::DenyUnreachable => {
            out.extend_from_slice(b"null")
        }
        _ => put_u64(out, decision.remaining),
    }
    put_span(out, br#","retry_after":"#, decision.retry_nanos);
    put_span(out, br#","reset_after":"#, decision.reset_nanos);
    put_limit(out, limit);
    put_reason(out, decision.verdict, decision.degraded);
}

/// Appends a rule's decision, with its name if it decided a bill. Only denials have `retry_after`.
fn put_rule_decision(out: &mut Vec<u8>, decision: &RuleDecision, rule: Option<&str>) {
    if decision.allowed() {
        out.extend_from_slice(br#"{"allowed":true"#);
    } else {
        put_span(out, br#"{"allowed":false,"retry_after":"#, decision.retry_nanos);
    }
    if let Some(rule) = rule {
        out.extend_from_slice(br#","rule":"#);
        put_string(out, rule);
    }
    put_reason(out, decision.verdict, decision.degraded);
}

/// Appends the reason of a decision that was not made by counting, and the end of the object.
fn put_reason(out: &mut Vec<u8>, verdict: Verdict, degraded: bool) {
    match verdict {
        Verdict::Unlimited => out.extend_from_slice(br#","unlimited":true"#),
        Verdict::AllowFull | Verdict::DenyFull => out.extend_from_slice(br#","reason":"full""#),
        Verdict::AllowUnreachable | Verdict::DenyUnreachable => {
            out.extend_from_slice(br#","reason":"store""#)
        }
        Verdict::Allow | Verdict::Deny => {}
    }
    if degraded {
        out.extend_from_slice(br#","degraded":true"#);
    }
    out.push(b'}');
}

fn put_refund(out: &mut Vec<u8>, charges: &[Charge<'_>], refund: &Refund) {
    let unlimited = charges.iter().all(|charge| charge.algorithm().is_none());
    out.extend_from_slice(if refund.refunded { br#"{"refunded":true"# } else { br#"{"refunded":false"# });
    out.extend_from_slice(br#","remaining":"#);
    if unlimited {
        out.extend_from_slice(b"null");
    } else {
        put_u64(out, refund.remaining);
    }
    put_span(out, br#","reset_after":"#, refund.reset_nanos);
    // A refund of several charges is about no single limit.
    if let [charge] = charges {
        put_limit(out, charge.limit().name());
    }
    if unlimited {
        out.extend_from_slice(br#","unlimited":true"#);
    }
    out.push(b'}');
}

fn put_span<const N: usize>(out: &mut Vec<u8>, key: &[u8; N], span: Nanos) {
    out.extend_from_slice(key);
    if span.is_forever() {
        out.extend_from_slice(b"null");
    } else {
        put_seconds(out, span);
    }
}

fn put_limit(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(br#","limit":"#);
    put_string(out, name);
}
