//! The other side of ZeroMQ, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tollgate_wire::zmtp::{Conversation, Said, SocketType, encode, encode_opening, encode_subscription};

use super::{Harness, PATIENCE};

/// A socket that has connected and said what it is.
pub struct ZeroMq {
    pub stream: TcpStream,
    conversation: Conversation,
    inbox: Vec<u8>,
}

/// What comes from the other side.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    Message(Vec<Vec<u8>>),
    Pong,
    End,
}

impl ZeroMq {
    /// A gatekeeper's way to say something.
    pub fn publisher(gate: &Harness) -> Self {
        Self::connect(gate.server.smockron_addr().unwrap(), SocketType::Pub)
    }

    /// A gatekeeper's way to hear something: all of these topics, as soon as this returns.
    pub fn subscriber(gate: &Harness, topics: &[&[u8]]) -> Self {
        let mut subscriber = Self::connect(gate.server.smockron_control_addr().unwrap(), SocketType::Sub);
        topics.iter().for_each(|topic| subscriber.subscribe(topic));
        subscriber.ping();
        assert_eq!(subscriber.next(), Came::Pong);
        subscriber
    }

    pub fn connect(address: SocketAddr, ours: SocketType) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Self { stream, conversation: Conversation::new(ours), inbox: Vec::new() };
        let mut opening = Vec::new();
        encode_opening(ours, &mut opening);
        peer.write(&opening);
        peer
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn send(&mut self, frames: &[&[u8]]) {
        let mut bytes = Vec::new();
        encode(frames, &mut bytes);
        self.write(&bytes);
    }

    pub fn subscribe(&mut self, topic: &[u8]) {
        let mut bytes = Vec::new();
        encode_subscription(topic, &mut bytes);
        self.write(&bytes);
    }

    pub fn ping(&mut self) {
        self.write(b"\x04\x09\x04PING\0\0hi");
    }

    /// The next thing that is of interest.
    pub fn next(&mut self) -> Came {
        loop {
            while let Some((said, len)) = self.conversation.next(&self.inbox).unwrap() {
                let came = match said {
                    Said::Message(frames) => Some(Came::Message(frames.map(<[u8]>::to_vec).collect())),
                    Said::Aside => Some(Came::Pong),
                    _ => None,
                };
                self.inbox.drain(..len);
                if let Some(came) = came {
                    return came;
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Came::End,
                Ok(read) => self.inbox.extend_from_slice(&bytes[..read]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                    return Came::End;
                }
            }
        }
    }

    /// All messages that were published before this was asked.
    pub fn published(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.ping();
        let mut messages = Vec::new();
        loop {
            match self.next() {
                Came::Message(message) => messages.push(message),
                Came::Pong => return messages,
                Came::End => panic!("hung up after {messages:?}"),
            }
        }
    }
}

impl Harness {
    /// Waits until so many accounting messages were dealt with, good and bad, since the start.
    pub fn accounted(&self, messages: u64) {
        let names = ["tollgate_smockron_requests_total{", "tollgate_smockron_malformed_total{"];
        loop {
            let page = self.get("/metrics").body;
            let count: u64 = names.iter().map(|name| total(&page, name)).sum();
            assert!(count <= messages, "{count} of {messages}");
            if count == messages {
                return;
            }
        }
    }
}

/// The sum of all samples whose lines begin so.
pub fn total(page: &str, name: &str) -> u64 {
    let values = page.lines().filter(|line| line.starts_with(name));
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}
