//! What a gatekeeper tells the master: six frames.

use thiserror::Error;

use super::{millis, topic_domain};
use crate::zmtp;

/// One request that came to a gatekeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountingMessage<'a> {
    /// Which resource it was for.
    pub domain: &'a [u8],
    /// What became of it.
    pub status: AccountingStatus,
    /// Whose it was.
    pub identifier: &'a [u8],
    /// Whatever the gatekeeper wants to see in a log.
    pub log_info: &'a [u8],
}

/// What became of a request, and when. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountingStatus {
    /// It passed at once.
    Accepted {
        /// When it came.
        received: u64,
    },
    /// It had to wait.
    Delayed {
        /// When it came.
        received: u64,
        /// When it passed.
        until: u64,
    },
    /// It was turned away.
    Rejected {
        /// When it came.
        received: u64,
    },
}

impl AccountingStatus {
    /// As the protocol spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted { .. } => "ACCEPTED",
            Self::Delayed { .. } => "DELAYED",
            Self::Rejected { .. } => "REJECTED",
        }
    }
}

/// Why a message is no accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccountingError {
    /// Fewer than five frames.
    #[error("an accounting message has at least five frames, not {frames}")]
    TooShort {
        /// How many there are.
        frames: usize,
    },
    /// None of the three.
    #[error("a status is ACCEPTED, DELAYED or REJECTED")]
    UnknownStatus,
    /// No number where a time is due.
    #[error("a time is a whole number of milliseconds since 1970")]
    InvalidTime,
}

impl<'a> AccountingMessage<'a> {
    /// Reads a message. Frames after the sixth mean nothing.
    pub fn decode(frames: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, AccountingError> {
        let mut fields = [&b""[..]; 6];
        let present = fields.iter_mut().zip(frames).map(|(field, frame)| *field = frame).count();
        if present < 5 {
            return Err(AccountingError::TooShort { frames: present });
        }
        let [topic, status, identifier, received, delayed, log_info] = fields;
        let millis = |frame: &[u8]| millis::parse(frame).ok_or(AccountingError::InvalidTime);
        let status = match status {
            b"ACCEPTED" => AccountingStatus::Accepted { received: millis(received)? },
            b"DELAYED" => AccountingStatus::Delayed { received: millis(received)?, until: millis(delayed)? },
            b"REJECTED" => AccountingStatus::Rejected { received: millis(received)? },
            _ => return Err(AccountingError::UnknownStatus),
        };
        Ok(Self { domain: topic_domain(topic), status, identifier, log_info })
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (received, until) = match self.status {
            AccountingStatus::Accepted { received } | AccountingStatus::Rejected { received } => {
                (received, None)
            }
            AccountingStatus::Delayed { received, until } => (received, Some(until)),
        };
        let (mut digits, mut more_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        let topic = [self.domain, b"\0"].concat();
        let frames = [
            &*topic,
            self.status.name().as_bytes(),
            self.identifier,
            digits.format(received).as_bytes(),
            until.map_or(&b""[..], |until| more_digits.format(until).as_bytes()),
            self.log_info,
        ];
        zmtp::encode(&frames, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode<'a>(frames: &[&'a str]) -> Result<AccountingMessage<'a>, AccountingError> {
        AccountingMessage::decode(frames.iter().map(|frame| frame.as_bytes()))
    }

    #[test]
    fn messages_are_those_of_the_protocol() {
        let accepted = decode(&["default\0", "ACCEPTED", "10.0.0.1", "3000", ""]).unwrap();
        assert_eq!(accepted.domain, b"default");
        assert_eq!(accepted.identifier, b"10.0.0.1");
        assert_eq!(accepted.status, AccountingStatus::Accepted { received: 3_000 });
        let delayed = decode(&["a", "DELAYED", "", "3000.9", "4000", "info", "more", "and more"]).unwrap();
        assert_eq!(delayed.status, AccountingStatus::Delayed { received: 3_000, until: 4_000 });
        assert_eq!((delayed.domain, delayed.log_info), (&b"a"[..], &b"info"[..]));
        let rejected = decode(&["a\0\0", "REJECTED", "x", "1", "whatever"]).unwrap();
        assert_eq!(
            (rejected.domain, rejected.status),
            (&b"a\0"[..], AccountingStatus::Rejected { received: 1 })
        );
    }

    #[test]
    fn what_is_no_accounting_says_why() {
        use AccountingError::{InvalidTime, TooShort, UnknownStatus};
        for (frames, expected) in [
            (&[][..], TooShort { frames: 0 }),
            (&["a", "ACCEPTED", "x", "1"], TooShort { frames: 4 }),
            (&["a", "accepted", "x", "1", ""], UnknownStatus),
            (&["a", "", "x", "1", ""], UnknownStatus),
            (&["a", "ACCEPTED", "x", "", ""], InvalidTime),
            (&["a", "ACCEPTED", "x", "NaN", ""], InvalidTime),
            (&["a", "REJECTED", "x", "-1", ""], InvalidTime),
            (&["a", "DELAYED", "x", "1", ""], InvalidTime),
            (&["a", "DELAYED", "x", "", "1"], InvalidTime),
        ] {
            assert_eq!(decode(frames), Err(expected), "{frames:?}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for status in [
            AccountingStatus::Accepted { received: 0 },
            AccountingStatus::Delayed { received: 1, until: 1_700_000_000_000 },
            AccountingStatus::Rejected { received: 7 },
        ] {
            let sent = AccountingMessage { domain: b"d", status, identifier: b"\xff\0", log_info: b"info" };
            let mut bytes = Vec::new();
            sent.encode(&mut bytes);
            let mut session = zmtp::ZmtpSession::new(zmtp::SocketType::Sub);
            let mut handshake = Vec::new();
            zmtp::encode_handshake(zmtp::SocketType::Pub, &mut handshake);
            let (_, greeting) = session.next(&handshake).unwrap().unwrap();
            session.next(&handshake[greeting..]).unwrap().unwrap();
            let Some((zmtp::ZmtpEvent::Message(frames), len)) = session.next(&bytes).unwrap() else {
                panic!("no message");
            };
            assert_eq!((AccountingMessage::decode(frames), len), (Ok(sent), bytes.len()));
        }
    }
}
