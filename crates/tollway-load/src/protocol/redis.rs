//! `INCR key` of Redis, so that a Redis server can be measured by the same generator.
//!
//! ```text
//! -> *2 $4 INCR $7 k000042     an array of two strings, each with its length
//! <- :17                       the counter
//! ```

use super::{NotAReply, Protocol, Reply, ReplyKind};
use crate::keys::KeySpace;
use crate::template::Template;

/// Increments counters.
#[derive(Debug)]
pub struct RedisIncr {
    template: Template,
}

impl RedisIncr {
    /// Increments the counters with these keys.
    pub fn new(keys: &KeySpace) -> Self {
        let encode = |key: &str| format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).into_bytes();
        Self { template: Template::new(keys, encode) }
    }
}

impl Protocol for RedisIncr {
    const NAME: &'static str = "the Redis protocol";
    const START: &'static str = "redis-server";

    fn template(&self) -> &Template {
        &self.template
    }

    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        let Some((kind, rest)) = received.split_first() else { return Ok(None) };
        if !matches!(kind, b':' | b'-') {
            return Err(NotAReply);
        }
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let error = || ReplyKind::Error { status: None, text: rest[..end].trim_ascii() };
        let kind = if *kind == b':' { ReplyKind::Allowed } else { error() };
        Ok(Some(Reply { len: end + 2, number: 0, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, request};
    use super::*;

    fn incr() -> RedisIncr {
        RedisIncr::new(&KeySpace { format: "k{}".parse().unwrap(), count: 1_000_000 })
    }

    #[test]
    fn a_request_is_an_array_of_two_strings() {
        assert_eq!(request(&incr(), 0, 42), b"*2\r\n$4\r\nINCR\r\n$7\r\nk000042\r\n");
    }

    #[test]
    fn replies_are_recognized() {
        let replies = b":1\r\n:12345\r\n-ERR no memory\r\n:2\r\n";
        let error = ReplyKind::Error { status: None, text: b"ERR no memory" };
        let kinds = [ReplyKind::Allowed, ReplyKind::Allowed, error, ReplyKind::Allowed];
        assert_eq!(read_all(&incr(), replies), kinds.map(|kind| (0, kind)));
    }

    #[test]
    fn other_bytes_are_not_a_reply() {
        for other in [&b"HTTP/1.1 400"[..], b"\0\0\0\0\x01", b"*2\r\n"] {
            assert_eq!(incr().reply(other), Err(NotAReply), "{}", other.escape_ascii());
        }
    }
}
