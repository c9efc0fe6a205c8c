//! Many connections to one server, to see what they cost it and those who are served.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};

/// Connections that are held open.
pub struct Crowd {
    streams: Vec<TcpStream>,
    gathered: Instant,
}

impl Crowd {
    /// Opens `size` connections, each of which sends `bytes`.
    pub fn gather(address: SocketAddr, size: usize, bytes: &[u8]) -> io::Result<Self> {
        allow_files(size)?;
        let connect = |_| {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(bytes)?;
            Ok(stream)
        };
        let streams = (0..size).map(connect).collect::<io::Result<_>>()?;
        Ok(Self { streams, gathered: Instant::now() })
    }

    /// Reads an answer of `size` bytes on every connection.
    pub fn hear(&mut self, size: usize) -> io::Result<()> {
        let mut answer = vec![0; size];
        self.streams.iter_mut().try_for_each(|stream| stream.read_exact(&mut answer))
    }

    /// Waits until the server has closed all connections, and says how long after they had gathered that was. At most
    /// `patience`.
    pub fn gone_after(&mut self, patience: Duration) -> io::Result<Duration> {
        for stream in &mut self.streams {
            let left = patience.saturating_sub(self.gathered.elapsed()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut [0; 64]) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                Ok(_) => return Err(io::Error::other("half a frame was answered")),
                Err(error) => return Err(error),
            }
        }
        Ok(self.gathered.elapsed())
    }
}

/// As many open files as a crowd needs, and some.
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
