//! Throttr: binary requests, numbered, and replies in the same order.

use anyhow::Context;
use clap::{Args, ValueEnum};
use tollway::core::Nanos;
use tollway::core::algorithm::{QuotaTtl, TtlUnit};
use tollway_wire::throttr::{IdTooLong, ThrottrCommand, ThrottrReply, decode_reply, encode_request};

use super::course::Stop;
use super::interrupt::Interrupt;
use super::keys::{Draw, KeyFormat};
use super::load::Load;
use super::protocol::{Foreign, Protocol};
use super::tally::Tally;
use super::template::{Template, differing};
use crate::command::Outcome;

/// What each consumer is asked about.
const RESOURCE: &[u8] = b"r";
/// More than any run takes, for longer than it lasts.
const QUOTA: u64 = 1 << 62;
const LIFETIME: QuotaTtl = QuotaTtl { value: 86_400, unit: TtlUnit(2) };
/// How many inserts leave at once before a run.
const INSERTS: u16 = 256;

/// Load-test the Throttr gate with the quotas of many consumers
///
/// Before the run, every key is inserted once with a quota large enough for the run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench throttr --pipeline 64 --keys 1000000 --duration 10s
  tollway bench throttr --command query --rate 100000 --pipeline 16
  tollway bench throttr --addr 127.0.0.1:9001 --echo --pipeline 64")]
pub(crate) struct Throttr {
    #[command(flatten)]
    load: Load,
    /// The request to send
    #[arg(long, value_enum, default_value_t = Ask::Update)]
    command: Ask,
    /// Skip the inserts before the run, because the keys exist already
    #[arg(long)]
    no_insert: bool,
    /// The consumer of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ask {
    /// Take 1 from the quota
    Update,
    /// Query the quota
    Query,
    /// Insert the quota
    Insert,
}

impl Throttr {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let frames = Frames::new(self.command.into(), &self.key_format, self.load.keys)?;
        if !self.load.echo && !self.no_insert && self.command != Ask::Insert && !self.insert_all()? {
            return Ok(Outcome::Yes);
        }
        self.load.run("throttr", DEFAULT_ADDR, frames)
    }

    /// Inserts every key once. A key that is there stays as it is. Was it not interrupted?
    fn insert_all(&self) -> anyhow::Result<bool> {
        let load = Load {
            pipeline: INSERTS,
            requests: Some(self.load.keys),
            warmup: Nanos::ZERO,
            rate: None,
            ..self.load.clone()
        };
        let frames = Frames::new(Ask::Insert.into(), &self.key_format, load.keys)?;
        let addr = load.addr(DEFAULT_ADDR)?;
        let (course, _) = load.stream(addr, frames, Draw::in_turn(load.keys), &Interrupt::catch()?)?;
        match course.into_stopped() {
            None => Ok(true),
            Some(Stop::Interrupted) => Ok(false),
            Some(stop) => Err(stop.into_error(addr)).context("cannot insert the keys"),
        }
    }
}

const DEFAULT_ADDR: &str = "127.0.0.1:9000";

impl From<Ask> for ThrottrCommand {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Update => {
                Self::Update { attribute: Self::ATTRIBUTE_QUOTA, change: Self::CHANGE_DECREASE, value: 1 }
            }
            Ask::Query => Self::Query,
            Ask::Insert => Self::Insert { quota: QUOTA, lifetime: LIFETIME },
        }
    }
}

struct Frames {
    template: Template,
    /// Where the number of a request stands in it.
    number_at: usize,
    queries: bool,
}

impl Frames {
    fn new(command: ThrottrCommand, key_format: &KeyFormat, keys: u64) -> Result<Self, IdTooLong> {
        let encode = |number: u32, digits: &str| {
            let mut frame = Vec::new();
            encode_request(number, &command, key_format.with(digits).as_bytes(), RESOURCE, &mut frame)?;
            Ok(frame)
        };
        let number_at = differing(&encode(0, "")?, &encode(u32::MAX, "")?).start;
        let template = Template::new(keys, |digits| encode(0, digits))?;
        let queries = command == ThrottrCommand::Query;
        Ok(Self { template, number_at, queries })
    }
}

