//! Parses the request line, and the headers that decide where a request ends.

use std::mem::MaybeUninit;

use super::{FramingError, HEADERS_MAX, HttpRequest, Method};
use crate::http::sender::SenderHeaders;

/// The first bytes of a connection by TLS: the type of a handshake record, and the first part of its version.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// The parts of a request's head that are needed for framing and routing.
pub(super) struct FramedHead<'a> {
    method: Method,
    target: &'a str,
    bytes: &'a [u8],
    pub(super) body: BodyFraming,
    close: bool,
    pub(super) expects_continue: bool,
    sender: SenderHeaders<'a>,
    pub(super) len: usize,
}

#[derive(Clone, Copy)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunks,
}

impl<'a> FramedHead<'a> {
    pub(super) fn parse(inbox: &'a [u8]) -> Result<Option<Self>, FramingError> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_request_with_uninit_headers(&mut request, inbox, &mut headers);
        let len = match parsed {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(FramingError::TooManyHeaders),
            Err(_) if inbox.starts_with(&TLS_HANDSHAKE) => return Err(FramingError::Tls),
            Err(error) => return Err(FramingError::Syntax(error)),
        };
        let http_1_0 = request.version == Some(0);
        let framing = FramingHeaders::read(request.headers, http_1_0)?;
        Ok(Some(Self {
            method: parse_method(request.method.unwrap_or_default()),
            target: request.path.unwrap_or_default(),
            bytes: &inbox[..len],
            body: framing.body()?,
            // HTTP/1.0 clients could ask to keep the connection open; that is not supported.
            close: framing.close || http_1_0,
            expects_continue: framing.expects_continue && !http_1_0,
            sender: framing.sender,
            len,
        }))
    }

    pub(super) fn request(&self, body: &'a [u8], len: usize) -> HttpRequest<'a> {
        let (path, query) =
            origin_form(self.target).split_once('?').unwrap_or((origin_form(self.target), ""));
        let Self { method, bytes: head, close, sender, .. } = *self;
        HttpRequest { method, path, query, head, sender, body, close, len }
    }
}

/// The headers that decide how a request is framed, and who sent it.
#[derive(Default)]
struct FramingHeaders<'a> {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    expects_continue: bool,
    sender: SenderHeaders<'a>,
}

impl<'a> FramingHeaders<'a> {
    fn read(headers: &[httparse::Header<'a>], http_1_0: bool) -> Result<Self, FramingError> {
        let mut framing = Self::default();
        let mut hosts = 0;
        for header in headers {
            // The length is compared first: it is the quickest way to skip the headers that do not matter.
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    framing.sender.host = header.value;
                    hosts += 1;
                }
                6 if header.name.eq_ignore_ascii_case("origin") => framing.sender.add_origin(header.value),
                6 if header.name.eq_ignore_ascii_case("expect") => {
                    framing.expects_continue = header.value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    framing.close |= tokens(header.value).any(|token| token.eq_ignore_ascii_case(b"close"));
                }
                11 if header.name.eq_ignore_ascii_case("traceparent") => {
                    framing.sender.add_trace_parent(header.value);
                }
                12 if header.name.eq_ignore_ascii_case("content-type") => {
                    framing.sender.add_content_type(header.value);
                }
                13 if header.name.eq_ignore_ascii_case("authorization") => {
                    framing.sender.add_authorization(header.value);
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    framing.set_length(header.value)?;
                }
                14 if header.name.eq_ignore_ascii_case("sec-fetch-site") => {
                    framing.sender.add_fetch_site(header.value);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if framing.chunked || http_1_0 || !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(FramingError::TransferCoding);
                    }
                    framing.chunked = true;
                }
                _ => {}
            }
        }
        if hosts > 1 || (hosts == 0 && !http_1_0) { Err(FramingError::Host) } else { Ok(framing) }
    }

    fn set_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits);
        let length = length.ok_or(FramingError::LengthNotANumber)?;
        // A number that overflows 64 bits is above every accepted length.
        let length = length.parse().unwrap_or(u64::MAX);
        match self.length.replace(length) {
            Some(other) if other != length => Err(FramingError::Length),
            _ => Ok(()),
        }
    }

    fn body(&self) -> Result<BodyFraming, FramingError> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(FramingError::Length),
            (None, true) => Ok(BodyFraming::Chunks),
            (length, false) => Ok(BodyFraming::Length(length.unwrap_or(0))),
        }
    }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn parse_method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        _ => Method::Other,
    }
}

/// Removes the origin from a target. Proxies may send `http://host/path`.
fn origin_form(target: &str) -> &str {
    if target.starts_with('/') {
        return target;
    }
    match target.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |start| &rest[start..]),
        None => target,
    }
}
