//! Error responses in the format that RFC 9457 defines (problem details).
//!
//! ```text
//! {"type":"urn:problem-type:tollway:unknown-limit","title":"Unknown limit","status":404,
//!  "detail":"limit \"Logn\" does not exist (did you mean \"Login\"?)","field":"limit"}
//! ```
//!
//! Programs read the type, which never changes. The title and the detail are for people, and may change.

use std::net::SocketAddr;

use tollway_core::nearest::{did_you_mean, nearest};
use tollway_core::{BillError, ChargeError, ErrorChain, RuleLookupError};

use super::command::MalformedRequest;
use super::framing::FramingError;
use super::status::HttpStatus;
use crate::decimal::put_u64;
use crate::json::put_string;

/// The most names that the error about an unknown one lists.
const NAMES_LISTED_MAX: usize = 8;

/// An error response, which says why a request was not answered.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    /// The status that the response has.
    pub status: HttpStatus,
    /// The last part of the problem type.
    pub name: &'static str,
    /// A short sentence that is the same for every problem of this type.
    pub title: &'static str,
    /// A sentence about this occurrence.
    pub detail: String,
    /// The field that is wrong. `None` if the problem is not about one field.
    pub field: Option<String>,
    /// The methods that the path accepts, which are sent in the `Allow` header.
    pub allow: Option<&'static str>,
    /// The way in which a client can say who it is, which is sent in the `WWW-Authenticate` header.
    pub challenge: Option<&'static str>,
}

impl ProblemDetails {
    /// The prefix that every problem type has.
    pub const TYPE_PREFIX: &'static str = "urn:problem-type:tollway:";

    fn new(status: HttpStatus, name: &'static str, title: &'static str, detail: String) -> Self {
        Self { status, name, title, detail, field: None, allow: None, challenge: None }
    }

    fn with_field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    /// Returns the same problem with its field inside of a part of the request, such as `charges[1]`.
    pub fn within(mut self, part: Option<String>) -> Self {
        if let (Some(part), Some(field)) = (part, &mut self.field) {
            *field = format!("{part}.{field}");
        }
        self
    }

    /// Creates a problem for a path that does not exist.
    pub fn not_found(path: &str) -> Self {
        let path: String = path.chars().take(128).collect();
        let detail = format!("path \"{path}\" does not exist; /openapi.json lists the paths");
        Self::new(HttpStatus::NotFound, "not-found", "Path not found", detail)
    }

    /// Creates a problem for a name that none of the limits, rules and domains has, which have the names `existing`.
    pub fn unknown_name(name: &str, existing: &[&str]) -> Self {
        let nearest = nearest(name, existing.iter().copied());
        let name: String = name.chars().take(128).collect();
        let mut detail = format!("no limit, rule or domain is called \"{name}\"{}", did_you_mean(nearest));
        if nearest.is_none() && (1..=NAMES_LISTED_MAX).contains(&existing.len()) {
            detail += &format!("; there are {}", existing.join(", "));
        }
        Self::new(HttpStatus::NotFound, "unknown-limit", "Unknown limit", detail).with_field("limit")
    }

    /// Creates a problem for a question about ids that the server does not watch.
    pub fn watch_off() -> Self {
        let detail = "the server has \"watch: off\"; remove it from the configuration".to_owned();
        Self::new(HttpStatus::NotImplemented, "watch-off", "Ids are not watched", detail)
    }

    /// Creates a problem for one watcher more than the server allows.
    pub fn too_many_watchers(max: usize) -> Self {
        let detail = match max {
            0 => "half of the gate's connections may watch, which is none here; raise its max_connections to at \
                  least 2"
                .to_owned(),
            1 => "a client watches already, and this gate has room for one; close it".to_owned(),
            _ => format!("{max} clients watch already; close one of them"),
        };
        Self::new(HttpStatus::ServiceUnavailable, "too-many-watchers", "Too many watchers", detail)
    }

