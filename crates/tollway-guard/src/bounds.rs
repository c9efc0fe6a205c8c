//! The bounds on what a client or an upstream can make the proxy keep or wait for, except those that are settings.

use std::time::Duration;

/// The longest head of a request in bytes, and the most that is read ahead of what the other side takes.
pub(crate) const HEAD_MAX: u32 = 64 << 10;

/// The number of requests that a client may have in flight on one HTTP/2 connection.
pub(crate) const STREAMS_MAX: u32 = 128;

/// The number of requests that an HTTP/2 client may reset before they were accepted. More end the connection.
pub(crate) const PENDING_RESETS_MAX: usize = 32;

/// An HTTP/2 peer that was silent for this long is pinged.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(60);
/// An HTTP/2 peer must answer a ping within this time.
pub(crate) const PONG_MAX: Duration = Duration::from_secs(20);

/// TCP keep-alive probes start after this idle time. A host that vanished sends no FIN.
pub(crate) const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// The time between two TCP keep-alive probes.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The number of TCP keep-alive probes without an answer that end a connection.
pub(crate) const KEEPALIVE_PROBES: u32 = 4;

/// The rate below which a client is slow, in bytes per second. It counts only while all connections are in use.
pub(crate) const SLOW_RATE: u64 = 500;

/// The time that connecting to the upstream may take, TLS included.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The number of idle connections to the upstream that each worker keeps. More were in use at one moment only.
pub(crate) const IDLE_MAX: usize = 512;

/// The time that a client has to close a connection that the proxy is about to close.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The time that requests in flight have to end when the proxy stops.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);
