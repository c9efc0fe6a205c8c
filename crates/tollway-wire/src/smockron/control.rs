//! The message that the master sends to gatekeepers: four frames. Existing gatekeepers accept exactly four.

use thiserror::Error;

use super::{millis, topic_domain};
use crate::zmtp;

/// Tells gatekeepers to delay the requests of one identifier until a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMessage<'a> {
    /// The domain that the delay applies to.
    pub domain: &'a [u8],
    /// The identifier that is delayed.
    pub identifier: &'a [u8],
    /// The time before which no further request passes, in milliseconds since 1970.
    pub delay_until: u64,
}

/// An error that makes a control message unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The message has fewer than four frames.
    #[error("a control message has fewer than four frames")]
    TooShort,
    /// The command is not `DELAY_UNTIL`.
    #[error("a control message has an unknown command; only DELAY_UNTIL is defined")]
    UnknownCommand,
    /// The time is not a number.
    #[error("a control message has an invalid time; send milliseconds since 1970 in decimal digits")]
    InvalidTime,
}

const DELAY_UNTIL: &[u8] = b"DELAY_UNTIL";

impl<'a> ControlMessage<'a> {
    /// Decodes a message. Further frames are ignored: a later master may send them.
    pub fn decode(frames: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, ControlError> {
        let mut fields = [&b""[..]; 4];
        if fields.iter_mut().zip(frames).map(|(field, frame)| *field = frame).count() < 4 {
            return Err(ControlError::TooShort);
        }
        let [topic, command, identifier, time] = fields;
        if command != DELAY_UNTIL {
            return Err(ControlError::UnknownCommand);
        }
        let delay_until = millis::parse(time).ok_or(ControlError::InvalidTime)?;
        Ok(Self { domain: topic_domain(topic), identifier, delay_until })
    }

    /// Appends the encoded message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let topic = [self.domain, b"\0"].concat();
        let mut digits = itoa::Buffer::new();
        let time = digits.format(self.delay_until).as_bytes();
        zmtp::encode(&[&topic, DELAY_UNTIL, self.identifier, time], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_four_frames() {
        let control = ControlMessage { domain: b"default", identifier: b"10.0.0.1", delay_until: 4_000 };
        let mut bytes = Vec::new();
        control.encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x08default\0\x01\x0bDELAY_UNTIL\x01\x0810.0.0.1\0\x044000");
    }

    #[test]
    fn what_is_no_control_says_why() {
        use ControlError::{InvalidTime, TooShort, UnknownCommand};
        for (frames, expected) in [
            (&["d\0", "DELAY_UNTIL", "x"][..], Err(TooShort)),
            (&["d\0", "DELAY_FOR", "x", "1"], Err(UnknownCommand)),
            (&["d\0", "DELAY_UNTIL", "x", "soon"], Err(InvalidTime)),
            (&["d\0", "DELAY_UNTIL", "x", "1", "more"], Ok(1)),
            (&["d", "DELAY_UNTIL", "x", "1.5"], Ok(1)),
        ] {
            let control = ControlMessage::decode(frames.iter().map(|frame| frame.as_bytes()));
            assert_eq!(control.map(|control| control.delay_until), expected, "{frames:?}");
        }
    }
}
