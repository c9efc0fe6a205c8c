//! One end of a ZeroMQ connection, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tollway_wire::zmtp::{self, SocketType, ZmtpEvent, ZmtpSession};

use crate::TEST_TIMEOUT;

const PING: &[u8] = b"\x04\x09\x04PING\0\0hi";
const PONG: &[u8] = b"\x04\x07\x04PONGhi";

/// A socket that has greeted and said what it is. It says and hears exactly what the test wants, and nothing by itself.
#[derive(Debug)]
pub struct ZmqSocket {
    stream: TcpStream,
    session: ZmtpSession,
    inbox: Vec<u8>,
}

/// What comes from the other end, its greeting aside.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// A message, frame by frame.
    Message(Vec<Vec<u8>>),
    /// A subscription to what starts like this.
    Subscription(Vec<u8>),
    /// The answer to a ping.
    Pong,
    /// It hung up.
    End,
}

impl ZmqSocket {
    /// Connects to somebody who listens.
    pub fn connect(address: SocketAddr, ours: SocketType) -> Self {
        Self::over(TcpStream::connect(address).expect("somebody who listens"), ours)
    }

    /// Waits for somebody to connect.
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

    /// Subscribes to what starts like this.
    pub fn subscribe(&mut self, topic: &[u8]) {
        self.encoded(|bytes| zmtp::encode_subscription(topic, bytes));
    }

    /// Asks whether the other end is there.
    pub fn ping(&mut self) {
        self.write(PING);
    }

    /// Sends what may be anything.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the other end reads");
    }

    fn encoded(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.write(&bytes);
    }

    /// The next thing that is of interest.
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

    /// Takes off the inbox until something is of interest, or no more of it is whole.
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

    /// All messages that the other end has sent before it is asked now.
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
