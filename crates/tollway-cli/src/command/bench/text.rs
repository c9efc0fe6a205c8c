//! The UDP text protocol: `0000042 over_limit ws ip=000123`, ids and keys always as wide.

use std::ops::Range;

use clap::Args;
use tollway::core::Nanos;
use tollway_wire::text::{TextCommand, TextRequest};

use super::interrupt::Interrupt;
use super::keys::KeyFormat;
use super::load::Load;
use super::protocol::Foreign;
use super::sockets::Sockets;
use super::template::{Template, differing, put_digits};
use super::waiting::ID_DIGITS;
use crate::command::Outcome;

/// Load-test the UDP text gate with over_limit
///
/// Every socket sends a batch, waits for the replies, and sends the next. Datagrams may be lost: requests without a reply
/// within the timeout count as unanswered.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench text --pipeline 64 --keys 1000000 --duration 10s
  tollway bench text --key-format 'ws ua={}' --zipf 0.99 --rate 50000")]
pub(crate) struct Text {
    #[command(flatten)]
    load: Load,
    /// The key of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "ws ip={}")]
    key_format: KeyFormat,
    /// The timeout for a reply
    #[arg(long, value_name = "D", default_value = "100ms")]
    timeout: Nanos,
    /// Send every datagram by itself, without segmentation offload (GSO)
    #[arg(long)]
    no_gso: bool,
}

impl Text {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let interrupt = Interrupt::catch()?;
        let addr = self.load.addr("127.0.0.1:2000")?;
        let datagram = Datagram::new(&self.key_format, self.load.keys, self.load.echo);
        let sockets = Sockets { addr, datagram, timeout: self.timeout, gso: !self.no_gso };
        let (course, tally) = sockets.run(&self.load, &interrupt)?;
        self.load.print("text", addr, course, tally)
    }
}

/// One request, and how its answer is read.
pub(super) struct Datagram {
    template: Template,
    id: Range<usize>,
    echo: bool,
}

impl Datagram {
    fn new(key_format: &KeyFormat, keys: u64, echo: bool) -> Self {
        let encode = |id: &str, digits: &str| {
            let (mut datagram, key) = (Vec::new(), key_format.with(digits));
            let command = TextCommand::OverLimit { key: key.as_bytes() };
            TextRequest { id: Some(id.as_bytes()), command }.encode(&mut datagram);
            datagram
        };
        let (zeros, nines) = ("0".repeat(ID_DIGITS), "9".repeat(ID_DIGITS));
        let id = differing(&encode(&zeros, ""), &encode(&nines, ""));
        Self { template: Template::of(keys, |digits| encode(&zeros, digits)), id, echo }
    }

    /// What the replies are called where they turn out not to be.
    pub(super) const fn replies(&self) -> &'static str {
        if self.echo { "an echo" } else { "the text protocol" }
    }

    /// The command that starts a server to ask.
    pub(super) const fn start(&self) -> &'static str {
        if self.echo { "tollway bench echo" } else { "tollway serve" }
    }

    /// The request of which all others are copies.
    pub(super) fn frame(&self) -> &[u8] {
        self.template.frame()
    }

    /// Makes `frame`, one of these, ask about `key`.
    #[inline]
    pub(super) fn stamp(&self, frame: &mut [u8], id: u64, key: u64) {
        self.template.stamp(frame, key);
        put_digits(&mut frame[self.id.clone()], id);
    }

    /// The id of a reply, and whether it says that the key is over its limit.
    #[inline]
    pub(super) fn read(&self, reply: &[u8]) -> Result<(u64, bool), Foreign> {
        let (id, rest) = reply.split_at_checked(ID_DIGITS).ok_or(Foreign)?;
        let id = id.iter().try_fold(0, |id, byte| match byte {
            b'0'..=b'9' => Ok(id * 10 + u64::from(byte - b'0')),
            _ => Err(Foreign),
        })?;
        match rest {
            _ if self.echo => {
                (reply.len() == self.template.frame().len()).then_some((id, false)).ok_or(Foreign)
            }
            [b' ', b'o', b'k', b' ', b'N', b' ', ..] => Ok((id, false)),
            [b' ', b'o', b'k', b' ', b'Y', b' ', ..] => Ok((id, true)),
            _ => Err(Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::text::{OverLimit, TextReply, decode, encode};

    use super::*;

    fn datagram(echo: bool) -> Datagram {
        Datagram::new(&"ws ip={}".parse().unwrap(), 1_000_000, echo)
    }

    #[test]
    fn a_request_is_what_the_codec_reads() {
        for (id, key, expected_id, expected_key) in [
            (0, 0, "0000000", "ws ip=000000"),
            (1_234_567, 999_999, "1234567", "ws ip=999999"),
            (42, 7, "0000042", "ws ip=000007"),
        ] {
            let mut frame = datagram(false).frame().to_vec();
            datagram(false).stamp(&mut frame, id, key);
            let message = decode(&frame).unwrap();
            assert_eq!(message.id, Some(expected_id.as_bytes()));
            assert_eq!(message.command, TextCommand::OverLimit { key: expected_key.as_bytes() });
        }
    }

    #[test]
    fn a_reply_is_what_the_codec_writes() {
        for over in [false, true] {
            let mut reply = Vec::new();
            let said = OverLimit::new(over, 1.5, 22.0, 20);
            encode(Some(b"0000042"), &TextReply::OverLimit(said), &mut reply);
            assert_eq!(datagram(false).read(&reply), Ok((42, over)));
            assert_eq!(datagram(true).read(&reply), Err(Foreign));
        }
        for foreign in
            ["", "42", "0000042", "0000042 pong", "x000042 ok N 1.0 2.0 3", "0000042 over_limit ws ip=000001"]
        {
            assert_eq!(datagram(false).read(foreign.as_bytes()), Err(Foreign), "{foreign}");
        }
    }

    #[test]
    fn an_echo_is_the_request() {
        let mut sent = datagram(true).frame().to_vec();
        datagram(true).stamp(&mut sent, 77, 5);
        assert_eq!(datagram(true).read(&sent), Ok((77, false)));
    }
}
