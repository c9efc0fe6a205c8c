//! What is answered, written in one pass.
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! Content-Type: application/json
//! Content-Length: 79
//! Date: Sun, 06 Nov 1994 08:49:37 GMT
//! RateLimit-Policy: "Login";q=5;w=60        the limit: 5 in 60 seconds
//! RateLimit: "Login";r=0;t=12               what is left of it, for at least so long
//! X-RateLimit-Limit: 5
//! X-RateLimit-Remaining: 0
//! X-RateLimit-Reset: 60                     seconds until the bucket is full
//! Retry-After: 12
//!
//! {"allowed":false,"remaining":0,"retry_after":12,"reset_after":60,"limit":"Login"}
//! ```
//!
//! Headers carry whole seconds, rounded up, because their grammar has no others; the body is exact.

use tollway_core::{Charge, Decision, Nanos, Refund, RuleDecision, Verdict};

use super::explain::RuleExplanation;
use super::inspect::BucketReport;
use super::keys_page::KeysPage;
use super::problem_details::ProblemDetails;
use super::rate_limit_headers::{self, RateLimitPolicy, retry_after_secs};
use super::status::HttpStatus;
use crate::decimal::{put_seconds, put_u64};
use crate::json::put_string;

/// Room for the head of most answers, so that it is made once and not piece by piece.
const HEAD_SIZE: usize = 512;

/// The type of every answer that is not a problem.
const JSON: &str = "application/json";

/// An answer about to be written.
#[derive(Debug)]
pub struct ResponseWriter<'o> {
    /// Where it is appended to.
    pub outbox: &'o mut Vec<u8>,
    /// Where a body is put together before its length is known. Kept between answers to spare an allocation each.
    pub scratch: &'o mut Vec<u8>,
    /// What goes into the `Date` header.
    pub date: &'o str,
    /// Will the connection be closed after it?
    pub close: bool,
    /// Is it the answer to a `HEAD`, which gets the headers only?
    pub head_only: bool,
}

