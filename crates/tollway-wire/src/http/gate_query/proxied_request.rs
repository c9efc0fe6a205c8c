//! Finds ids in the request that a proxy asks about: the client's address, a header, the path, the host, the method.
//!
//! A client can send any header, and most proxies pass on what they do not set themselves. So the headers in which a
//! proxy describes the original request are read only if the peer is a trusted proxy. One that is there twice, or two
//! that disagree, are refused: one of them may be the client's own.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use tollway_core::IdFormat;
use tollway_core::network::{Network, client_address};

use crate::http::command::MalformedRequest;
use crate::http::framing::{HEADERS_MAX, HttpRequest};
use crate::http::query_string::{malformed_parameter, percent_decode, text};

/// The headers that have the target of the original request: of Caddy and Traefik, and of most examples for nginx.
const TARGET: [&str; 2] = ["x-forwarded-uri", "x-original-uri"];
/// The header that has the host of the original request.
const HOST: [&str; 1] = ["x-forwarded-host"];
/// The headers that have the method of the original request.
const METHOD: [&str; 2] = ["x-forwarded-method", "x-original-method"];

/// The place in a request that an id is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdSource<'a> {
    /// The query has the id itself.
    Given(Cow<'a, [u8]>),
    /// The address of the client, which is found behind trusted proxies.
    ClientIp,
    /// The value of the header that has this name.
    Header(Cow<'a, str>),
    /// The path of the original request, without its query.
    Path,
    /// The host of the original request, in lower case and without a port.
    Host,
    /// The method of the original request.
    Method,
}

impl<'a> IdSource<'a> {
    /// Parses the value of the parameter `name`, such as `client_ip` or `header:X-Api-Key`.
    pub(super) fn parse(name: &str, value: &'a str) -> Result<Self, MalformedRequest> {
        let accepted = "send client_ip, header:NAME, path, host or method";
        let source = text(name, percent_decode(name, value)?)?;
        Ok(match &*source {
            "client_ip" => Self::ClientIp,
            "path" => Self::Path,
            "host" => Self::Host,
            "method" => Self::Method,
            _ => {
                let header = match source {
                    Cow::Borrowed(source) => source.strip_prefix("header:").map(Cow::Borrowed),
                    Cow::Owned(source) => {
                        source.strip_prefix("header:").map(|header| header.to_owned().into())
                    }
                };
                let header = header.filter(|header| is_header_name(header));
                Self::Header(header.ok_or_else(|| malformed_parameter(name, accepted))?)
            }
        })
    }
}

impl fmt::Display for IdSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(id) => write!(f, "{}", id.escape_ascii()),
            Self::ClientIp => f.write_str("(client_ip)"),
            Self::Header(name) => write!(f, "(header {name})"),
            Self::Path => f.write_str("(path)"),
            Self::Host => f.write_str("(host)"),
            Self::Method => f.write_str("(method)"),
        }
    }
}

fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// A request to `/v1/gate`, with what it tells about the original request.
#[derive(Debug)]
pub struct ProxiedRequest<'a> {
    method: &'a str,
    /// The target that the proxy appended to the path or to the query, if it did.
    appended: Option<&'a str>,
    headers: [httparse::Header<'a>; HEADERS_MAX],
    headers_len: usize,
    peer: IpAddr,
    trusted: &'a [Network],
}

