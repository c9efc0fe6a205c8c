//! Commands of the RESP gate, and of the servers that it is compared with.
//!
//! ```text
//! -> *5 $11 CL.THROTTLE $7 k000042 $3 100 $3 100 $1 1     an array of strings, each with its length
//! <- *5 :0 :101 :100 :-1 :1                               not limited, of 101 are 100 left
//! -> *1 $4 PING
//! <- +PONG
//! ```

use tollway_wire::resp::encode_command;

use super::{NotAReply, Protocol, Reply, ReplyKind};
use crate::keys::KeySpace;
use crate::template::Template;

/// The command to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespAsk {
    /// `CL.THROTTLE` of redis-cell, under these numbers.
    ClThrottle(ThrottleNumbers),
    /// `THROTTLE` of throttlecrab, under these numbers.
    Throttle(ThrottleNumbers),
    /// `PING`, which decides nothing. All requests are the same.
    Ping,
}

/// The numbers of the limit that come with a command: `count` in `period` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleNumbers {
    /// The burst, as the command counts it.
    pub max_burst: u32,
    /// The number of tokens that come back in a period.
    pub count: u32,
    /// The period in seconds.
    pub period: u32,
}

/// Sends one command with the keys of many clients.
#[derive(Debug)]
pub struct RespCommands {
    template: Template,
    /// The bytes that a reply begins with if the request is allowed.
    allowed: Vec<u8>,
    /// The bytes that it begins with if the request is denied; they are as many.
    denied: Vec<u8>,
    /// The number of integers that follow.
    integers: usize,
    /// The command by which a connection sends its token.
    auth: Option<Vec<u8>>,
}

impl RespCommands {
    /// Sends this command with these keys.
    pub fn new(ask: RespAsk, keys: &KeySpace) -> Self {
        let encode = |key: &str| match ask {
            RespAsk::ClThrottle(numbers) => numbers.command("CL.THROTTLE", key),
            RespAsk::Throttle(numbers) => numbers.command("THROTTLE", key),
            RespAsk::Ping => command(&["PING"]),
        };
        // The second integer is the burst that the server understood, so that a server that ignores it is noticed.
        let start = |first: u8, burst: u64| format!("*5\r\n:{first}\r\n:{burst}\r\n").into_bytes();
        let (allowed, denied, integers) = match ask {
            RespAsk::ClThrottle(ThrottleNumbers { max_burst, .. }) => {
                let burst = u64::from(max_burst) + 1;
                (start(0, burst), start(1, burst), 3)
            }
            RespAsk::Throttle(ThrottleNumbers { max_burst, .. }) => {
                (start(1, max_burst.into()), start(0, max_burst.into()), 3)
            }
            RespAsk::Ping => (b"+PONG\r\n".to_vec(), b"+PONG\r\n".to_vec(), 0),
        };
        Self { template: Template::new(keys, encode), allowed, denied, integers, auth: None }
    }

    /// Sends a token on each connection, before the first request.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { auth: Some(command(&["AUTH", token])), ..self }
    }
}

impl ThrottleNumbers {
    fn command(self, name: &str, key: &str) -> Vec<u8> {
        let [max_burst, count, period] = [self.max_burst, self.count, self.period].map(|n| n.to_string());
        command(&[name, key, &max_burst, &count, &period])
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), &mut bytes);
    bytes
}

impl Protocol for RespCommands {
    const NAME: &'static str = "a RESP reply to this command";

    fn template(&self) -> &Template {
        &self.template
    }

    fn greeting(&self) -> Option<(&[u8], &[u8])> {
        self.auth.as_deref().map(|auth| (auth, &b"+OK\r\n"[..]))
    }

    #[inline]
    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        if received.first() == Some(&b'-') {
            return Ok(error(received));
        }
        let (arrived, rest) = received.split_at(received.len().min(self.allowed.len()));
        let kind = match (self.allowed.starts_with(arrived), self.denied.starts_with(arrived)) {
            (true, _) => ReplyKind::Allowed,
            (false, true) => ReplyKind::Denied,
            (false, false) => return Err(NotAReply),
        };
        if arrived.len() < self.allowed.len() {
            return Ok(None);
        }
        let mut len = 0;
        for _ in 0..self.integers {
            let Some(line) = integer(&rest[len..])? else { return Ok(None) };
            len += line;
        }
        Ok(Some(Reply { len: arrived.len() + len, number: 0, kind }))
    }
}

