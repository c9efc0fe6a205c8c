//! A connection over HTTP/2 whose frames are written and read one by one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tollway_testbed::TEST_TIMEOUT;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GOAWAY: u8 = 7;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection whose frames are written and read one by one.
pub(crate) struct RawConnection(TcpStream);

impl RawConnection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut connection = Self(stream);
        connection.write(SETTINGS, 0, 0, b"");
        connection
    }

    pub(crate) fn write(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&[0, high, low, kind, flags, 0, 0, 0, stream], payload].concat()).unwrap();
    }

    /// Writes the headers of a call, and others. Each is a literal that no table has.
    pub(crate) fn begin(&mut self, stream: u8, path: &str, others: &[(&str, &str)]) {
        let mut block = Vec::new();
        let headers =
            [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc")];
        for (name, value) in headers.iter().chain(others) {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        self.write(HEADERS, END_HEADERS, stream, &block);
    }

    /// Returns the type, the flags and the payload of the next frame, or `None` at the end.
    pub(crate) fn read(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
            read => read.unwrap(),
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        self.0.read_exact(&mut payload).unwrap();
        Some((head[3], head[4], payload))
    }

    /// Waits until the server has read what was written, and drops the frames that it sends until then.
    pub(crate) fn ping(&mut self) {
        self.write(PING, 0, 0, &[0; 8]);
        let mut frames = std::iter::from_fn(|| self.read());
        assert!(frames.any(|(kind, flags, _)| (kind, flags) == (PING, ACK)));
    }
}
