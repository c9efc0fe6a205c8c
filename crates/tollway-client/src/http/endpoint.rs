//! The address of a server, and the requests that are written to it.

use std::borrow::Cow;
use std::fmt::{self, Write};

use tollway_core::{ChargeRequest, RuleRequest, Verb};
#[cfg(feature = "blocking")]
use tollway_wire::http::RecordQuery;
#[cfg(feature = "blocking")]
use tollway_wire::http::{BucketsPage, ExportQuery, ImportQuery};
use tollway_wire::http::{ChargeRequests, HttpCommand, HttpRuleRequest, InspectQuery, KeysQuery};

use super::DEFAULT_PORT;
use crate::address::{HostPort, invalid};
use crate::{InvalidAddress, InvalidRequest, InvalidToken};

/// The ports of an `http://` and an `https://` URL without one.
const URL_PORT: u16 = 80;
#[cfg(feature = "tls")]
const TLS_URL_PORT: u16 = 443;

/// The longest token, in bytes. A server takes no longer one.
const TOKEN_MAX: usize = 512;
/// The longest response to a charge or a rule. A server sends a few hundred bytes.
const ANSWER_MAX: usize = 64 << 10;
/// The longest page of keys, or explanation of a rule: it has a thousand ids, and ids may be long.
const PAGE_MAX: usize = 16 << 20;

/// The longest page of an export. One log alone can have some megabytes.
#[cfg(feature = "blocking")]
const EXPORT_MAX: usize = 96 << 20;

/// The server that a client asks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// A host and a port.
    pub(super) address: String,
    /// True if connections use TLS.
    pub(super) tls: bool,
    /// The path of a URL, which precedes every path: empty, or with a slash in front and none at the end.
    prefix: String,
    /// The token that every request has.
    token: Option<String>,
}

/// Shows the address, and never the token.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, tls, prefix, token: _ } = self;
        let mut shown = f.debug_struct("Endpoint");
        shown.field("address", address).field("tls", tls).field("prefix", prefix).finish_non_exhaustive()
    }
}

/// A request, ready to be written. It cannot be printed, because it may have a token.
pub(super) struct PreparedRequest {
    pub(super) bytes: Vec<u8>,
    /// The longest response that is read.
    pub(super) response_max: usize,
}

impl Endpoint {
    /// Parses a host and a port, or an `http://` or `https://` URL.
    ///
    /// A bare host means the port of a Tollway server. A URL means what it means everywhere: without a port, port 80 or
    /// 443.
    pub(super) fn parse(address: &str) -> Result<Self, InvalidAddress> {
        let (rest, tls, default_port) = match address.split_once("://") {
            Some(("http", rest)) => (rest, false, URL_PORT),
            #[cfg(feature = "tls")]
            Some(("https", rest)) => (rest, true, TLS_URL_PORT),
            #[cfg(not(feature = "tls"))]
            Some(("https", _)) => return Err(InvalidAddress::Tls { address: address.to_owned() }),
            _ => (address, false, DEFAULT_PORT),
        };
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A query would swallow the paths that follow, and a space would end the request line.
        if prefix.contains(|c: char| matches!(c, '?' | '#') || c.is_whitespace() || c.is_control()) {
            return Err(invalid(address, DEFAULT_PORT));
        }
        let found = HostPort::parse(authority, default_port).ok_or_else(|| invalid(address, DEFAULT_PORT))?;
        let (address, prefix) = (found.to_string(), prefix.trim_end_matches('/').to_owned());
        Ok(Self { address, tls, prefix, token: None })
    }

