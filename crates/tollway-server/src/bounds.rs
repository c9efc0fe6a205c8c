//! Names the bound of everything that grows, and of everything that is waited for.

use std::time::Duration;

use tollway::reports::KnownDelays;

/// The time between two log lines of one kind, if clients can cause them.
pub(crate) const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The bounds that one process has for all clients together, and for each. Those of connections are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The number of connections above the limit of the HTTP gate, and of the admin gate. They are answered only for
    /// health and metrics.
    pub reserved: usize,
    /// The bytes that a request line and its headers may have. Proxies that ask us pass on the cookies of browsers.
    pub head: usize,
    /// The bytes that a body may have. A bill of the most charges with ids of a kilobyte fits.
    pub body: usize,
    /// The bytes of answers that are collected before they are sent, if a client sends many requests at once.
    pub outbox: usize,
    /// The time for which a connection may be idle. It is longer than the minute after which most clients close theirs.
    pub idle: Duration,
    /// The time that a head may take to arrive, counted from its first byte.
    pub head_time: Duration,
    /// The time that a body may take to arrive, counted from the end of its head.
    pub body_time: Duration,
    /// The time that the rest of a Throttr request, of a RESP command, of a ZeroMQ message or of a ZeroMQ handshake may
    /// take to arrive.
    pub frame_time: Duration,
    /// The number of TLS handshakes that one gate may have in progress.
    pub tls_handshakes: usize,
    /// The number of TLS handshakes that one address may have in progress at one gate, unless it is loopback.
    pub tls_handshakes_per_address: usize,
    /// The time that a TLS handshake may take.
    pub tls_handshake_time: Duration,
    /// The number of calls that one gRPC connection may have in flight: as many as Envoy sends to a service by default.
    /// It sends them before it has read our bound, and takes a call that is refused for a failure.
    pub rls_streams: u32,
    /// The number of decisions that one gRPC connection may wait for, with those of calls that it has reset.
    pub rls_decisions: usize,
    /// The number of calls for health and reflection that one gRPC connection may have whose answers have not ended.
    pub rls_other_calls: usize,
    /// The bytes that the headers of a call over gRPC may have. Few bytes can stand for many on the wire, and all calls
    /// of a connection together can have this many each.
    pub rls_head: usize,
    /// The bytes that a message over gRPC may have.
    pub rls_message: usize,
    /// The bytes of all messages that may wait to be read from one gRPC connection.
    pub rls_window: u32,
    /// The number of signed datagrams that the text gate remembers, so that none is answered twice. What comes when as
    /// many are remembered gets no reply.
    pub signed_datagrams: usize,
    /// The number of clients that may watch `/v1/live` at once, unless that is more than half of the connections of
    /// their gate: they are never closed for others, so they would fill it.
    pub watchers: usize,
    /// The number of clients that may record at once, unless that is more than a quarter of those connections.
    pub recorders: usize,
    /// The bytes that the commands between `MULTI` and `EXEC` may have: some ten thousand of them fit.
    pub transaction: usize,
    /// The bytes of reports that may wait to be recorded on each worker. Those above it are dropped.
    pub accounting: usize,
    /// The number of topics that one gatekeeper may subscribe to.
    pub topics: usize,
    /// The bytes that a topic may have: the longest name of a domain fits, with its NUL.
    pub topic: usize,
    /// The bytes of messages that may wait for one subscriber. One that does not read loses those above it.
    pub queue: usize,
    /// The bytes of messages that may wait for all subscribers together.
    pub queues: usize,
    /// The bytes of delays that are kept for gatekeepers that reconnect: some hundred thousand delays fit.
    pub delays: usize,
    /// The time that a client may take to receive its answers.
    pub write_time: Duration,
    /// The time that a refused client may take to read the refusal.
    pub linger: Duration,
    /// The time for which an idle connection is still read when a drain begins: a request may be on its way.
    pub drain_idle: Duration,
    /// The time that a drain may take. Connections that are left then are closed.
    pub drain: Duration,
    /// The time after which a task that panicked is started again.
    pub restart_pause: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            reserved: 32,
            head: 16 << 10,
            body: 64 << 10,
            outbox: 64 << 10,
            idle: Duration::from_secs(75),
            head_time: Duration::from_secs(5),
            body_time: Duration::from_secs(10),
            frame_time: Duration::from_secs(5),
            tls_handshakes: 1_024,
            tls_handshakes_per_address: 256,
            tls_handshake_time: Duration::from_secs(5),
            rls_streams: 1_024,
            rls_decisions: 4_096,
            rls_other_calls: 16,
            rls_head: 4 << 10,
            rls_message: 32 << 10,
            rls_window: 1 << 20,
            signed_datagrams: 1 << 20,
            watchers: 16,
            recorders: 4,
            transaction: 1 << 20,
            accounting: 8 << 20,
            topics: 1_024,
            topic: 256,
            queue: 1 << 20,
            queues: 256 << 20,
            delays: KnownDelays::BYTES_MAX,
            write_time: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            drain_idle: Duration::from_millis(50),
            drain: Duration::from_secs(10),
            restart_pause: Duration::from_millis(100),
        }
    }
}
