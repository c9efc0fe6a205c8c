//! Opens many connections to one server, to measure what they cost.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

/// Connections that are held open.
pub struct OpenConnections {
    streams: Vec<TcpStream>,
    opened: Instant,
}

impl OpenConnections {
    /// Opens `size` connections, each of which sends `bytes`.
    pub fn open(address: SocketAddr, size: usize, bytes: &[u8]) -> io::Result<Self> {
        allow_files(size)?;
        let connect = |_| {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(bytes)?;
            Ok(stream)
        };
        let streams = (0..size).map(connect).collect::<io::Result<_>>()?;
        Ok(Self { streams, opened: Instant::now() })
    }

    /// Reads an answer of `size` bytes on every connection.
    pub fn read_replies(&mut self, size: usize) -> io::Result<()> {
        let mut answer = vec![0; size];
        self.streams.iter_mut().try_for_each(|stream| stream.read_exact(&mut answer))
    }

    /// Waits until the server has closed all connections, and returns the time since they were opened. It fails after
    /// `timeout`.
    pub fn wait_until_closed(&mut self, timeout: Duration) -> io::Result<Duration> {
        for stream in &mut self.streams {
            let left = timeout.saturating_sub(self.opened.elapsed()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut [0; 64]) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                Ok(_) => return Err(io::Error::other("half a frame was answered")),
                Err(error) => return Err(error),
            }
        }
        Ok(self.opened.elapsed())
    }
}

/// Raises the limit of open files, so that this many connections fit.
fn allow_files(files: usize) -> io::Result<()> {
    let wanted = files as u64 + 256;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        limit.maximum = limit.maximum.map(|maximum| maximum.max(wanted));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}
