//! The error that every client returns.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_wire::http::{EventStreamError, IdNotUtf8, ResponseError};
use tollway_wire::text::DATAGRAM_MAX;
use tollway_wire::throttr::{IdTooLong, UnknownStatus};

#[cfg(feature = "tls")]
use crate::tls::ClientTlsError;

/// The reasons why a call has no answer.
///
/// Being over a limit is an answer, not an error. After [`TimedOut`](Self::TimedOut),
/// [`Disconnected`](Self::Disconnected) and [`InvalidResponse`](Self::InvalidResponse) the request may have been
/// carried out or not; after all others it was not.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address cannot be that of a server.
    #[error(transparent)]
    InvalidAddress(#[from] InvalidAddress),
    /// The protocol cannot express the request. Nothing was sent.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),
    /// The host in the address has no IP address, or the lookup failed. Nothing was sent.
    #[error(
        "the host in {address} cannot be looked up; check its spelling, and the name servers of this machine"
    )]
    Lookup {
        /// The address of the server.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The host is there, and nothing listens at the port. Nothing was sent.
    #[error("no server at {address}; start one with \"tollway serve\"")]
    Refused {
        /// The address of the server.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection was not open in time. Nothing was sent.
    #[error(
        "no connection to {address} within {timeout:?}; check that the host is up and no firewall drops packets"
    )]
    ConnectTimedOut {
        /// The address of the server.
        address: String,
        /// The timeout of the client.
        timeout: Duration,
    },
    /// The connection failed in another way, for example because there is no route to the host. Nothing was sent.
    #[error("{address} is unreachable; check the network between this machine and the server")]
    Unreachable {
        /// The address of the server.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// There is no TLS with the server: one side does not accept the certificate of the other, or the server speaks
    /// plain text. Nothing was carried out.
    #[cfg(feature = "tls")]
    #[error("no TLS connection to {address}; check the certificates, and that this gate uses TLS")]
    Tls {
        /// The address of the server.
        address: String,
        /// The error of TLS.
        source: ClientTlsError,
    },
    /// No response arrived in time.
    #[error("no response from {address} within {timeout:?}; the request may have been carried out")]
    TimedOut {
        /// The address of the server.
        address: String,
        /// The timeout of the client.
        timeout: Duration,
    },
    /// The connection ended before the response arrived.
    #[error("{address} closed the connection before it responded; the request may have been carried out")]
    Disconnected {
        /// The address of the server.
        address: String,
        /// The error of the system; `None` if the server closed the connection in order.
        source: Option<io::Error>,
    },
    /// The bytes that arrived are not a response of the protocol.
    #[error("invalid response from {address}; check that a gate for this protocol listens there")]
    InvalidResponse {
        /// The address of the server.
        address: String,
        /// The rule of the protocol that the response breaks.
        source: InvalidResponse,
    },
    /// The server reported that it cannot decide the request, for example because the limit does not exist.
    #[error("{title}: {detail}")]
    Problem {
        /// The HTTP status of the response.
        status: u16,
        /// The kind of problem, the same for every occurrence.
        title: String,
        /// The description of this occurrence.
        detail: String,
    },
}

/// The reasons why no client can be created for an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// The address is not a host, or a host and a port.
    #[error("invalid address {address:?}; write it as HOST or HOST:PORT, such as 127.0.0.1:{port}")]
    HostPort {
        /// The address that was given.
        address: String,
        /// The port of an address without one.
        port: u16,
    },
    /// The address is an `https://` URL, and the client was built without TLS.
    #[error(
        "{address:?} needs TLS, which this client does not have; build it with the feature \"tls\", or write http://"
    )]
    Tls {
        /// The address that was given.
        address: String,
    },
}

/// The error for a token that no server can have made. The token is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a token has 1 to 512 bytes of visible ASCII, without spaces")]
#[non_exhaustive]
pub struct InvalidToken;