    /// Creates a problem for one recorder more than the server allows.
    pub fn too_many_recorders(max: usize) -> Self {
        let detail = match max {
            0 => "a quarter of the gate's connections may record, which is none here; raise its max_connections \
                  to at least 4"
                .to_owned(),
            1 => "a client records already, and this gate has room for one; end it".to_owned(),
            _ => format!("{max} clients record already; end one of them"),
        };
        Self::new(HttpStatus::ServiceUnavailable, "too-many-watchers", "Too many watchers", detail)
    }

    /// Creates a problem for a recording at a server that shows no ids.
    pub fn ids_not_shown() -> Self {
        let detail =
            "the server has \"show_ids: off\", and a trace needs ids; set it to \"hashed\" or \"plain\"";
        Self::new(HttpStatus::Forbidden, "ids-not-shown", "Ids are not shown", detail.to_owned())
    }

    /// Creates a problem for a path that only another gate serves, which listens at `address`.
    pub fn other_gate(path: &str, gate: &str, address: SocketAddr) -> Self {
        Self::path_of_gate(path, gate, &format!(": http://{address}"))
    }

    /// Creates a problem for a path that only another gate serves, which is off. `default` is its default address.
    pub fn gate_off(path: &str, gate: &str, default: SocketAddr) -> Self {
        let how = format!(
            ", which is off; turn it on with \"{gate}: {default}\" at gates, or with --{gate} {default}"
        );
        Self::path_of_gate(path, gate, &how)
    }

    fn path_of_gate(path: &str, gate: &str, place: &str) -> Self {
        let path: String = path.chars().take(128).collect();
        let detail = format!("path \"{path}\" is at the {gate} gate{place}");
        Self::new(HttpStatus::NotFound, "other-gate", "The path is at another gate", detail)
    }

    /// Creates a problem for a request that a page of another site has sent.
    pub fn cross_site() -> Self {
        let detail = "a web page of another site has sent this request, by its header Origin or Sec-Fetch-Site; Tollway \
                      answers programs, and pages of its own";
        Self::new(HttpStatus::Forbidden, "cross-site", "Request of another site", detail.to_owned())
    }

    /// Creates a problem for a browser that asks `/v1/gate`, which is for proxies.
    pub fn not_a_proxy() -> Self {
        let detail = "a web page has sent this request, and /v1/gate answers proxies; if a proxy passes it on, let it \
                      send X-Forwarded-For, or list the address of the proxy in \"trusted_proxies\" at gates.http";
        Self::new(HttpStatus::Forbidden, "cross-site", "Request of another site", detail.to_owned())
    }

    /// Creates a problem for a host name that a gate is not known by.
    pub fn unknown_host(host: &[u8], gate: &str) -> Self {
        let host: String = String::from_utf8_lossy(host).chars().take(128).collect();
        let detail = format!(
            "\"{host}\" is not an address or localhost, and not a name of this server; list it in \"hosts\" at \
             gates.{gate}"
        );
        Self::new(HttpStatus::Misdirected, "unknown-host", "Unknown host", detail)
    }

    /// Creates a problem for a body that does not say that it is JSON.
    pub fn not_json() -> Self {
        let detail =
            "send the header \"Content-Type: application/json\"; curl does it with --json instead of -d";
        let title = "The body is not JSON by its type";
        Self::new(HttpStatus::UnsupportedMediaType, "not-json", title, detail.to_owned())
    }

    /// Creates a problem for a proxy that asks a gate which answers no proxies.
    pub fn proxies_off() -> Self {
        let detail = "path \"/v1/gate\" is off; remove \"gate: off\" at gates.http";
        Self::new(HttpStatus::NotFound, "not-found", "Path not found", detail.to_owned())
    }

