//! Identification of clients: the id that a request is charged to.
//!
//! | type | the id is |
//! |---|---|
//! | [`ByAddress`] | the address of the client, also behind trusted proxies |
//! | [`ByHeader`] | the value of a header |
//! | [`ByHeaderOrAddress`] | the value of a header, or the address of a client that sends none |
//! | a closure over the [`RequestHead`] | the [`ClientId`] that it returns |
//!
//! ```
//! use tollway::Limiter;
//! use tollway_tower::{AdmissionLayer, ClientId, LocalRule};
//!
//! let limiter = Limiter::from_yaml("rules: { upload: 'user:10/m' }")?;
//! let layer = AdmissionLayer::new(LocalRule::new(limiter, "upload")?)
//!     .identify_by(|head| head.uri.path().strip_prefix("/users/").and_then(ClientId::new));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod by_address;
mod by_header;
mod client_id;

use http::{Extensions, HeaderMap, Method, Request, Uri};
pub use tollway_core::{Network, ParseNetworkError};

pub use self::by_address::ByAddress;
pub use self::by_header::{ByHeader, ByHeaderOrAddress};
pub use self::client_id::ClientId;

/// Identifies the client that sent a request.
pub trait Identify: Send + Sync + 'static {
    /// Returns the id of the client, or the reason why the request does not identify one.
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified>;
}

impl<F: Fn(RequestHead<'_>) -> Option<ClientId> + Send + Sync + 'static> Identify for F {
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified> {
        self(head).ok_or(Unidentified::Missing)
    }
}

/// The reasons why a request has no client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unidentified {
    /// The request lacks what identifies its client, such as a header.
    Missing,
    /// The request has the header that identifies its client more than once. It is rejected in any case.
    Ambiguous,
    /// The id is too long, or not one that the limit accepts.
    Invalid,
    /// The server added no address to the request. That is a mistake in the server's setup, not in the request.
    NoPeerAddress,
}

/// The parts of a request that identify its client: all but the body.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method that the client sent.
    pub method: &'a Method,
    /// The URI that the client sent.
    pub uri: &'a Uri,
    /// The headers that the client sent.
    pub headers: &'a HeaderMap,
    /// The extensions that the server and other layers added, such as the address of the peer.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// Borrows the head of a request.
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}
