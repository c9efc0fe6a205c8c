//! Splits the bytes of a connection into HTTP requests.
//!
//! ```
//! use tollway_wire::http::{MissingPart, Framer, FramerEvent};
//!
//! let mut framer = Framer::new(16 << 10, 64 << 10);
//! let inbox = b"POST /v1/spend HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcdGET /he";
//! let FramerEvent::Request(request) = framer.next(inbox)? else { panic!() };
//! assert_eq!((request.path, request.body), ("/v1/spend", &b"abcd"[..]));
//! let rest = &inbox[request.len..];
//! assert!(matches!(framer.next(rest)?, FramerEvent::Incomplete(MissingPart::Head)));
//! # Ok::<(), tollway_wire::http::FramingError>(())
//! ```
//!
//! A request that could be read in two ways (two lengths, a length and chunks, a space before a colon) is refused: a
//! proxy in front of us may read it the other way, and that is how requests are smuggled. A head is parsed at most once
//! per line that arrives, so a client that sends byte by byte cannot make us work more.

mod head;

use thiserror::Error;

use self::head::{BodyFraming, FramedHead};
use super::sender::SenderHeaders;
use super::status::HttpStatus;

/// The greatest number of headers that a request may have. Proxies add about a dozen to those of a browser.
pub const HEADERS_MAX: usize = 64;
/// The longest line that may announce a chunk, in bytes: a size, and extensions.
const CHUNK_LINE_MAX: usize = 256;

/// Finds complete requests at the start of a connection's read buffer.
#[derive(Debug)]
pub struct Framer {
    head_max: usize,
    body_max: usize,
    progress: FramerProgress,
    decoded_body: Vec<u8>,
}

/// The progress that the request at the start of the buffer has made.
#[derive(Clone, Copy, Debug)]
enum FramerProgress {
    /// The head is incomplete. The first `scanned` bytes need not be searched for a line end again.
    Head { scanned: usize },
    /// The head is complete, and the request is complete at `end` bytes.
    Body { end: usize },
    /// The head is complete and has `head` bytes, the body is chunked, and the next chunk starts at `at`.
    Chunks { head: usize, at: usize },
}

/// The result of looking for a request.
#[must_use]
#[derive(Debug)]
pub enum FramerEvent<'a> {
    /// A complete request was found. The caller answers it and removes its `len` bytes from the buffer.
    Request(HttpRequest<'a>),
    /// The client waits for `100 Continue` before it sends the body. The caller sends that, and calls again.
    Continue,
    /// The request is incomplete, and more bytes must be read.
    Incomplete(MissingPart),
}

/// The part of a request that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// The whole request is missing: not one byte has arrived.
    Start,
    /// The rest of the head is missing.
    Head,
    /// The rest of the body is missing.
    Body,
}

/// A complete HTTP request, which is borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The method of the request.
    pub method: Method,
    /// The path, without the query string.
    pub path: &'a str,
    /// The query string, without its `?`. It may be empty.
    pub query: &'a str,
    /// The request line and the headers, as they came.
    pub head: &'a [u8],
    /// The headers that tell whether a web page has sent the request.
    pub sender: SenderHeaders<'a>,
    /// The body, with chunks joined.
    pub body: &'a [u8],
    /// True if the client wants the connection closed after the response.
    pub close: bool,
    /// The number of bytes that the request takes up in the read buffer.
    pub len: usize,
}

/// The HTTP methods that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// Any other method.
    Other,
}

/// An error that ends a connection: the next request cannot be found after it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FramingError {
    /// The bytes are not HTTP.
    #[error("this is not an HTTP/1.1 request")]
    Syntax(#[source] httparse::Error),
    /// The bytes begin as a connection by TLS does.
    #[error(
        "this looks like TLS, and the gate speaks plain HTTP; ask by http://, or configure \"tls\" for the gate"
    )]
    Tls,
    /// The head is too long.
    #[error("the request line and headers are too long; send at most {max} bytes")]
    HeadTooLong {
        /// The greatest length that is accepted, in bytes.
        max: usize,
    },
    /// The request has more than [`HEADERS_MAX`] headers.
    #[error("the request has too many headers; send at most {HEADERS_MAX}")]
    TooManyHeaders,
    /// The body is too long.
    #[error("the body is too long; send at most {max} bytes, chunk headers included")]
    BodyTooLong {
        /// The greatest length that is accepted, in bytes.
        max: usize,
    },
    /// The length is given in two ways.
    #[error("the length of the body is ambiguous; send one Content-Length or chunks, not both")]
    Length,
    /// The length is not a number.
    #[error("the Content-Length is not a whole number; send the number of bytes in digits")]
    LengthNotANumber,
    /// The transfer coding is not `chunked`.
    #[error("the transfer coding is not supported; use \"chunked\"")]
    TransferCoding,
    /// The chunks of the body are malformed.
    #[error("the chunks of the body are malformed")]
    Chunk,
    /// The request has no `Host` header, or several.
    #[error("an HTTP/1.1 request must have exactly one Host header")]
    Host,
}