/// The reasons why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// An id over HTTP is not UTF-8.
    #[error(transparent)]
    Http(#[from] IdNotUtf8),
    /// The key of a text request has a newline, or the datagram would be too long.
    #[error("a key must have no newline, and its datagram at most {DATAGRAM_MAX} bytes")]
    Text,
    /// A consumer or a resource of Throttr is too long.
    #[error(transparent)]
    Throttr(#[from] IdTooLong),
}

/// The ways in which bytes fail to be a response.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// The response does not start like an HTTP response.
    #[error("its head is not HTTP")]
    HttpHead,
    /// The HTTP response has no valid `Content-Length`. A Tollway server always sends one.
    #[error("it has no Content-Length")]
    HttpLength,
    /// The HTTP response is longer than any of a Tollway server.
    #[error("it is longer than {max} bytes")]
    HttpTooLong {
        /// The longest response that the client reads.
        max: usize,
    },
    /// The body of the HTTP response is not the JSON that was expected.
    #[error(transparent)]
    HttpBody(ResponseError),
    /// The HTTP response answers another request.
    #[error("it answers another request: expected {expected}")]
    HttpAnswer {
        /// The answer that the request asks for.
        expected: &'static str,
    },
    /// The stream of events breaks a bound.
    #[error(transparent)]
    EventStream(EventStreamError),
    /// The reply of the text protocol belongs to another command.
    #[error("{reply:?} does not answer this command")]
    Text {
        /// The reply without its id.
        reply: String,
    },
    /// The bytes are not the Throttr reply that was expected.
    #[error(transparent)]
    Throttr(#[from] InvalidThrottrReply),
}

/// The ways in which bytes fail to be the expected reply of Throttr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidThrottrReply {
    /// The status byte is neither success nor failure.
    #[error(transparent)]
    Status(#[from] UnknownStatus),
    /// The reply has the id of another request. Replies arrive in the order of the requests.
    #[error("a reply to request {found} arrived, expected one to request {expected}")]
    OutOfOrder {
        /// The id of the oldest request without a reply.
        expected: u32,
        /// The id in the reply.
        found: u32,
    },
    /// The server sent more replies than it got requests.
    #[error("a reply arrived without a request")]
    Unrequested,
}

#[cfg(any(feature = "http", feature = "text", feature = "throttr"))]
impl ClientError {
    /// Maps a failed lookup of the host in `address`.
    pub(crate) fn lookup(address: &str, source: io::Error) -> Self {
        Self::Lookup { address: address.to_owned(), source }
    }

    /// Maps a failed attempt to connect, or to send a datagram.
    pub(crate) fn connecting(address: &str, timeout: Duration, source: io::Error) -> Self {
        let address = address.to_owned();
        match source.kind() {
            _ if is_timeout(&source) => Self::ConnectTimedOut { address, timeout },
            io::ErrorKind::ConnectionRefused => Self::Refused { address, source },
            _ => Self::Unreachable { address, source },
        }
    }

    /// Maps a failed read or write on an open connection.
    #[cfg(any(feature = "http", all(feature = "throttr", feature = "blocking")))]
    pub(crate) fn exchanging(address: &str, timeout: Duration, error: io::Error) -> Self {
        let address = address.to_owned();
        match error.kind() {
            _ if is_timeout(&error) => Self::TimedOut { address, timeout },
            // A server refuses the certificate of a client after the client's part of the handshake.
            #[cfg(feature = "tls")]
            _ if tls_error(&error).is_some() => Self::securing(&address, timeout, error),
            io::ErrorKind::UnexpectedEof => Self::Disconnected { address, source: None },
            _ => Self::Disconnected { address, source: Some(error) },
        }
    }
}

#[cfg(feature = "tls")]
impl ClientError {
    /// Maps a failed handshake.
    pub(crate) fn securing(address: &str, timeout: Duration, error: io::Error) -> Self {
        match tls_error(&error) {
            Some(source) => {
                Self::Tls { address: address.to_owned(), source: ClientTlsError::Setup(source.clone()) }
            }
            None => Self::connecting(address, timeout, error),
        }
    }
}

/// Returns the error of TLS inside of an error of a connection.
#[cfg(feature = "tls")]
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns true for the errors of a socket whose timeout has passed. Which of the two it is depends on the system.
#[cfg(any(feature = "http", feature = "text", feature = "throttr"))]
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Makes the error of a lookup that found a host without an IP address.
#[cfg(any(feature = "http", feature = "text", feature = "throttr"))]
pub(crate) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the host has no IP address")
}