/// Returns the error that `received` begins with, or `None` until all of it has arrived.
fn error(received: &[u8]) -> Option<Reply<'_>> {
    let len = received.iter().position(|byte| *byte == b'\n')? + 1;
    let kind = ReplyKind::Error { status: None, text: received[1..len].trim_ascii() };
    Some(Reply { len, number: 0, kind })
}

/// Returns the length of the integer that `received` begins with, or `None` until all of it has arrived.
#[inline]
fn integer(received: &[u8]) -> Result<Option<usize>, NotAReply> {
    let mut before = b'\n';
    for (at, byte) in received.iter().enumerate() {
        match (before, byte) {
            (b'\n', b':')
            | (b':', b'-')
            | (b':' | b'-' | b'0'..=b'9', b'0'..=b'9')
            | (b'0'..=b'9', b'\r') => {}
            (b'\r', b'\n') => return Ok(Some(at + 1)),
            _ => return Err(NotAReply),
        }
        before = *byte;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, request};
    use super::*;

    const NUMBERS: ThrottleNumbers = ThrottleNumbers { max_burst: 15, count: 30, period: 60 };

    fn commands(ask: RespAsk) -> RespCommands {
        RespCommands::new(ask, &KeySpace { format: "k{}".parse().unwrap(), count: 1_000_000 })
    }

    #[test]
    fn a_request_is_an_array_of_strings() {
        for (ask, expected) in [
            (
                RespAsk::ClThrottle(NUMBERS),
                "*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nk000042\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n",
            ),
            (
                RespAsk::Throttle(NUMBERS),
                "*5\r\n$8\r\nTHROTTLE\r\n$7\r\nk000042\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n",
            ),
            (RespAsk::Ping, "*1\r\n$4\r\nPING\r\n"),
        ] {
            assert_eq!(request(&commands(ask), 0, 42), expected.as_bytes(), "{ask:?}");
        }
    }

    #[test]
    fn replies_are_recognized() {
        let error = ReplyKind::Error { status: None, text: b"ERR no memory" };
        for (ask, replies, kinds) in [
            (
                RespAsk::ClThrottle(NUMBERS),
                &b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n-ERR no memory\r\n*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n"[..],
                &[ReplyKind::Allowed, error, ReplyKind::Denied][..],
            ),
            (
                RespAsk::Throttle(NUMBERS),
                b"*5\r\n:1\r\n:15\r\n:14\r\n:2\r\n:0\r\n*5\r\n:0\r\n:15\r\n:0\r\n:30\r\n:2\r\n",
                &[ReplyKind::Allowed, ReplyKind::Denied],
            ),
            (RespAsk::Ping, b"+PONG\r\n-ERR no memory\r\n", &[ReplyKind::Allowed, error]),
        ] {
            let read: Vec<_> = kinds.iter().map(|kind| (0, *kind)).collect();
            assert_eq!(read_all(&commands(ask), replies), read, "{ask:?}");
        }
    }

    #[test]
    fn other_bytes_are_not_a_reply() {
        for other in [
            &b"HTTP/1.1 400"[..],
            b"+OK\r\n",
            b":1\r\n",
            b"*4\r\n",
            b"*5\r\n:2\r\n",
            b"*5\r\n:0\r\n:17\r\n",
            b"*5\r\n:0\r\n:16\r\n:-\r\n",
            b"*5\r\n:0\r\n:16\r\n:1\n",
            b"*5\r\n:0\r\n:16\r\n$1\r\n",
        ] {
            let commands = commands(RespAsk::ClThrottle(NUMBERS));
            assert_eq!(commands.reply(other), Err(NotAReply), "{}", other.escape_ascii());
        }
    }
}
