//! How much of everything, and for how long.

use std::time::Duration;

/// The most one process gives to all clients, and to each. Everything that grows is named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Open connections. Above it the newest is told so and closed: those that are served stay served.
    pub connections: usize,
    /// Bytes of a request line and its headers. Browsers' cookies pass through proxies that ask us.
    pub head: usize,
    /// Bytes of a body. A bill of the most charges with ids of a kilobyte fits.
    pub body: usize,
    /// Bytes of answers that wait for their client. A client that sends many requests at once gets the first answers
    /// before the rest is looked at.
    pub outbox: usize,
    /// How long a kept connection may be silent. Longer than the minute after which most clients give up theirs.
    pub idle: Duration,
    /// How long a head may take to arrive, from its first byte on.
    pub head_time: Duration,
    /// How long a body may take to arrive, from the end of its head on.
    pub body_time: Duration,
    /// How long half a Throttr request, half a message of ZeroMQ, or one that is to say what it is, may be waited for.
    pub frame_time: Duration,
    /// Bytes of accounting that wait to be entered, on each worker. What comes above it is dropped.
    pub accounting: usize,
    /// Topics that one gatekeeper may subscribe to.
    pub topics: usize,
    /// Bytes of a topic: the longest name of a domain, and a NUL.
    pub topic: usize,
    /// Bytes of messages that wait for one gatekeeper. One that does not read loses what comes above it.
    pub mailbox: usize,
    /// Bytes of messages that wait for all gatekeepers together.
    pub mailboxes: usize,
    /// Bytes of the delays that are remembered for gatekeepers that come back: some hundred thousand.
    pub delays: usize,
    /// How long a client may take to make room for its answers.
    pub write_time: Duration,
    /// How long a refused client may take to read the refusal.
    pub linger: Duration,
    /// How long a request that was under way when the drain began may take to arrive on an idle connection.
    pub drain_idle: Duration,
    /// How long a drain may take. What is not answered by then is cut off.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: 16 << 10,
            body: 64 << 10,
            outbox: 64 << 10,
            idle: Duration::from_secs(75),
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            frame_time: Duration::from_secs(10),
            accounting: 8 << 20,
            topics: 1_024,
            topic: 256,
            mailbox: 1 << 20,
            mailboxes: 256 << 20,
            delays: 64 << 20,
            write_time: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            drain_idle: Duration::from_millis(50),
            drain: Duration::from_secs(10),
        }
    }
}
