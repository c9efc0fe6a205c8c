//! Sends HTTP requests in batches over one connection, to fill a server and to check what it answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time within which an answer must come.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is kept alive.
pub struct HttpConnection {
    stream: TcpStream,
    /// The bytes that were read and belong to answers that are not counted yet.
    unread: Vec<u8>,
}

impl HttpConnection {
    /// Connects to a server.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Sends these requests together, and returns the status of each answer. Bodies are skipped; none of them may have
    /// `HTTP/1.1 ` in it.
    pub fn ask(&mut self, requests: &[String]) -> io::Result<Vec<u16>> {
        self.stream.write_all(requests.concat().as_bytes())?;
        let mut statuses = Vec::new();
        while statuses.len() < requests.len() {
            let mut read = [0; 16 << 10];
            let size = self.stream.read(&mut read)?;
            if size == 0 {
                return Err(io::Error::other(format!("the connection ended after {statuses:?}")));
            }
            self.unread.extend_from_slice(&read[..size]);
            self.take_statuses(&mut statuses);
        }
        Ok(statuses)
    }

    /// Takes every complete status line from the front of what was read, with all before it.
    fn take_statuses(&mut self, statuses: &mut Vec<u16>) {
        const START: &[u8] = b"HTTP/1.1 ";
        const LINE: usize = START.len() + "200".len();
        let mut rest = self.unread.as_slice();
        while let Some(at) = rest.windows(LINE).position(|window| window.starts_with(START)) {
            let digits = &rest[at + START.len()..at + LINE];
            statuses
                .push(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0));
            rest = &rest[at + LINE..];
        }
        let kept = rest.len().min(LINE - 1);
        self.unread = rest[rest.len() - kept..].to_vec();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn every_answer_has_its_status() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 6]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 42").unwrap();
            stream.write_all(b"9 Too Many Requests\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let requests = ["one".to_owned(), "two".to_owned()];
        assert_eq!(HttpConnection::open(address).unwrap().ask(&requests).unwrap(), [200, 429]);
        server.join().unwrap();
    }
}
