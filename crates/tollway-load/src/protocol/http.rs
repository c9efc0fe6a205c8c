//! `POST /v1/spend` of the HTTP gate, over connections that stay open.

use tollway_core::Verb;
use tollway_wire::http::{ChargeRequest, ChargeRequests, HttpCommand};

use super::{NotAReply, Protocol, Reply, ReplyKind};
use crate::keys::KeySpace;
use crate::template::Template;

/// The number of headers that a response may have; those of Tollway have fewer.
const HEADERS_MAX: usize = 32;

/// Spends 1 from the buckets of one limit.
#[derive(Debug)]
pub struct HttpSpend {
    template: Template,
}

impl HttpSpend {
    /// Spends from `limit`, with the keys as ids.
    pub fn new(limit: &str, keys: &KeySpace) -> Self {
        Self::with_token(limit, keys, None)
    }

    /// Spends from `limit`, and sends a token with every request.
    pub fn with_token(limit: &str, keys: &KeySpace, token: Option<&str>) -> Self {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let encode = |key: &str| {
            let mut body = Vec::new();
            HttpCommand::new(Verb::Spend, ChargeRequests::One(ChargeRequest::new(limit, key, 1)))
                .put_json(&mut body)
                .expect("a key is a string");
            let head = format!(
                "POST /v1/spend HTTP/1.1\r\nHost: tollway\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            [head.into_bytes(), body].concat()
        };
        Self { template: Template::new(keys, encode) }
    }
}

impl Protocol for HttpSpend {
    const NAME: &'static str = "HTTP";

    fn template(&self) -> &Template {
        &self.template
    }

    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(head_len) = head.parse(received).map_err(|_| NotAReply)? else {
            return Ok(None);
        };
        let status = head.code.ok_or(NotAReply)?;
        let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let body_len = match length {
            Some(length) => str::from_utf8(length.value).ok().and_then(|text| text.parse().ok()),
            None => (status == 204).then_some(0),
        };
        let len = body_len.and_then(|body_len: usize| head_len.checked_add(body_len)).ok_or(NotAReply)?;
        let Some(text) = received.get(head_len..len) else { return Ok(None) };
        let kind = match status {
            200..300 => ReplyKind::Allowed,
            429 => ReplyKind::Denied,
            _ => ReplyKind::Error { status: Some(status), text },
        };
        Ok(Some(Reply { len, number: 0, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, request};
    use super::*;

    fn spend() -> HttpSpend {
        HttpSpend::new("say \"hi\"", &KeySpace { format: "k{}".parse().unwrap(), count: 1_000 })
    }

    #[test]
    fn a_request_is_framed_and_escaped() {
        let text = String::from_utf8(request(&spend(), 0, 42)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/spend HTTP/1.1\r\n"), "{head}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(body.contains(r#""say \"hi\"""#) && body.contains(r#""k042""#), "{body}");
    }

    #[test]
    fn replies_are_recognized() {
        let replies = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\r\n}\
            HTTP/1.1 429 Too Many Requests\r\nDate: now\r\ncontent-length: 0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        let error = ReplyKind::Error { status: Some(404), text: b"no" };
        let kinds = [ReplyKind::Allowed, ReplyKind::Denied, ReplyKind::Allowed, error];
        assert_eq!(read_all(&spend(), replies), kinds.map(|kind| (0, kind)));
    }

    #[test]
    fn other_bytes_are_not_a_reply() {
        for other in [&b"SSH-2.0-OpenSSH\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n", b":1\r\n"] {
            assert_eq!(spend().reply(other), Err(NotAReply), "{}", other.escape_ascii());
        }
    }
}