impl ResponseWriter<'_> {
    /// The answer to a spend or a check: 200 or 429, and all that is known about it.
    pub fn decision(mut self, charges: &[Charge<'_>], decision: &Decision) -> HttpStatus {
        let status = status_of(decision.verdict);
        put_decision(self.scratch, charges[decision.charge].limit().name(), decision);
        self.start(status);
        self.rate_limit(charges, decision);
        self.finish_with_scratch(JSON);
        status
    }

    /// The answer to a proxy: 204 or what it takes for a refusal. The headers say the rest.
    pub fn gate(mut self, charges: &[Charge<'_>], decision: &Decision, denied: HttpStatus) -> HttpStatus {
        let status = match decision.verdict {
            // A proxy that asked for another status may take a 503 for no answer, and let the request through.
            Verdict::DenyAway if denied == HttpStatus::TooManyRequests => HttpStatus::ServiceUnavailable,
            verdict if verdict.allowed() => HttpStatus::NoContent,
            _ => denied,
        };
        self.start(status);
        // A 204 may be kept by a cache that was told nothing, and would then let everybody through.
        self.header("Cache-Control", "no-store");
        self.rate_limit(charges, decision);
        self.finish_empty(status);
        status
    }

    /// The answer to a refund.
    pub fn refund(mut self, charges: &[Charge<'_>], refund: &Refund) -> HttpStatus {
        put_refund(self.scratch, charges, refund);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// The answer to a reset.
    pub fn reset(mut self) -> HttpStatus {
        self.start(HttpStatus::Ok);
        self.finish(JSON, br#"{"reset":true}"#);
        HttpStatus::Ok
    }

    /// The answer to what is asked of a rule: 200 or 429.
    pub fn rule_decision(mut self, ruling: &RuleDecision) -> HttpStatus {
        let status = status_of(ruling.verdict);
        put_rule_decision(self.scratch, ruling);
        self.start(status);
        if !ruling.allowed() && !ruling.retry_nanos.is_forever() {
            self.number(b"Retry-After: ", retry_after_secs(ruling.retry_nanos));
        }
        self.finish_with_scratch(JSON);
        status
    }

    /// The answer to who wants to know why a rule would limit.
    pub fn rule_explanation(mut self, explanation: &RuleExplanation) -> HttpStatus {
        explanation.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// The answer to who wants to look at a bucket.
    pub fn bucket_report(mut self, report: &BucketReport) -> HttpStatus {
        report.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// The answer to who wants to know which buckets there are.
    pub fn keys_page(mut self, page: &KeysPage) -> HttpStatus {
        page.put_json(self.scratch);
        self.start(HttpStatus::Ok);
        self.finish_with_scratch(JSON);
        HttpStatus::Ok
    }

    /// An answer that says what is wrong.
    pub fn problem(mut self, problem: &ProblemDetails) -> HttpStatus {
        problem.put_json(self.scratch);
        self.start(problem.status);
        if let Some(methods) = problem.allow {
            self.header("Allow", methods);
        }
        if problem.status == HttpStatus::ServiceUnavailable {
            self.header("Retry-After", "1");
        }
        self.finish_with_scratch("application/problem+json");
        problem.status
    }

    /// Any other answer.
    pub fn document(mut self, status: HttpStatus, content_type: &str, body: &[u8]) -> HttpStatus {
        self.start(status);
        self.finish(content_type, body);
        status
    }

    fn start(&mut self, status: HttpStatus) {
        self.outbox.reserve(HEAD_SIZE);
        self.outbox.extend_from_slice(status.line());
        self.header("Date", self.date);
        if self.close {
            self.outbox.extend_from_slice(b"Connection: close\r\n");
        }
    }

    fn rate_limit(&mut self, charges: &[Charge<'_>], decision: &Decision) {
        let decided = &charges[decision.charge];
        // What is left is in the store, and the store may be away.
        if let Some(quota) = decided
            .algorithm()
            .map(RateLimitPolicy::of)
            .filter(|_| rate_limit_headers::store_answered(decision))
        {
            self.policies(charges);
            self.service_limit(decided.limit().name(), &quota, decision);
        }
        if !decision.allowed() && !decision.retry_nanos.is_forever() {
            self.number(b"Retry-After: ", retry_after_secs(decision.retry_nanos));
        }
    }

    /// `RateLimit-Policy`: each limit that had a say.
    fn policies(&mut self, charges: &[Charge<'_>]) {
        self.outbox.extend_from_slice(b"RateLimit-Policy: ");
        rate_limit_headers::put_rate_limit_policy(self.outbox, charges);
        self.outbox.extend_from_slice(b"\r\n");
    }

    /// `RateLimit` and its predecessors: the limit that decided.
    fn service_limit(&mut self, name: &str, quota: &RateLimitPolicy, decision: &Decision) {
        self.outbox.extend_from_slice(b"RateLimit: ");
        rate_limit_headers::put_rate_limit(self.outbox, name, decision);
        self.outbox.extend_from_slice(b"\r\n");
        self.number(b"X-RateLimit-Limit: ", quota.units);
        self.number(b"X-RateLimit-Remaining: ", decision.remaining);
        self.number(b"X-RateLimit-Reset: ", decision.reset_nanos.as_secs_rounded_up());
    }

    fn header(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.outbox.extend_from_slice(part.as_bytes());
        }
    }

    /// A header whose name comes with its colon: pieces of a known length are moved, not copied by a call.
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

    fn finish_empty(mut self, status: HttpStatus) {
        // A 204 has no body by definition, and says nothing about its length.
        if status != HttpStatus::NoContent {
            self.number(b"Content-Length: ", 0);
        }
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

fn status_of(verdict: Verdict) -> HttpStatus {
    match verdict {
        // Nobody is over a limit: a client that is told so would blame itself, and its dashboards would agree.
        Verdict::DenyAway => HttpStatus::ServiceUnavailable,
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
        Verdict::Unlimited | Verdict::AllowAway | Verdict::DenyAway => out.extend_from_slice(b"null"),
        _ => put_u64(out, decision.remaining),
    }
    put_span(out, br#","retry_after":"#, decision.retry_nanos);
    put_span(out, br#","reset_after":"#, decision.reset_nanos);
    put_limit(out, limit);
    put_reason(out, decision.verdict, decision.degraded);
}

/// When it would pass is of interest to those who do not.
fn put_rule_decision(out: &mut Vec<u8>, ruling: &RuleDecision) {
    if ruling.allowed() {
        out.extend_from_slice(br#"{"allowed":true"#);
    } else {
        put_span(out, br#"{"allowed":false,"retry_after":"#, ruling.retry_nanos);
    }
    put_reason(out, ruling.verdict, ruling.degraded);
}

/// On what ground it was decided, if on another than what is counted; and the end.
fn put_reason(out: &mut Vec<u8>, verdict: Verdict, degraded: bool) {
    match verdict {
        Verdict::Unlimited => out.extend_from_slice(br#","unlimited":true"#),
        Verdict::AllowFull | Verdict::DenyFull => out.extend_from_slice(br#","reason":"full""#),
        Verdict::AllowAway | Verdict::DenyAway => out.extend_from_slice(br#","reason":"store""#),
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
    // Of several, none is the one it came to.
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
