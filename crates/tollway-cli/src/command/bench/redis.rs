//! `INCR key` in RESP, so that a Redis server can be measured by the same generator.
//!
//! ```text
//! -> *2 $4 INCR $7 k000042     an array of two strings, each with its length
//! <- :17                       the counter
//! ```

use clap::Args;

use super::keys::KeyFormat;
use super::load::Load;
use super::protocol::{Foreign, Protocol};
use super::report::shown;
use super::tally::Tally;
use super::template::Template;
use crate::command::Outcome;

/// Load-test a Redis server with INCR, for comparison
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench redis --pipeline 64 --keys 1000000 --duration 10s")]
pub(crate) struct Redis {
    #[command(flatten)]
    load: Load,
    /// The key of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

impl Redis {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let incr = Incr::new(&self.key_format, self.load.keys);
        self.load.run("redis", "127.0.0.1:6379", incr)
    }
}

struct Incr {
    template: Template,
}

impl Incr {
    fn new(key_format: &KeyFormat, keys: u64) -> Self {
        let encode = |digits: &str| {
            let key = key_format.with(digits);
            format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
        };
        Self { template: Template::of(keys, encode) }
    }
}

impl Protocol for Incr {
    const REPLIES: &'static str = "the Redis protocol";
    const START: &'static str = "redis-server";

    fn template(&self) -> &Template {
        &self.template
    }

    fn scan(&self, inbox: &[u8], _first: u32, most: u64, tally: &mut Tally) -> Result<usize, Foreign> {
        let mut used = 0;
        for _ in 0..most {
            let rest = &inbox[used..];
            let Some(&kind) = rest.first() else { break };
            if !matches!(kind, b':' | b'-') {
                return Err(Foreign);
            }
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            if kind == b'-' {
                tally.fail(|| shown(rest[1..end].trim_ascii()));
            }
            tally.replies += 1;
            used += end + 1;
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{refuses, scan_at_every_cut};
    use super::*;

    fn incr() -> Incr {
        Incr::new(&"k{}".parse().unwrap(), 1_000_000)
    }

    #[test]
    fn a_request_is_an_array_of_two_strings() {
        let incr = incr();
        let mut frame = incr.template().repeated(1);
        incr.template().stamp(&mut frame, 42);
        assert_eq!(frame, b"*2\r\n$4\r\nINCR\r\n$7\r\nk000042\r\n");
    }

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        let tally = scan_at_every_cut(&incr(), b":1\r\n:12345\r\n-ERR no memory\r\n:2\r\n", 0, 4);
        assert_eq!((tally.replies, tally.failed), (4, 1));
        assert_eq!(tally.first_failure.as_deref(), Some("ERR no memory"));
    }

    #[test]
    fn what_is_no_reply_is_told() {
        for foreign in [&b"HTTP/1.1 400"[..], b"\0\0\0\0\x01", b":1\r\n*2\r\n"] {
            refuses(&incr(), foreign);
        }
    }
}
