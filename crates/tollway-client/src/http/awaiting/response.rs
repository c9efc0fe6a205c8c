//! One response off a connection, once all of it has arrived.

use thiserror::Error;

/// The longest answer that is read. Ours are a few hundred bytes.
const ANSWER_MAX: usize = 64 << 10;
/// The most headers that are read. Ours are a dozen.
const HEADERS_MAX: usize = 64;

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// May the connection be used again?
    pub(super) keep: bool,
}

/// Why bytes are no response of a Tollway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// No HTTP at all.
    #[error("its head is not HTTP")]
    Head,
    /// Chunked, or until the connection ends: ours say how long they are.
    #[error("it does not say how long it is")]
    NoLength,
    /// Longer than any of ours.
    #[error("it is longer than {ANSWER_MAX} bytes")]
    TooLong,
}

/// Reads the whole response that `inbox` holds, or `None` until it has all arrived.
pub(super) fn read(inbox: &[u8]) -> Result<Option<Response>, Unreadable> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_len = match head.parse(inbox).map_err(|_| Unreadable::Head)? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial if inbox.len() > ANSWER_MAX => return Err(Unreadable::TooLong),
        httparse::Status::Partial => return Ok(None),
    };
    let header = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let length = header("content-length").and_then(|length| length.trim().parse().ok());
    let length: usize = length.ok_or(Unreadable::NoLength)?;
    if length > ANSWER_MAX {
        return Err(Unreadable::TooLong);
    }
    let Some(body) = inbox.get(head_len..head_len + length) else { return Ok(None) };
    let closes = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let status = head.code.ok_or(Unreadable::Head)?;
    // Bytes after it answer nothing that was asked.
    let keep = !closes && head.version == Some(1) && inbox.len() == head_len + length;
    Ok(Some(Response { status, body: body.to_vec(), keep }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}";

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        for len in 0..ANSWER.len() {
            assert_eq!(read(&ANSWER.as_bytes()[..len]), Ok(None), "{len}");
        }
        let whole = Response { status: 429, body: b"{}".to_vec(), keep: true };
        assert_eq!(read(ANSWER.as_bytes()), Ok(Some(whole)));
    }

    #[test]
    fn a_connection_is_kept_only_if_the_next_answer_can_follow() {
        for (answer, keep) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore", false),
        ] {
            assert_eq!(
                read(answer.as_bytes()).unwrap().map(|response| response.keep),
                Some(keep),
                "{answer}"
            );
        }
    }

    #[test]
    fn what_no_tollway_says_is_an_error() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(ANSWER_MAX));
        for (answer, error) in [
            ("SSH-2.0-OpenSSH_9.2\r\n", Unreadable::Head),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Unreadable::NoLength),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Unreadable::NoLength),
            ("HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n", Unreadable::TooLong),
            ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", Unreadable::TooLong),
            (&endless, Unreadable::TooLong),
        ] {
            assert_eq!(read(answer.as_bytes()), Err(error), "{answer:.60}");
        }
    }
}