impl FramingError {
    /// Returns the status to answer with.
    pub const fn status(&self) -> HttpStatus {
        match self {
            Self::Syntax(httparse::Error::Version) => HttpStatus::VersionNotSupported,
            Self::HeadTooLong { .. } | Self::TooManyHeaders => HttpStatus::HeadersTooLarge,
            Self::BodyTooLong { .. } => HttpStatus::BodyTooLarge,
            Self::TransferCoding => HttpStatus::NotImplemented,
            Self::Syntax(_)
            | Self::Tls
            | Self::Length
            | Self::LengthNotANumber
            | Self::Chunk
            | Self::Host => HttpStatus::BadRequest,
        }
    }
}

impl Framer {
    /// Creates a framer that accepts heads and bodies of at most so many bytes.
    pub const fn new(head_max: usize, body_max: usize) -> Self {
        Self { head_max, body_max, progress: FramerProgress::Head { scanned: 0 }, decoded_body: Vec::new() }
    }

    /// Returns the request at the start of `inbox`, or the part that is missing.
    ///
    /// Until a request is returned and removed, each call must pass the same bytes again, with new ones behind them.
    pub fn next<'a>(&'a mut self, inbox: &'a [u8]) -> Result<FramerEvent<'a>, FramingError> {
        if inbox.is_empty() {
            // An idle connection keeps no body. There are many of them.
            self.decoded_body = Vec::new();
        }
        if let Some(missing) = self.still_missing(inbox) {
            return self.incomplete(missing, inbox.len());
        }
        if let FramerProgress::Chunks { head, at } = self.progress
            && !self.take_chunks(inbox, head, at)?
        {
            return Ok(FramerEvent::Incomplete(MissingPart::Body));
        }
        let Some(head) = FramedHead::parse(inbox)? else {
            return self.incomplete(MissingPart::Head, inbox.len());
        };
        if head.len > self.head_max {
            return Err(FramingError::HeadTooLong { max: self.head_max });
        }
        match (head.body, self.progress) {
            (BodyFraming::Length(length), progress) => self.with_length(inbox, head, length, progress),
            (BodyFraming::Chunks, FramerProgress::Chunks { at, .. }) => {
                self.progress = FramerProgress::Head { scanned: 0 };
                Ok(FramerEvent::Request(head.request(&self.decoded_body, at)))
            }
            (BodyFraming::Chunks, _) => {
                self.decoded_body.clear();
                self.progress = FramerProgress::Chunks { head: head.len, at: head.len };
                if head.expects_continue && inbox.len() == head.len {
                    return Ok(FramerEvent::Continue);
                }
                self.next(inbox)
            }
        }
    }

    /// Returns the missing part if the new bytes cannot have completed the request, so that it is not parsed again.
    fn still_missing(&self, inbox: &[u8]) -> Option<MissingPart> {
        match self.progress {
            _ if inbox.is_empty() => Some(MissingPart::Start),
            FramerProgress::Head { scanned } => {
                let fresh = inbox.get(scanned..).unwrap_or_default();
                (scanned > 0 && !fresh.contains(&b'\n')).then_some(MissingPart::Head)
            }
            FramerProgress::Body { end } => (inbox.len() < end).then_some(MissingPart::Body),
            FramerProgress::Chunks { .. } => None,
        }
    }