    /// Sets the token that every request has.
    pub(super) fn with_token(self, token: &str) -> Result<Self, InvalidToken> {
        if token.is_empty() || token.len() > TOKEN_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken);
        }
        Ok(Self { token: Some(token.to_owned()), ..self })
    }

    /// Lets connections use TLS, whatever the address says.
    #[cfg(feature = "tls")]
    pub(super) fn with_tls(self) -> Self {
        Self { tls: true, ..self }
    }

    pub(super) fn charge(
        &self,
        verb: Verb,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<PreparedRequest, InvalidRequest> {
        let charges = match charges {
            [charge] => ChargeRequests::One(charge.clone()),
            charges => ChargeRequests::Many(charges.to_vec()),
        };
        let mut body = Vec::new();
        HttpCommand::new(verb, charges).with_rules(rules.to_vec()).put_json(&mut body)?;
        Ok(self.post(&format!("/v1/{}", verb.name()), &body, ANSWER_MAX))
    }

    pub(super) fn rule(&self, request: &HttpRuleRequest<'_>) -> PreparedRequest {
        let mut body = Vec::new();
        request.put_json_without_rule(&mut body);
        self.post(&request.path(), &body, ANSWER_MAX)
    }

    pub(super) fn explain(&self, request: &HttpRuleRequest<'_>) -> PreparedRequest {
        let mut body = Vec::new();
        request.put_json(&mut body);
        self.post("/v1/explain", &body, PAGE_MAX)
    }

    pub(super) fn inspect(&self, limit: &str, id: &[u8]) -> PreparedRequest {
        let query = InspectQuery { limit: limit.into(), id: Cow::Borrowed(id) };
        self.get(&format!("/v1/inspect?{}", query.to_query()), ANSWER_MAX)
    }

    pub(super) fn keys(&self, query: &KeysQuery<'_>) -> PreparedRequest {
        self.get(&format!("/v1/keys?{}", query.to_query()), PAGE_MAX)
    }

    #[cfg(feature = "blocking")]
    pub(super) fn export_buckets(&self, query: ExportQuery) -> PreparedRequest {
        self.get(&format!("/v1/buckets?{}", query.to_query()), EXPORT_MAX)
    }

    #[cfg(feature = "blocking")]
    pub(super) fn import_buckets(&self, page: &BucketsPage, query: ImportQuery) -> PreparedRequest {
        let mut body = Vec::new();
        page.put_json(&mut body);
        self.post(&format!("/v1/buckets?{}", query.to_query()), &body, ANSWER_MAX)
    }

    #[cfg(feature = "blocking")]
    pub(super) fn live(&self) -> PreparedRequest {
        self.get("/v1/live", ANSWER_MAX)
    }

    #[cfg(feature = "blocking")]
    pub(super) fn record(&self, query: &RecordQuery) -> PreparedRequest {
        self.get(&format!("/v1/live?{}", query.to_query()), ANSWER_MAX)
    }

    fn post(&self, path: &str, body: &[u8], response_max: usize) -> PreparedRequest {
        let mut head = self.head("POST", path);
        // A write to a string cannot fail.
        let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        PreparedRequest { bytes: [head.as_bytes(), body].concat(), response_max }
    }

    fn get(&self, path: &str, response_max: usize) -> PreparedRequest {
        PreparedRequest { bytes: (self.head("GET", path) + "\r\n").into_bytes(), response_max }
    }

    fn head(&self, method: &str, path: &str) -> String {
        let mut head = format!("{method} {}{path} HTTP/1.1\r\nHost: {}\r\n", self.prefix, self.address);
        if let Some(token) = &self.token {
            let _ = write!(head, "Authorization: Bearer {token}\r\n");
        }
        head
    }
}

/// Makes the request of a configured rule from its name and the values of its selectors.
pub(super) fn rule_request<'a>(name: &'a str, selectors: &[(&'a str, &'a str)]) -> HttpRuleRequest<'a> {
    let selectors = selectors.iter().map(|(selector, value)| ((*selector).into(), Some((*value).into())));
    HttpRuleRequest { rule: name.into(), key: None, selectors: selectors.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_or_a_url() {
        for (given, address, prefix) in [
            ("127.0.0.1:7", "127.0.0.1:7", ""),
            ("127.0.0.1", "127.0.0.1:8080", ""),
            ("limiter/", "limiter:8080", ""),
            ("limiter/limits", "limiter:8080", "/limits"),
            ("http://limiter:8080", "limiter:8080", ""),
            ("http://limiter:8080/", "limiter:8080", ""),
            ("http://limiter", "limiter:80", ""),
            ("http://limiter/limits/", "limiter:80", "/limits"),
            ("[::1]:7", "[::1]:7", ""),
            ("[::1]", "[::1]:8080", ""),
            ("http://[::1]", "[::1]:80", ""),
        ] {
            let (address, prefix) = (address.to_owned(), prefix.to_owned());
            let expected = Endpoint { address, tls: false, prefix, token: None };
            assert_eq!(Endpoint::parse(given), Ok(expected), "{given}");
        }
    }

    #[test]
    fn an_invalid_address_is_an_error_that_says_what_is_valid() {
        for given in [
            "",
            "http://",
            "limiter:http",
            "::1",
            "ftp://limiter",
            "http://limiter/?q",
            "a b",
            "http://a/b c",
        ] {
            let error = Endpoint::parse(given).unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid address {given:?}; write it as HOST")), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_url_may_ask_for_tls() {
        for (given, address) in [("https://limiter", "limiter:443"), ("https://[::1]:8443/", "[::1]:8443")] {
            let expected =
                Endpoint { address: address.to_owned(), tls: true, prefix: String::new(), token: None };
            assert_eq!(Endpoint::parse(given), Ok(expected), "{given}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_needs_the_feature() {
        let error = Endpoint::parse("https://limiter").unwrap_err();
        assert!(error.to_string().starts_with("\"https://limiter\" needs TLS"), "{error}");
    }

    #[test]
    fn a_token_is_sent_and_never_shown() {
        let endpoint = Endpoint::parse("limiter").unwrap().with_token("tw_secret").unwrap();
        let request = String::from_utf8(endpoint.inspect("Login", b"alice").bytes).unwrap();
        assert!(request.contains("\r\nAuthorization: Bearer tw_secret\r\n"), "{request}");
        assert!(!format!("{endpoint:?}").contains("secret"));
        for wrong in ["", "two words", "a\r\nHost: b", "ä", &"a".repeat(TOKEN_MAX + 1)] {
            let error = Endpoint::parse("limiter").unwrap().with_token(wrong).unwrap_err();
            assert_eq!(error, InvalidToken);
        }
    }

    #[test]
    fn the_path_of_a_url_precedes_every_path() {
        let endpoint = Endpoint::parse("http://limiter:8080/limits").unwrap();
        let request = endpoint.inspect("Login", b"alice");
        let expected = "GET /limits/v1/inspect?limit=Login&id=alice HTTP/1.1\r\nHost: limiter:8080\r\n\r\n";
        assert_eq!(String::from_utf8(request.bytes).unwrap(), expected);
    }
}
