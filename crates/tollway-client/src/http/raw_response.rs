//! A response before it is decoded, and the answers that it is decoded to.

use tollway_core::{ChargeRequest, Decision, Nanos, Refund, RuleDecision, RuleRequest, Verdict};
use tollway_wire::http::{
    BucketReport, KeysPage, ResponseError, RuleExplanation, RuleResponse, ServerResponse,
};

#[cfg(feature = "blocking")]
use tollway_wire::http::{BucketsPage, ImportCounts};

use crate::{ClientError, InvalidResponse};

/// A response as it arrived. The `_raw` methods of a client return it to programs that show the JSON of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RawResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body, which is JSON if a Tollway server sent it.
    pub body: Vec<u8>,
    /// The address of the server, for errors.
    pub(super) address: String,
}

impl RawResponse {
    /// Decodes the answer to a spend or a check of these charges and rules.
    pub fn bill_decision(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, ClientError> {
        match self.decode(ServerResponse::from_json)? {
            ServerResponse::RuleDecision { decision, rule } => {
                // Of several requests for one rule, the first: a response names the rule and not the key.
                let index = rules.iter().position(|request| request.rule.text() == rule).unwrap_or(0);
                Ok(Decision::from(rule_decision(decision)).with_charge(charges.len() + index))
            }
            _ => self.decision(charges),
        }
    }

    /// Decodes the answer to a spend or a check of these charges.
    pub fn decision(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, ClientError> {
        let response = self.decode(ServerResponse::from_json)?;
        let ServerResponse::Decision {
            allowed,
            remaining,
            retry_after,
            reset_after,
            limit,
            reason,
            degraded,
        } = response
        else {
            return Err(self.unexpected("a decision"));
        };
        let verdict = match verdict(allowed, reason.as_deref()) {
            Verdict::Allow if remaining.is_none() => Verdict::Unlimited,
            verdict => verdict,
        };
        let none_left = if verdict == Verdict::Unlimited { u64::MAX } else { 0 };
        let [retry, reset] = [retry_after, reset_after].map(|span| span.map_or(Nanos::FOREVER, Nanos::from));
        let decision = Decision::new(verdict, remaining.unwrap_or(none_left), retry, reset);
        // Of several charges under one limit, the first: a response names the limit and not the id.
        let charge = charges.iter().position(|charge| charge.limit == limit).unwrap_or(0);
        Ok(if degraded { decision.with_degraded() } else { decision }.with_charge(charge))
    }

    /// Decodes the answer to a refund.
    pub fn refund(&self) -> Result<Refund, ClientError> {
        match self.decode(ServerResponse::from_json)? {
            ServerResponse::Refund { remaining: None, .. } => Ok(Refund::UNLIMITED),
            ServerResponse::Refund { refunded, remaining: Some(remaining), reset_after } => {
                Ok(Refund::new(refunded, remaining, reset_after.map_or(Nanos::FOREVER, Nanos::from)))
            }
            _ => Err(self.unexpected("a refund")),
        }
    }

    /// Decodes the answer to a reset.
    pub fn reset(&self) -> Result<(), ClientError> {
        match self.decode(ServerResponse::from_json)? {
            ServerResponse::Reset => Ok(()),
            _ => Err(self.unexpected("a reset")),
        }
    }

    /// Decodes the answer to a rule.
    pub fn rule_decision(&self) -> Result<RuleDecision, ClientError> {
        self.decode(RuleResponse::from_json).map(rule_decision)
    }

    /// Decodes the explanation of a rule.
    pub fn explanation(&self) -> Result<RuleExplanation, ClientError> {
        self.decode(RuleExplanation::from_json)
    }

    /// Decodes the report on one bucket.
    pub fn bucket_report(&self) -> Result<BucketReport, ClientError> {
        self.decode(BucketReport::from_json)
    }

    /// Decodes a page of keys.
    pub fn keys_page(&self) -> Result<KeysPage, ClientError> {
        self.decode(KeysPage::from_json)
    }

    /// Decodes a page of an export.
    #[cfg(feature = "blocking")]
    pub(super) fn buckets_page(&self) -> Result<BucketsPage, ClientError> {
        self.decode(BucketsPage::from_json)
    }

    /// Decodes what became of imported buckets.
    #[cfg(feature = "blocking")]
    pub(super) fn import_counts(&self) -> Result<ImportCounts, ClientError> {
        self.decode(ImportCounts::from_json)
    }

    /// Returns the error of a response that is not what was asked for.
    #[cfg(feature = "blocking")]
    pub(super) fn problem(&self, expected: &'static str) -> ClientError {
        self.decode(ServerResponse::from_json).map_or_else(|error| error, |_| self.unexpected(expected))
    }

    fn decode<T>(
        &self,
        from_json: impl Fn(u16, &[u8]) -> Result<T, ResponseError>,
    ) -> Result<T, ClientError> {
        from_json(self.status, &self.body).map_err(|error| match error {
            ResponseError::Problem { status, title, detail } => {
                ClientError::Problem { status, title, detail }
            }
            error => self.invalid(InvalidResponse::HttpBody(error)),
        })
    }

    fn unexpected(&self, expected: &'static str) -> ClientError {
        self.invalid(InvalidResponse::HttpAnswer { expected })
    }

    fn invalid(&self, source: InvalidResponse) -> ClientError {
        ClientError::InvalidResponse { address: self.address.clone(), source }
    }
}

fn rule_decision(response: RuleResponse) -> RuleDecision {
    let RuleResponse { allowed, retry_after, reason, degraded, .. } = response;
    let otherwise = if allowed { Nanos::ZERO } else { Nanos::FOREVER };
    let verdict = verdict(allowed, reason.as_deref());
    let decision = RuleDecision::new(verdict, retry_after.map_or(otherwise, Nanos::from));
    if degraded { decision.with_degraded() } else { decision }
}

/// Maps an answer and its reason to the verdict. A reason that a newer server adds counts as the bucket's decision.
fn verdict(allowed: bool, reason: Option<&str>) -> Verdict {
    match (allowed, reason) {
        (true, Some("store")) => Verdict::AllowUnreachable,
        (true, Some("full")) => Verdict::AllowFull,
        (true, _) => Verdict::Allow,
        (false, Some("store")) => Verdict::DenyUnreachable,
        (false, Some("full")) => Verdict::DenyFull,
        (false, _) => Verdict::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str) -> RawResponse {
        RawResponse { status, body: body.as_bytes().to_vec(), address: "limiter:8080".to_owned() }
    }

    #[test]
    fn a_decision_is_decoded_with_the_charge_that_decided() {
        let charges = [ChargeRequest::new("Login", "alice", 1), ChargeRequest::new("Address", "::1", 1)];
        let body = r#"{"allowed":false,"remaining":0,"retry_after":1.5,"reset_after":3,"limit":"Address"}"#;
        let decision = response(429, body).decision(&charges).unwrap();
        assert_eq!((decision.allowed(), decision.remaining, decision.charge), (false, 0, 1));
        let body = r#"{"allowed":true,"remaining":null,"retry_after":0,"reset_after":0,"limit":"Login","unlimited":true}"#;
        assert_eq!(response(200, body).decision(&charges).unwrap(), Decision::UNLIMITED);
    }

    #[test]
    fn the_reason_of_an_answer_is_its_verdict() {
        for (fields, expected) in [
            (r#""allowed":true,"remaining":1"#, Verdict::Allow),
            (r#""allowed":false,"remaining":0"#, Verdict::Deny),
            (r#""allowed":true,"remaining":0,"reason":"full""#, Verdict::AllowFull),
            (r#""allowed":false,"remaining":0,"reason":"full""#, Verdict::DenyFull),
            (
                r#""allowed":true,"remaining":null,"reason":"store","degraded":true"#,
                Verdict::AllowUnreachable,
            ),
            (
                r#""allowed":false,"remaining":null,"reason":"store","degraded":true"#,
                Verdict::DenyUnreachable,
            ),
            (r#""allowed":false,"remaining":0,"reason":"moon phase""#, Verdict::Deny),
        ] {
            let response = response(200, &format!(r#"{{{fields},"limit":"Login"}}"#));
            let decision = response.decision(&[]).unwrap();
            assert_eq!(decision.verdict, expected, "{fields}");
            assert_eq!(decision.degraded, fields.contains("degraded"), "{fields}");
        }
    }

    #[test]
    fn an_answer_to_another_request_is_an_error() {
        let reset = response(200, r#"{"reset":true}"#);
        assert!(reset.reset().is_ok());
        let error = reset.decision(&[]).unwrap_err();
        assert!(
            matches!(
                error,
                ClientError::InvalidResponse {
                    source: InvalidResponse::HttpAnswer { expected: "a decision" },
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(reset.refund().is_err());
        let problem = response(404, r#"{"title":"Unknown limit","detail":"no limit \"x\""}"#);
        assert_eq!(problem.refund().unwrap_err().to_string(), r#"Unknown limit: no limit "x""#);
    }
}