    fn incomplete(&mut self, missing: MissingPart, arrived: usize) -> Result<FramerEvent<'_>, FramingError> {
        if missing == MissingPart::Head {
            if arrived > self.head_max {
                return Err(FramingError::HeadTooLong { max: self.head_max });
            }
            self.progress = FramerProgress::Head { scanned: arrived };
        }
        Ok(FramerEvent::Incomplete(missing))
    }

    /// Returns a request whose body has a known length, if all of it has arrived.
    fn with_length<'a>(
        &'a mut self,
        inbox: &'a [u8],
        head: FramedHead<'a>,
        length: u64,
        progress: FramerProgress,
    ) -> Result<FramerEvent<'a>, FramingError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.body_max);
        let length = length.ok_or(FramingError::BodyTooLong { max: self.body_max })?;
        let end = head.len + length;
        if let Some(body) = inbox.get(head.len..end) {
            self.progress = FramerProgress::Head { scanned: 0 };
            return Ok(FramerEvent::Request(head.request(body, end)));
        }
        self.progress = FramerProgress::Body { end };
        let first_wait = matches!(progress, FramerProgress::Head { .. });
        Ok(if head.expects_continue && first_wait && inbox.len() == head.len {
            FramerEvent::Continue
        } else {
            FramerEvent::Incomplete(MissingPart::Body)
        })
    }

    /// Copies complete chunks to `decoded_body`. Returns true if the last chunk is among them.
    fn take_chunks(&mut self, inbox: &[u8], head: usize, mut at: usize) -> Result<bool, FramingError> {
        while let Some((size, data)) = chunk_line(inbox, at)? {
            let end = data + size + b"\r\n".len();
            if end - head > self.body_max {
                return Err(FramingError::BodyTooLong { max: self.body_max });
            }
            let Some(chunk) = inbox.get(data..end) else { break };
            // Trailers after the last chunk are an error here too. We would not use them.
            let chunk = chunk.strip_suffix(b"\r\n").ok_or(FramingError::Chunk)?;
            self.decoded_body.extend_from_slice(chunk);
            at = end;
            self.progress = FramerProgress::Chunks { head, at };
            if size == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Parses the chunk header at `at`. Returns the size of the chunk and the position of its data, or `None` until the
/// line has ended.
fn chunk_line(inbox: &[u8], at: usize) -> Result<Option<(usize, usize)>, FramingError> {
    let rest = &inbox[at..];
    let window = &rest[..rest.len().min(CHUNK_LINE_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < CHUNK_LINE_MAX { Ok(None) } else { Err(FramingError::Chunk) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(FramingError::Chunk)?;
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    // At most eight digits, so that adding the size to a position in the buffer cannot overflow.
    if !(1..=8).contains(&size.len()) || !size.iter().all(u8::is_ascii_hexdigit) {
        return Err(FramingError::Chunk);
    }
    let digits = std::str::from_utf8(size).map_err(|_| FramingError::Chunk)?;
    let size = usize::from_str_radix(digits, 16).map_err(|_| FramingError::Chunk)?;
    Ok(Some((size, at + end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_MAX: usize = 64;

    fn framer() -> Framer {
        Framer::new(256, BODY_MAX)
    }

    /// Returns the path, query and body of each request, then how reading ended.
    fn read(bytes: &str) -> (Vec<String>, String) {
        let (mut framer, mut rest, mut requests) = (framer(), bytes.as_bytes(), Vec::new());
        loop {
            match framer.next(rest) {
                Ok(FramerEvent::Request(request)) => {
                    let body = String::from_utf8_lossy(request.body);
                    requests.push(format!("{} {} {body}", request.path, request.query));
                    rest = &rest[request.len..];
                }
                Ok(FramerEvent::Continue) => requests.push("continue".into()),
                Ok(FramerEvent::Incomplete(missing)) => return (requests, format!("{missing:?}")),
                Err(error) => return (requests, error.status().code().to_string()),
            }
        }
    }

    #[test]
    fn the_body_of_a_request_that_was_answered_is_not_kept() {
        let mut framer = Framer::new(256, 64 << 10);
        let chunk = "a".repeat(60_000);
        let request = format!(
            "POST / HTTP/1.1\r\nhost:x\r\ntransfer-encoding: chunked\r\n\r\nea60\r\n{chunk}\r\n0\r\n\r\n"
        );
        let Ok(FramerEvent::Request(HttpRequest { body, len, .. })) = framer.next(request.as_bytes()) else {
            panic!("the request is complete");
        };
        assert_eq!((body.len(), len), (chunk.len(), request.len()));
        assert!(matches!(framer.next(b""), Ok(FramerEvent::Incomplete(MissingPart::Start))));
        assert_eq!(framer.decoded_body.capacity(), 0);
    }

    #[test]
    fn requests_follow_each_other_and_the_last_may_be_partial() {
        for (bytes, requests, end) in [
            ("", &[][..], "Start"),
            ("GET / HT", &[], "Head"),
            ("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", &["/a b=c "], "Start"),
            ("\r\nGET http://x:1/a HTTP/1.1\r\nHost: x\r\n\r\n", &["/a  "], "Start"),
            ("GET http://x?q HTTP/1.1\r\nHost: x\r\n\r\n", &[" q "], "Start"),
            ("POST /a HTTP/1.1\r\nhost:x\r\ncontent-length: 2\r\n\r\nhiGET", &["/a  hi"], "Head"),
            ("POST /a HTTP/1.1\r\nhost:x\r\ncontent-length: 2\r\n\r\nh", &[], "Body"),
            (
                "POST /a HTTP/1.1\r\nhost:x\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\nhi\r\n1\r\n!\r\n0\r\n\r\nP",
                &["/a  hi!"],
                "Head",
            ),
            ("POST /a HTTP/1.1\r\nhost:x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi", &[], "Body"),
            (
                "POST /a HTTP/1.1\r\nhost:x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
                &["continue"],
                "Body",
            ),
            ("POST /a HTTP/1.0\r\nContent-Length: 0\r\n\r\n", &["/a  "], "Start"),
        ] {
            assert_eq!(
                read(bytes),
                (requests.iter().map(ToString::to_string).collect(), end.into()),
                "{bytes}"
            );
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (headers, status) in [
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "400"),
            ("Content-Length: 1\r\nContent-Length: 2\r\n", "400"),
            ("Content-Length: +1\r\n", "400"),
            ("Content-Length: -1\r\n", "400"),
            ("Content-Length: 1, 1\r\n", "400"),
            ("Content-Length: 65\r\n", "413"),
            ("Content-Length: 99999999999999999999999\r\n", "413"),
            ("Transfer-Encoding: gzip, chunked\r\n", "501"),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "501"),
            ("Content-Length : 1\r\n", "400"),
            ("Host: y\r\n", "400"),
            ("A: b\r\n c\r\n", "400"),
        ] {
            let bytes = format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
            assert_eq!(read(&bytes), (vec![], status.into()), "{headers}");
        }
        for chunks in ["x\r\n", "-1\r\n", "\r\n", "1\n", "1\r\nabc", "0\r\nT: 1\r\n", "123456789\r\n"] {
            let bytes = format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(read(&bytes), (vec![], "400".into()), "{chunks}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let head = |header: &str| format!("POST / HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n").into_bytes();
        let client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
        for (bytes, words) in [
            (head("Content-Length: 1\r\nContent-Length: 2"), "ambiguous; send one Content-Length or chunks"),
            (head("Content-Length: 1\r\nTransfer-Encoding: chunked"), "is ambiguous"),
            (head("Content-Length: -5"), "the Content-Length is not a whole number"),
            (head("Content-Length: 1, 1"), "the Content-Length is not a whole number"),
            (head("Content-Length:"), "the Content-Length is not a whole number"),
            (client_hello, "this looks like TLS, and the gate speaks plain HTTP"),
            (b"\x16 / HTTP/1.1\r\n\r\n".to_vec(), "this is not an HTTP/1.1 request"),
        ] {
            let error = framer().next(&bytes).unwrap_err().to_string();
            assert!(error.contains(words), "{}: {error}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nothing_grows_beyond_its_bound() {
        let long = "x".repeat(300);
        let many = "a:b\r\n".repeat(HEADERS_MAX + 1);
        for (bytes, status) in [
            (long.clone(), "431"),
            (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), "431"),
            (format!("GET / HTTP/1.1\r\n{many}"), "431"),
            ("GET / HTTP/3.0\r\n".into(), "505"),
            ("\r\n\r\n\r\n\r\nGET".into(), "Head"),
            (
                format!(
                    "POST / HTTP/1.1\r\nHost:x\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                    "1\r\na\r\n".repeat(20)
                ),
                "413",
            ),
            (format!("POST / HTTP/1.1\r\nHost:x\r\nTransfer-Encoding: chunked\r\n\r\n1;{long}"), "400"),
            ("POST / HTTP/1.1\r\nHost:x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n".into(), "413"),
        ] {
            assert_eq!(read(&bytes).1, status, "{bytes}");
        }
    }
}
