//! Reads one response from the bytes of a connection.

use crate::InvalidResponse;

/// The number of headers that are read at most. A server sends a dozen.
const HEADERS_MAX: usize = 64;

/// A response as it arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// True if the connection can carry another request.
    pub(super) reusable: bool,
}

/// Returns the length of the head if `inbox` starts with the head of a stream of events, and `None` if it starts with
/// another response, or with a part of one.
#[cfg(feature = "blocking")]
pub(super) fn event_stream_head(inbox: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(len)) = head.parse(inbox) else { return None };
    let has = |name: &str, start: &[u8]| {
        head.headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case(name) && header.value.starts_with(start))
    };
    // The bytes of a body in chunks are not those of its events.
    let is_plain = !has("transfer-encoding", b"");
    (head.code == Some(200) && has("content-type", b"text/event-stream") && is_plain).then_some(len)
}

/// Reads the response that `inbox` holds, or returns `None` until all of it has arrived.
pub(super) fn read_response(inbox: &[u8], max: usize) -> Result<Option<HttpResponse>, InvalidResponse> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_len = match head.parse(inbox).map_err(|_| InvalidResponse::HttpHead)? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial if inbox.len() > max => return Err(InvalidResponse::HttpTooLong { max }),
        httparse::Status::Partial => return Ok(None),
    };
    let header = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let length = header("content-length").and_then(|length| length.trim().parse().ok());
    let length: usize = length.ok_or(InvalidResponse::HttpLength)?;
    if length > max {
        return Err(InvalidResponse::HttpTooLong { max });
    }
    let Some(body) = inbox.get(head_len..head_len + length) else { return Ok(None) };
    let closes = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let status = head.code.ok_or(InvalidResponse::HttpHead)?;
    // Bytes after the response belong to no request of ours.
    let reusable = !closes && head.version == Some(1) && inbox.len() == head_len + length;
    Ok(Some(HttpResponse { status, body: body.to_vec(), reusable }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 64 << 10;
    const ANSWER: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}";

    fn read(inbox: &str) -> Result<Option<HttpResponse>, InvalidResponse> {
        read_response(inbox.as_bytes(), MAX)
    }

    #[test]
    fn a_response_is_read_when_all_of_it_is_there() {
        for len in 0..ANSWER.len() {
            assert_eq!(read(&ANSWER[..len]).unwrap(), None, "{len}");
        }
        let whole = HttpResponse { status: 429, body: b"{}".to_vec(), reusable: true };
        assert_eq!(read(ANSWER).unwrap(), Some(whole));
    }

    #[cfg(feature = "blocking")]
    #[test]
    fn a_stream_of_events_is_known_by_its_head() {
        let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        assert_eq!(event_stream_head(format!("{events}event: history").as_bytes()), Some(events.len()));
        assert_eq!(event_stream_head(&events.as_bytes()[..events.len() - 1]), None);
        for other in [
            ANSWER,
            "HTTP/1.1 503 Unavailable\r\nContent-Type: text/event-stream\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
        ] {
            assert_eq!(event_stream_head(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_connection_is_reused_only_if_the_next_response_can_follow() {
        for (answer, reusable) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore", false),
        ] {
            assert_eq!(read(answer).unwrap().map(|response| response.reusable), Some(reusable), "{answer}");
        }
    }

    #[test]
    fn what_no_tollway_sends_is_an_error() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX));
        for (answer, error) in [
            ("SSH-2.0-OpenSSH_9.2\r\n", "its head is not HTTP"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "it has no Content-Length"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "it has no Content-Length"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n", "it is longer than 65536 bytes"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", "it is longer than"),
            (&endless, "it is longer than 65536 bytes"),
        ] {
            let found = read(answer).unwrap_err().to_string();
            assert!(found.starts_with(error), "{answer:.60}: {found}");
        }
    }
}
