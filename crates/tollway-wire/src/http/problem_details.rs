//! What went wrong, as RFC 9457 has it.
//!
//! ```text
//! {"type":"urn:problem-type:tollway:unknown-limit","title":"There is no such limit","status":404,
//!  "detail":"there is no limit `Logn`","field":"limit"}
//! ```
//!
//! The type is for programs and never changes; the detail is for people and may.

use tollway_core::{BillError, ChargeError, RuleLookupError};

use super::command::MalformedRequest;
use super::framing::FramingError;
use super::status::HttpStatus;
use crate::decimal::put_u64;
use crate::json::put_string;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    /// The status it is sent with.
    pub status: HttpStatus,
    /// The last part of its type.
    pub name: &'static str,
    /// What went wrong, in general.
    pub title: &'static str,
    /// What went wrong, this time.
    pub detail: String,
    /// The field it is about.
    pub field: Option<String>,
    /// The methods that would have been right.
    pub allow: Option<&'static str>,
}

impl ProblemDetails {
    /// What every type starts with.
    pub const TYPE_PREFIX: &'static str = "urn:problem-type:tollway:";

    fn new(status: HttpStatus, name: &'static str, title: &'static str, detail: String) -> Self {
        Self { status, name, title, detail, field: None, allow: None }
    }

    fn with_field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Nothing is at this path.
    pub fn not_found(path: &str) -> Self {
        let path: String = path.chars().take(128).collect();
        let detail = format!("nothing is at `{path}`; /openapi.json lists what there is");
        Self::new(HttpStatus::NotFound, "not-found", "There is nothing here", detail)
    }

    /// Something is at this path, for other methods.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let detail = format!("use {allow}");
        let title = "This path takes another method";
        Self {
            allow: Some(allow),
            ..Self::new(HttpStatus::MethodNotAllowed, "method-not-allowed", title, detail)
        }
    }

    /// The rest of a request did not come in time.
    pub fn request_timeout(part: &str) -> Self {
        let detail = format!("the {part} did not arrive in time");
        Self::new(HttpStatus::RequestTimeout, "too-slow", "The request took too long to arrive", detail)
    }

    /// One connection too many.
    pub fn too_many_connections(max: usize) -> Self {
        let detail = format!("there are {max} connections already; come back, or keep one open");
        Self::new(HttpStatus::ServiceUnavailable, "too-many-connections", "Too many connections", detail)
    }

    /// Not ready, and why.
    pub fn not_ready(detail: &str) -> Self {
        Self::new(HttpStatus::ServiceUnavailable, "not-ready", "Not ready", detail.to_owned())
    }

    /// The store gave no answer, and nothing can be answered in its place.
    pub fn store_unreachable(detail: &str) -> Self {
        let title = "The store gave no answer";
        Self::new(HttpStatus::ServiceUnavailable, "store-away", title, detail.to_owned())
    }

    /// The store has forgotten what it was asked for.
    pub fn no_ids() -> Self {
        let detail = "in memory a bucket is found by a hash of its id, and the id is not kept: ask about one with /v1/inspect, \
                      or keep the buckets in Redis";
        Self::new(HttpStatus::NotImplemented, "no-ids", "This store keeps no ids", detail.to_owned())
    }

    /// Appends the document.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":"#);
        put_string(out, &format!("{}{}", Self::TYPE_PREFIX, self.name));
        out.extend_from_slice(br#","title":"#);
        put_string(out, self.title);
        out.extend_from_slice(br#","status":"#);
        put_u64(out, self.status.code().into());
        out.extend_from_slice(br#","detail":"#);
        put_string(out, &self.detail);
        if let Some(field) = &self.field {
            out.extend_from_slice(br#","field":"#);
            put_string(out, field);
        }
        out.push(b'}');
    }
}

impl From<FramingError> for ProblemDetails {
    fn from(error: FramingError) -> Self {
        let title = "The connection carried something else than requests we take";
        Self::new(error.status(), "bad-http", title, error.to_string())
    }
}

impl From<MalformedRequest> for ProblemDetails {
    fn from(MalformedRequest { field, detail }: MalformedRequest) -> Self {
        let title = "The request could not be understood";
        Self { field, ..Self::new(HttpStatus::BadRequest, "malformed", title, detail) }
    }
}

impl From<ChargeError> for ProblemDetails {
    fn from(error: ChargeError) -> Self {
        let (status, name, title, field) = match &error {
            ChargeError::UnknownLimit { .. } => {
                (HttpStatus::NotFound, "unknown-limit", "There is no such limit", "limit")
            }
            ChargeError::Id { .. } => {
                (HttpStatus::Unprocessable, "bad-id", "The limit takes no such id", "id")
            }
            ChargeError::CostTooHigh { .. } => {
                (HttpStatus::Unprocessable, "cost-too-high", "No bucket ever holds that much", "cost")
            }
            ChargeError::NoRefund { .. } => {
                (HttpStatus::Unprocessable, "no-refund", "The limit has nothing to give back", "limit")
            }
            _ => (HttpStatus::Unprocessable, "bad-charge", "The charge makes no sense", "limit"),
        };
        Self::new(status, name, title, error.to_string()).with_field(field)
    }
}

impl From<BillError> for ProblemDetails {
    fn from(error: BillError) -> Self {
        let title = "The charges make no bill";
        Self::new(HttpStatus::Unprocessable, "bad-bill", title, error.to_string()).with_field("charges")
    }
}

impl From<RuleLookupError> for ProblemDetails {
    fn from(error: RuleLookupError) -> Self {
        let detail = error.to_string();
        match error {
            RuleLookupError::UnknownRule { name } => {
                // Whatever stood in the path, of any length.
                let detail =
                    RuleLookupError::UnknownRule { name: name.chars().take(128).collect() }.to_string();
                Self::new(HttpStatus::NotFound, "unknown-rule", "There is no such rule", detail)
                    .with_field("rule")
            }
            RuleLookupError::MissingSelector { selector } => {
                let title = "The rule names a selector that is not given";
                Self::new(HttpStatus::BadRequest, "missing-selector", title, detail)
                    .with_field(&format!("selectors.{selector}"))
            }
            _ => MalformedRequest { field: Some("rule".to_owned()), detail }.into(),
        }
    }
}
