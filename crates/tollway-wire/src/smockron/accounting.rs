//! The message that a gatekeeper sends to the master for each request: six frames.

use thiserror::Error;

use super::{millis, topic_domain};
use crate::zmtp;

/// Reports one request that a gatekeeper received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountingMessage<'a> {
    /// The domain that the request is counted in.
    pub domain: &'a [u8],
    /// The decision of the gatekeeper, with its times.
    pub status: AccountingStatus,
    /// The identifier of the client that sent the request.
    pub identifier: &'a [u8],
    /// Text that the gatekeeper adds for logs.
    pub log_info: &'a [u8],
}

/// The decision that a gatekeeper made about one request. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountingStatus {
    /// The request passed at once.
    Accepted {
        /// The time at which the request was received.
        received: u64,
    },
    /// The request had to wait.
    Delayed {
        /// The time at which the request was received.
        received: u64,
        /// The time at which the request passed.
        until: u64,
    },
    /// The request was rejected.
    Rejected {
        /// The time at which the request was received.
        received: u64,
    },
}

impl AccountingStatus {
    /// Returns the name that the protocol has for this status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted { .. } => "ACCEPTED",
            Self::Delayed { .. } => "DELAYED",
            Self::Rejected { .. } => "REJECTED",
        }
    }
}

/// An error that makes an accounting message unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccountingError {
    /// The message has fewer than five frames.
    #[error("an accounting message has {frames} frames; at least 5 are required")]
    TooShort {
        /// The number of frames that the message has.
        frames: usize,
    },
    /// The status is none of the three.
    #[error("an accounting message has an unknown status; use ACCEPTED, DELAYED or REJECTED")]
    UnknownStatus,
    /// A time is not a number.
    #[error("an accounting message has an invalid time; send milliseconds since 1970 in decimal digits")]
    InvalidTime,
}

impl<'a> AccountingMessage<'a> {
    /// Decodes a message. Frames after the sixth are ignored.
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

    /// Appends the encoded message.
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