impl Protocol for Frames {
    const REPLIES: &'static str = "the Throttr protocol";

    fn template(&self) -> &Template {
        &self.template
    }

    #[inline]
    fn number(&self, frame: &mut [u8], number: u32) {
        frame[self.number_at..][..4].copy_from_slice(&number.to_le_bytes());
    }

    #[inline]
    fn scan(&self, inbox: &[u8], first: u32, most: u64, tally: &mut Tally) -> Result<usize, Foreign> {
        let (mut used, mut number) = (0, first);
        for _ in 0..most {
            let reply = decode_reply(&inbox[used..], self.queries).map_err(|_| Foreign)?;
            let Some((id, reply, len)) = reply else { break };
            if id != number {
                return Err(Foreign);
            }
            tally.denied += u64::from(reply == ThrottrReply::Status(false));
            tally.replies += 1;
            used += len;
            number = number.wrapping_add(1);
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::throttr::{decode, encode};

    use super::super::protocol::Echo;
    use super::super::protocol::tests::{refuses, scan_at_every_cut};
    use super::*;

    const ASKS: [Ask; 3] = [Ask::Update, Ask::Query, Ask::Insert];

    fn frames(ask: Ask) -> Frames {
        Frames::new(ask.into(), &"k{}".parse().unwrap(), 1_000_000).unwrap()
    }

    #[test]
    fn a_stamped_frame_is_what_the_codec_makes_and_reads() {
        for ask in ASKS {
            let frames = frames(ask);
            for (number, key) in [(0, 0), (1, 7), (u32::MAX, 999_999), (0x0102_0304, 120_034)] {
                let mut frame = frames.template().repeated(1);
                frames.template().stamp(&mut frame, key);
                frames.number(&mut frame, number);
                let mut encoded = Vec::new();
                let consumer = format!("k{key:06}");
                encode_request(number, &ask.into(), consumer.as_bytes(), b"r", &mut encoded).unwrap();
                assert_eq!(frame, encoded, "{ask:?} {number} {key}");
                let (request, len) = decode(&frame).unwrap().unwrap();
                assert_eq!(
                    (request.id, request.key.consumer(), len),
                    (number, consumer.as_bytes(), frame.len())
                );
            }
        }
        assert_eq!(frames(Ask::Update).template().frame().len(), 25);
    }

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        for ask in ASKS {
            let mut replies = Vec::new();
            for (id, done) in [(u32::MAX, true), (0, false), (1, true), (2, true)] {
                let reply = match (done, ask) {
                    (true, Ask::Query) => ThrottrReply::Quota { left: 9, lifetime: LIFETIME },
                    _ => ThrottrReply::Status(done),
                };
                encode(id, &reply, &mut replies);
            }
            let tally = scan_at_every_cut(&frames(ask), &replies, u32::MAX, 4);
            assert_eq!((tally.replies, tally.denied), (4, 1), "{ask:?}");
        }
    }

    #[test]
    fn what_is_no_reply_is_told() {
        for ask in ASKS {
            // Not the number awaited; no status there is; another protocol.
            for foreign in [
                &b"\x01\0\0\0\x01 and as much as a query gets"[..],
                b"\0\0\0\0\x02",
                b"HTTP/1.1 400 Bad Request",
            ] {
                refuses(&frames(ask), foreign);
            }
        }
    }

    #[test]
    fn an_echo_is_counted_by_its_bytes() {
        let echo = Echo(frames(Ask::Update));
        let tally = scan_at_every_cut(&echo, &echo.template().repeated(5), 3, 5);
        assert_eq!((tally.replies, tally.denied), (5, 0));
        refuses(&echo, b"\0\0\0\0\x01");
    }

    #[test]
    fn a_key_that_fits_no_frame_is_refused() {
        let long: KeyFormat = format!("{}{{}}", "k".repeat(250)).parse().unwrap();
        assert!(Frames::new(ThrottrCommand::Query, &long, 1_000_000).is_err());
    }
}
