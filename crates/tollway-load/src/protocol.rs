//! Defines what the generator needs of a protocol: one request, and how a reply is recognized.

pub(crate) mod http;
pub(crate) mod redis;
pub(crate) mod resp;
pub(crate) mod text;
pub(crate) mod throttr;

use std::ops::Range;

use crate::template::{Template, differing};

/// A protocol whose requests all have one size. Replies come in order over TCP, and one per datagram over UDP.
pub trait Protocol {
    /// The name of the protocol in error messages: "the reply of ADDRESS is not NAME".
    const NAME: &'static str;
    /// The command that starts a server of this protocol.
    const START: &'static str = "tollway serve";
    /// The transport of the protocol.
    const TRANSPORT: Transport = Transport::Tcp;
    /// The count of different request numbers, after which they start again at 0. A protocol without numbers has one.
    const NUMBERS: u64 = 1;

    /// Returns the request of which all others are copies.
    fn template(&self) -> &Template;

    /// Returns what a new connection sends first, and the reply that must follow before any request is sent.
    fn greeting(&self) -> Option<(&[u8], &[u8])> {
        None
    }

    /// Writes the number of a request, modulo [`NUMBERS`](Self::NUMBERS), into its frame.
    #[inline]
    fn write_number(&self, _frame: &mut [u8], _number: u64) {}

    /// Returns the number in the frame of a request.
    #[inline]
    fn read_number(&self, _frame: &[u8]) -> u64 {
        0
    }

    /// Returns the reply at the front of `received`, or `None` until all of it has arrived.
    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply>;
}

/// The transport that carries a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Connections; replies come in the order of the requests.
    Tcp,
    /// Datagrams; replies may be lost, late, doubled or out of order, and are matched by their numbers.
    Udp,
}

/// One reply, as a protocol reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The length in bytes.
    pub len: usize,
    /// The number of the request that it answers; 0 in a protocol without numbers.
    pub number: u64,
    /// The answer of the server.
    pub kind: ReplyKind<'a>,
}

/// The answer that a reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind<'a> {
    /// The request is allowed or done.
    Allowed,
    /// The request is denied, or not done.
    Denied,
    /// There was no decision.
    Error {
        /// The status code, if the protocol has one.
        status: Option<u16>,
        /// The message of the server.
        text: &'a [u8],
    },
}

/// Bytes that are not a reply of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAReply;

/// The requests of another protocol, for a server that sends back what it receives.
#[derive(Debug)]
pub struct Echo<P> {
    protocol: P,
    /// Bytes that are the same in all requests: they tell an echo from a reply.
    fixed: Range<usize>,
}

impl<P: Protocol> Echo<P> {
    /// Expects the requests of `protocol` back.
    pub fn new(protocol: P) -> Self {
        let template = protocol.template();
        let [mut first, mut last] = [0, P::NUMBERS - 1].map(|_| template.frame().to_vec());
        protocol.write_number(&mut first, 0);
        protocol.write_number(&mut last, P::NUMBERS - 1);
        let number = differing(&first, &last);
        let fixed = if number.start > 0 { 0..number.start } else { number.end..template.key().start };
        Self { protocol, fixed }
    }
}

impl<P: Protocol> Protocol for Echo<P> {
    const NAME: &'static str = "an echo";
    const START: &'static str = "tollway bench echo";
    const TRANSPORT: Transport = P::TRANSPORT;
    const NUMBERS: u64 = P::NUMBERS;

    fn template(&self) -> &Template {
        self.protocol.template()
    }

    #[inline]
    fn write_number(&self, frame: &mut [u8], number: u64) {
        self.protocol.write_number(frame, number);
    }

    #[inline]
    fn read_number(&self, frame: &[u8]) -> u64 {
        self.protocol.read_number(frame)
    }

    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        let frame = self.template().frame();
        let arrived = self.fixed.start.min(received.len())..self.fixed.end.min(received.len());
        if received[arrived.clone()] != frame[arrived] {
            return Err(NotAReply);
        }
        let Some(echo) = received.get(..frame.len()) else { return Ok(None) };
        Ok(Some(Reply { len: echo.len(), number: self.read_number(echo), kind: ReplyKind::Allowed }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads all `replies`. Checks that a reply that is cut anywhere is incomplete, and not an error.
    pub(crate) fn read_all<'a>(protocol: &impl Protocol, mut replies: &'a [u8]) -> Vec<(u64, ReplyKind<'a>)> {
        let mut read = Vec::new();
        while !replies.is_empty() {
            let reply = protocol.reply(replies).unwrap().unwrap();
            for cut in 0..reply.len {
                assert_eq!(protocol.reply(&replies[..cut]), Ok(None), "cut at {cut}");
            }
            assert_eq!(protocol.reply(&replies[..reply.len]), Ok(Some(reply)));
            read.push((reply.number, reply.kind));
            replies = &replies[reply.len..];
        }
        read
    }

    /// Returns the request with this number and key.
    pub(crate) fn request(protocol: &impl Protocol, number: u64, key: u64) -> Vec<u8> {
        let mut frame = protocol.template().frame().to_vec();
        protocol.template().write_key(&mut frame, key);
        protocol.write_number(&mut frame, number);
        frame
    }
}