impl<'a> ProxiedRequest<'a> {
    /// Reads the headers of a request that came from `peer`. `appended` is the original target, if the proxy appended
    /// it to the path or to the query, and `trusted` has the proxies whose headers are believed.
    pub fn new(
        request: &HttpRequest<'a>,
        appended: Option<&'a str>,
        peer: IpAddr,
        trusted: &'a [Network],
    ) -> Self {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut headers);
        // The framer has parsed the same bytes, so this cannot fail.
        let _ = head.parse(request.head);
        let (method, headers_len) = (head.method.unwrap_or_default(), head.headers.len());
        Self { method, appended, headers, headers_len, peer: peer.to_canonical(), trusted }
    }

    /// Returns whether a proxy has sent the request: a trusted one, or one that describes the original request in a
    /// header. A web page can send such a header only to its own site.
    pub fn is_from_proxy(&self) -> bool {
        let describes = |header: &httparse::Header<'_>| {
            let starts_with = |prefix: &str| {
                header.name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            };
            starts_with("x-forwarded-")
                || starts_with("x-original-")
                || header.name.eq_ignore_ascii_case("x-real-ip")
                || header.name.eq_ignore_ascii_case("forwarded")
        };
        self.is_trusted() || self.headers().iter().any(describes)
    }

    /// Returns the id that `source` describes, for a limit whose ids have the format `ids`.
    pub fn id(&self, source: IdSource<'a>, ids: IdFormat) -> Result<Cow<'a, [u8]>, MalformedRequest> {
        let id: Cow<'a, [u8]> = match &source {
            // An empty one is left to the limit, which names itself in its error.
            IdSource::Given(id) => return Ok(id.clone()),
            IdSource::ClientIp => self.client_ip(ids).into_bytes().into(),
            IdSource::Header(name) => self.only(&[name])?.unwrap_or_default().into(),
            IdSource::Path => self.path()?.into(),
            IdSource::Host => self.host()?.into(),
            IdSource::Method => self.described(&METHOD)?.unwrap_or(self.method.as_bytes()).into(),
        };
        if id.is_empty() { Err(self.missing(&source)) } else { Ok(id) }
    }

    /// Returns the address of the client. A limit that has no format for addresses counts an IPv6 client as its /64.
    fn client_ip(&self, ids: IdFormat) -> String {
        let lines =
            self.headers().iter().filter(|header| header.name.eq_ignore_ascii_case("x-forwarded-for"));
        let client = client_address(self.peer, self.trusted, lines.map(|header| header.value)).to_string();
        match ids {
            IdFormat::Any => match IdFormat::IP.canonical(client.as_bytes()) {
                Ok(network) => String::from_utf8_lossy(&network).into_owned(),
                Err(_) => client,
            },
            // The format has a prefix of its own.
            _ => client,
        }
    }

    fn path(&self) -> Result<&'a [u8], MalformedRequest> {
        let target = match self.appended {
            Some(target) => target.as_bytes(),
            None => self.described(&TARGET)?.unwrap_or_default(),
        };
        Ok(target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default())
    }

    fn host(&self) -> Result<Vec<u8>, MalformedRequest> {
        let host = match self.described(&HOST)? {
            Some(host) => Some(host),
            None => self.only(&["host"])?,
        };
        let host = host.unwrap_or_default();
        // A colon inside of brackets belongs to an IPv6 address.
        let port = host.iter().rposition(|byte| *byte == b':').filter(|at| !host[*at..].contains(&b']'));
        let name = &host[..port.unwrap_or(host.len())];
        Ok(name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase())
    }

    /// Returns the value of the headers with these names if the peer is trusted.
    fn described(&self, names: &[&str]) -> Result<Option<&'a [u8]>, MalformedRequest> {
        if self.is_trusted() { self.only(names) } else { Ok(None) }
    }

    /// Returns the one value that the headers with these names have. None may be there twice, and all must agree.
    fn only(&self, names: &[&str]) -> Result<Option<&'a [u8]>, MalformedRequest> {
        let mut found: Option<httparse::Header<'a>> = None;
        for name in names {
            let mut lines = self.headers().iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let Some(line) = lines.next() else { continue };
            if lines.next().is_some() {
                return Err(refused(format!("the request has the header {name} more than once")));
            }
            if found.is_some_and(|other| other.value != line.value) {
                return Err(refused(format!("the headers {} do not agree", names.join(" and "))));
            }
            found = Some(*line);
        }
        Ok(found.map(|header| header.value))
    }

    fn is_trusted(&self) -> bool {
        self.trusted.iter().any(|network| network.contains(self.peer))
    }

    fn headers(&self) -> &[httparse::Header<'a>] {
        &self.headers[..self.headers_len]
    }

    fn missing(&self, source: &IdSource<'_>) -> MalformedRequest {
        let is_trusted = self.is_trusted();
        refused(match source {
            IdSource::Header(name) => format!("the request has no header {name}, or an empty one"),
            _ if is_trusted => format!("the request does not tell the original {source}"),
            _ => format!(
                "the request does not tell the original {source}, or its headers are not believed: {} is not one of \
                 the trusted_proxies of the HTTP gate",
                self.peer
            ),
        })
    }
}

fn refused(detail: String) -> MalformedRequest {
    MalformedRequest { field: Some("id_from".to_owned()), detail }
}