    /// Creates a problem for a request without a token, at a gate that asks for one.
    pub fn no_token() -> Self {
        let detail = "send the header \"Authorization: Bearer TOKEN\"; \"tollway token\" makes a new token";
        let problem = Self::new(HttpStatus::Unauthorized, "no-token", "A token is needed", detail.to_owned());
        Self { challenge: Some("Bearer realm=\"tollway\""), ..problem }
    }

    /// Creates a problem for a request with a token that is not in the file of the gate.
    pub fn unknown_token() -> Self {
        let detail = "the token is not in the token file of this gate; it may have been removed";
        let problem =
            Self::new(HttpStatus::Unauthorized, "unknown-token", "The token is not known", detail.to_owned());
        Self { challenge: Some("Bearer realm=\"tollway\", error=\"invalid_token\""), ..problem }
    }

    /// Creates a problem for a token that lacks the scope which a request needs.
    pub fn missing_scope(scope: &str) -> Self {
        let detail = format!("this request needs a token with the scope \"{scope}\"");
        Self::new(HttpStatus::Forbidden, "missing-scope", "The token lacks a scope", detail)
    }

    /// Creates a problem for a token that is for other limits than the one that a request names.
    pub fn other_limits(name: &str) -> Self {
        let name: String = name.chars().take(128).collect();
        let detail = format!("the token is for other limits and rules than \"{name}\"");
        Self::new(HttpStatus::Forbidden, "other-limits", "The token is for other limits", detail)
            .with_field("limit")
    }

    /// Creates a problem for a path that shows all limits, and a token that is for some of them.
    pub fn all_limits() -> Self {
        let detail = "this path tells about all limits, and the token is for some of them; use a token without a list \
                      of limits";
        let title = "The token is for some limits";
        Self::new(HttpStatus::Forbidden, "all-limits", title, detail.to_owned())
    }

    /// Creates a problem for a path that does not accept the method.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let detail = format!("use {allow}");
        let title = "Method not allowed";
        Self {
            allow: Some(allow),
            ..Self::new(HttpStatus::MethodNotAllowed, "method-not-allowed", title, detail)
        }
    }

    /// Creates a problem for a request whose rest did not arrive before the timeout.
    pub fn request_timeout(part: &str) -> Self {
        let detail = format!("the {part} did not arrive before the timeout");
        Self::new(HttpStatus::RequestTimeout, "too-slow", "Request timeout", detail)
    }

    /// Creates a problem for a connection above the connection limit.
    pub fn too_many_connections() -> Self {
        let detail = "the server has as many connections as it accepts, from everybody or from one address; try again \
                      later, and keep connections open";
        Self::new(
            HttpStatus::ServiceUnavailable,
            "too-many-connections",
            "Too many connections",
            detail.to_owned(),
        )
    }

    /// Creates a problem for a server that is not ready, with the reason.
    pub fn not_ready(detail: &str) -> Self {
        Self::new(HttpStatus::ServiceUnavailable, "not-ready", "Not ready", detail.to_owned())
    }

    /// Creates a problem for a request that needs the store while the store does not answer.
    pub fn store_unreachable(detail: &str) -> Self {
        let title = "The store did not answer";
        Self::new(HttpStatus::ServiceUnavailable, "store-unreachable", title, detail.to_owned())
    }

    /// Creates a problem for numbers that a client sends to a gate that takes none.
    pub fn inline_denied() -> Self {
        let detail = "this gate takes no numbers from clients; set \"inline: allow\" at gates.http, or send the name of \
                      a limit";
        let title = "Inline limits are not allowed";
        Self::new(HttpStatus::Forbidden, "inline-denied", title, detail.to_owned()).with_field("limit")
    }

    /// Creates a problem for a client of throttlecrab that the gate does not serve.
    pub fn throttlecrab_off() -> Self {
        let detail = "path \"/throttle\" is off; set \"throttlecrab: true\" at gates.http";
        Self::new(HttpStatus::NotFound, "not-found", "Path not found", detail.to_owned())
    }

    /// Creates a problem for a listing of ids that the store does not keep.
    pub fn no_ids() -> Self {
        let title = "The memory store cannot list buckets";
        let detail = "it keeps only hashes of ids; inspect one bucket with \"tollway inspect LIMIT:ID\" or \
                      GET /v1/inspect, or use a Redis store";
        Self::new(HttpStatus::NotImplemented, "no-ids", title, detail.to_owned())
    }

    /// Creates a problem for an export or an import of buckets that are in a shared store.
    pub fn shared_buckets() -> Self {
        let title = "The buckets are in Redis";
        let detail = "export them from there, or import into it: \"tollway buckets export redis://HOST\"";
        Self::new(HttpStatus::NotImplemented, "shared-buckets", title, detail.to_owned())
    }

    /// Creates a problem for an export that cannot be imported into this server.
    pub fn import_refused(detail: &str) -> Self {
        let title = "The export cannot be imported";
        Self::new(HttpStatus::Unprocessable, "import-refused", title, detail.to_owned())
    }

    /// Appends the response body as JSON.
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
        let title = "HTTP request rejected";
        Self::new(error.status(), "bad-http", title, ErrorChain(&error).to_string())
    }
}

