//! `POST /v1/spend` on kept connections.

use anyhow::bail;
use clap::Args;
use tollway::core::Verb;
use tollway_wire::http::{ChargeRequest, ChargeRequests, HttpCommand};

use super::keys::KeyFormat;
use super::load::Load;
use super::protocol::{Foreign, Protocol};
use super::report::shown;
use super::tally::Tally;
use super::template::Template;
use crate::command::Outcome;

/// More headers than any answer of ours has.
const HEADERS_MAX: usize = 32;

/// Load-test the HTTP gate: spend from one limit with many ids
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench http --limit LoginsPerAccount --keys 1000000 --zipf 0.99
  tollway bench http --rate 20000 --duration 30s --json")]
pub(crate) struct Http {
    #[command(flatten)]
    load: Load,
    /// The limit to spend from
    #[arg(long, value_name = "NAME", default_value = "demo")]
    limit: String,
    /// The id of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

impl Http {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.load.echo {
            bail!(
                "the echo server does not speak HTTP; compare with the constant answer of GET /healthz instead"
            );
        }
        let spend = Spend::new(&self.limit, &self.key_format, self.load.keys);
        self.load.run("http", "127.0.0.1:8080", spend)
    }
}

struct Spend {
    template: Template,
}

impl Spend {
    fn new(limit: &str, key_format: &KeyFormat, keys: u64) -> Self {
        let encode = |digits: &str| {
            let mut body = Vec::new();
            HttpCommand::new(
                Verb::Spend,
                ChargeRequests::One(ChargeRequest::new(limit, &key_format.with(digits), 1)),
            )
            .put_json(&mut body)
            .expect("a key is a string");
            let head = format!(
                "POST /v1/spend HTTP/1.1\r\nHost: tollway\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            [head.into_bytes(), body].concat()
        };
        Self { template: Template::of(keys, encode) }
    }
}

impl Protocol for Spend {
    const REPLIES: &'static str = "HTTP";

    fn template(&self) -> &Template {
        &self.template
    }

    fn scan(&self, inbox: &[u8], _first: u32, most: u64, tally: &mut Tally) -> Result<usize, Foreign> {
        let mut used = 0;
        for _ in 0..most {
            let Some(reply) = reply(&inbox[used..])? else { break };
            match reply.status {
                200..300 => {}
                429 => tally.denied += 1,
                status => tally.fail(|| format!("{status} {}", shown(reply.body))),
            }
            tally.replies += 1;
            used += reply.len;
        }
        Ok(used)
    }
}

struct Reply<'a> {
    status: u16,
    body: &'a [u8],
    len: usize,
}

/// The reply at the front, when all of it has arrived.
fn reply(inbox: &[u8]) -> Result<Option<Reply<'_>>, Foreign> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_len) = head.parse(inbox).map_err(|_| Foreign)? else {
        return Ok(None);
    };
    let status = head.code.ok_or(Foreign)?;
    let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let body_len = match length {
        Some(length) => {
            std::str::from_utf8(length.value).ok().and_then(|text| text.parse().ok()).ok_or(Foreign)?
        }
        None if status == 204 => 0,
        None => return Err(Foreign),
    };
    let rest = &inbox[head_len..];
    Ok(rest.get(..body_len).map(|body| Reply { status, body, len: head_len + body_len }))
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{refuses, scan_at_every_cut};
    use super::*;

    fn spend() -> Spend {
        Spend::new("say \"hi\"", &"k{}".parse().unwrap(), 1_000)
    }

    #[test]
    fn a_request_is_framed_and_escaped() {
        let spend = spend();
        let mut frame = spend.template().repeated(1);
        spend.template().stamp(&mut frame, 42);
        let text = String::from_utf8(frame).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/spend HTTP/1.1\r\n"), "{head}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(body.contains(r#""say \"hi\"""#) && body.contains(r#""k042""#), "{body}");
    }

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        let replies = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\r\n}\
            HTTP/1.1 429 Too Many Requests\r\nDate: now\r\ncontent-length: 0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        let tally = scan_at_every_cut(&spend(), replies, 0, 4);
        assert_eq!((tally.replies, tally.denied, tally.failed), (4, 1, 1));
        assert_eq!(tally.first_failure.as_deref(), Some("404 no"));
    }

    #[test]
    fn what_is_no_reply_is_told() {
        for foreign in [&b"SSH-2.0-OpenSSH\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n", b":1\r\n"] {
            refuses(&spend(), foreign);
        }
    }
}
