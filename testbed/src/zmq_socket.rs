//! A ZeroMQ peer for tests, which sends and receives exactly what the test says.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tollway_wire::zmtp::{self, SocketType, ZmtpEvent, ZmtpSession};

use crate::TEST_TIMEOUT;

const PING: &[u8] = b"\x04\x09\x04PING\0\0hi";
const PONG: &[u8] = b"\x04\x07\x04PONGhi";

/// A socket that has sent its handshake. After that it sends nothing by itself: not even a PONG.
#[derive(Debug)]
pub struct ZmqSocket {
    stream: TcpStream,
    session: ZmtpSession,
    inbox: Vec<u8>,
}

/// An event that is received from the other end, apart from its handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// The peer sent a message with these frames.
    Message(Vec<Vec<u8>>),
    /// The peer subscribed to this prefix.
    Subscription(Vec<u8>),
    /// The peer answered a ping.
    Pong,
    /// The peer closed the connection.
    End,
}

impl ZmqSocket {
    /// Connects to a listening peer.
    pub fn connect(address: SocketAddr, ours: SocketType) -> Self {
        Self::over(TcpStream::connect(address).expect("somebody who listens"), ours)
    }

    /// Waits for a peer to connect.
    pub fn accept(listener: &TcpListener, ours: SocketType) -> Self {
        Self::over(listener.accept().expect("somebody who connects").0, ours)
    }

    fn over(stream: TcpStream, ours: SocketType) -> Self {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout above zero");
        stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a timeout above zero");
        stream.set_nodelay(true).expect("TCP has it");
        let mut socket = Self { stream, session: ZmtpSession::new(ours), inbox: Vec::new() };
        socket.encoded(|bytes| zmtp::encode_handshake(ours, bytes));
        socket
    }

    /// Sends a message.
    pub fn send(&mut self, frames: &[&[u8]]) {
        self.encoded(|bytes| zmtp::encode(frames, bytes));
    }

    /// Subscribes to messages that start with `topic`.
    pub fn subscribe(&mut self, topic: &[u8]) {
        self.encoded(|bytes| zmtp::encode_subscription(topic, bytes));
    }

    /// Sends a PING, which the other end must answer.
    pub fn ping(&mut self) {
        self.write(PING);
    }

    /// Sends raw bytes, which need not be valid ZMTP.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the other end reads");
    }

    fn encoded(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.write(&bytes);
    }

    /// Waits for the next event.
    pub fn receive(&mut self) -> ReceivedEvent {
        loop {
            if let Some(came) = self.next_buffered() {
                return came;
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return ReceivedEvent::End,
                Ok(read) => self.inbox.extend_from_slice(&bytes[..read]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                    return ReceivedEvent::End;
                }
            }
        }
    }

    /// Returns the next event that has arrived as a whole, if there is one.
    fn next_buffered(&mut self) -> Option<ReceivedEvent> {
        while let Some((said, len)) = self.session.next(&self.inbox).expect("ZMTP of ours") {
            let came = match said {
                ZmtpEvent::Message(frames) => {
                    Some(ReceivedEvent::Message(frames.map(<[u8]>::to_vec).collect()))
                }
                ZmtpEvent::Subscribe(topic) => Some(ReceivedEvent::Subscription(topic.to_vec())),
                ZmtpEvent::Ignored => {
                    assert_eq!(self.inbox[..len], *PONG);
                    Some(ReceivedEvent::Pong)
                }
                _ => None,
            };
            self.inbox.drain(..len);
            if came.is_some() {
                return came;
            }
        }
        None
    }

    /// Returns all messages that the other end sends before it answers a ping.
    pub fn published(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.ping();
        let mut messages = Vec::new();
        loop {
            match self.receive() {
                ReceivedEvent::Message(message) => messages.push(message),
                ReceivedEvent::Pong => return messages,
                other => panic!("{other:?} after {messages:?}"),
            }
        }
    }
}