impl From<MalformedRequest> for ProblemDetails {
    fn from(MalformedRequest { field, detail }: MalformedRequest) -> Self {
        let title = "Malformed request";
        Self { field, ..Self::new(HttpStatus::BadRequest, "malformed", title, detail) }
    }
}

/// Returns what follows the error about an unknown name: the names that there are, if they are few.
fn list_of(existing: &[String]) -> String {
    if existing.is_empty() { String::new() } else { format!("; there are {}", existing.join(", ")) }
}

impl From<ChargeError> for ProblemDetails {
    fn from(error: ChargeError) -> Self {
        let (status, name, title, field) = match &error {
            ChargeError::UnknownLimit { .. } => {
                (HttpStatus::NotFound, "unknown-limit", "Unknown limit", "limit")
            }
            ChargeError::NoNumbers { .. } => {
                (HttpStatus::Unprocessable, "no-numbers", "The request has no numbers", "limit")
            }
            ChargeError::Id { .. } => (HttpStatus::Unprocessable, "bad-id", "Invalid id", "id"),
            ChargeError::CostTooHigh { .. } => {
                (HttpStatus::Unprocessable, "cost-too-high", "Cost too high", "cost")
            }
            ChargeError::NoRefund { .. } => {
                (HttpStatus::Unprocessable, "no-refund", "The limit cannot be refunded", "limit")
            }
            _ => (HttpStatus::Unprocessable, "bad-charge", "Invalid charge", "limit"),
        };
        let mut detail = ErrorChain(&error).to_string();
        if let ChargeError::UnknownLimit { existing, .. } = &error {
            detail += &list_of(existing);
        }
        Self::new(status, name, title, detail).with_field(field)
    }
}

impl From<BillError> for ProblemDetails {
    fn from(error: BillError) -> Self {
        let title = "Invalid bill";
        Self::new(HttpStatus::Unprocessable, "bad-bill", title, ErrorChain(&error).to_string())
            .with_field("charges")
    }
}

impl From<RuleLookupError> for ProblemDetails {
    fn from(error: RuleLookupError) -> Self {
        let detail = ErrorChain(&error).to_string();
        match error {
            RuleLookupError::UnknownRule { existing, .. } => {
                let detail = detail + &list_of(&existing);
                Self::new(HttpStatus::NotFound, "unknown-rule", "Unknown rule", detail).with_field("rule")
            }
            RuleLookupError::MissingSelector { selector, .. } => {
                let title = "Missing selector";
                Self::new(HttpStatus::BadRequest, "missing-selector", title, detail)
                    .with_field(&format!("selectors.{selector}"))
            }
            _ => MalformedRequest { field: Some("rule".to_owned()), detail }.into(),
        }
    }
}
