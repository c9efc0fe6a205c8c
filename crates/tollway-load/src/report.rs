//! The result of a run, and the errors that end one.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use crate::stats::LoadStats;

/// The result of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadReport {
    /// All replies with their latencies, those after the end of the measured time included.
    pub stats: LoadStats,
    /// The number of replies within the measured time.
    pub measured_replies: u64,
    /// The measured time: without the warm-up, and without waiting for the last replies.
    pub measured: Duration,
    /// The number of requests without a reply.
    pub unanswered: u64,
    /// The error that ended the run early, if there was one.
    pub failure: Option<LoadError>,
}

impl LoadReport {
    /// Returns the number of replies per second of the measured time.
    pub fn rate(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.measured_replies as f64 / seconds }
    }

    /// Returns whether there were replies and all of them were errors, so that the run measured no decision.
    pub const fn is_all_errors(&self) -> bool {
        self.stats.replies > 0 && self.stats.errors == self.stats.replies
    }
}

/// An error that prevents or ends a run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nothing listens at the address.
    #[error("no server at {addr}; start one with \"{start}\"")]
    Refused {
        /// The address of the server.
        addr: SocketAddr,
        /// The command that starts a server of the protocol.
        start: &'static str,
    },
    /// A connection could not be opened.
    #[error("cannot open connection {number} to {addr}")]
    Connect {
        /// The address of the server.
        addr: SocketAddr,
        /// The number of the connection, counted from 1.
        number: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// Open sockets could not be used.
    #[error("cannot use the sockets to {addr}")]
    Socket {
        /// The address of the server.
        addr: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The server closed a connection.
    #[error("{addr} closed a connection after {answered} of {sent} requests")]
    Closed {
        /// The address of the server.
        addr: SocketAddr,
        /// The number of replies that this connection had received.
        answered: u64,
        /// The number of requests that it had sent.
        sent: u64,
        /// The error of the system, unless the connection was closed in order.
        source: Option<io::Error>,
    },
    /// The server sent something that is not a reply of the protocol.
    #[error("the reply of {addr} is not {expected}: {received}")]
    NotAReply {
        /// The address of the server.
        addr: SocketAddr,
        /// The name of the protocol.
        expected: &'static str,
        /// The beginning of what it sent, on one line.
        received: String,
    },
    /// The server sent nothing for a long time.
    #[error("{addr} did not answer for {waited:?}")]
    Silent {
        /// The address of the server.
        addr: SocketAddr,
        /// The time without an answer.
        waited: Duration,
    },
}

/// The number of bytes of a reply that are shown.
const SHOWN_MAX: usize = 200;

/// The first bytes of the alert with which a server that uses TLS answers plain text.
const TLS_ALERT: &[u8] = b"\x15\x03";

/// Formats the beginning of what a server sent on one line, without control characters.
pub(crate) fn shown(bytes: &[u8]) -> String {
    if bytes.starts_with(TLS_ALERT) {
        return "the gate uses TLS, and load is sent in plain text".to_owned();
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]);
    let mut line = String::new();
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    if bytes.len() > SHOWN_MAX {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sent_is_shown_on_one_line() {
        for (sent, text) in [
            (&b"{\"a\": 1}"[..], "{\"a\": 1}"),
            (b"no\r\n\x1b[2J", r"no\r\n\u{1b}[2J"),
            (b"\xff", "\u{fffd}"),
            (b"\x15\x03\x03\0\x02\x02\x32", "the gate uses TLS, and load is sent in plain text"),
        ] {
            assert_eq!(shown(sent), text);
        }
        assert!(shown(&[b'a'; 10_000]).ends_with("aaa..."));
    }
}
