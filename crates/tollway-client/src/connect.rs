//! Opens the TCP connection of an async client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::ClientError;
use crate::error::no_address;

/// Connects to `address`, a host and a port. `timeout` is the time of the whole call, for errors.
pub(crate) async fn connect(
    address: &str,
    timeout: Duration,
    deadline: Instant,
) -> Result<TcpStream, ClientError> {
    let failed = |error| ClientError::connecting(address, timeout, error);
    let connected = timeout_at(deadline, async {
        // Apart from connecting: only so can an unknown name be told from a server that is not there.
        let found = lookup_host(address).await.map_err(|error| ClientError::lookup(address, error))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(ClientError::lookup(address, no_address()));
        }
        let stream = TcpStream::connect(&*found).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    });
    connected.await.unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into())))
}
