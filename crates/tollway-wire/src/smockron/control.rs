//! What the master tells gatekeepers: four frames, exactly, for that is what they understand.

use thiserror::Error;

use super::{millis, topic_domain};
use crate::zmtp;

/// From when on the next request of an identifier is welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMessage<'a> {
    /// Of which resource.
    pub domain: &'a [u8],
    /// Whose.
    pub identifier: &'a [u8],
    /// Not before this, in milliseconds since 1970.
    pub delay_until: u64,
}

/// Why a message tells a gatekeeper nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// Not four frames.
    #[error("a control message has four frames")]
    TooShort,
    /// Something else than `DELAY_UNTIL`.
    #[error("the command is not DELAY_UNTIL")]
    UnknownCommand,
    /// No number where a time is due.
    #[error("a time is a whole number of milliseconds since 1970")]
    InvalidTime,
}

const DELAY_UNTIL: &[u8] = b"DELAY_UNTIL";

impl<'a> ControlMessage<'a> {
    /// Reads a message. Further arguments, which a later master may send, mean nothing.
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

    /// Appends the message.
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
