//! Whose request it is.
//!
//! | | the id is |
//! |---|---|
//! | [`ByAddress`] | the client's address, also behind proxies that are declared |
//! | [`ByHeader`] | the value of a header |
//! | a closure over the [`RequestHead`] | what it says |
//!
//! ```
//! # use tollway::Limiter;
//! # use tollway_tower::{AdmissionLayer, ClientId, LocalRule};
//! # let limiter = Limiter::from_yaml("rules: { upload: 'user:10/m' }")?;
//! let layer = AdmissionLayer::new(LocalRule::new(limiter, "upload")?)
//!     .identify_by(|head| ClientId::new(head.uri.path().strip_prefix("/users/")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod by_address;
mod by_header;
mod network;

use http::{Extensions, HeaderMap, Method, Request, Uri};
use tollway::rate_limit::{Selector, SelectorValue};

pub use self::by_address::ByAddress;
pub use self::by_header::ByHeader;
pub use self::network::{Network, ParseNetworkError};

/// Says whose request it is.
pub trait Identify: Send + Sync + 'static {
    /// Who sent this, if that can be said.
    fn identify(&self, head: RequestHead<'_>) -> Option<ClientId>;
}

impl<F: Fn(RequestHead<'_>) -> Option<ClientId> + Send + Sync + 'static> Identify for F {
    fn identify(&self, head: RequestHead<'_>) -> Option<ClientId> {
        self(head)
    }
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Where it goes.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// What servers and other layers left with it.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// The head of a request.
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

/// Who is limited. Up to 46 bytes are held without allocating.
#[derive(Clone, Debug)]
pub struct ClientId(SelectorValue<'static>);

impl ClientId {
    /// A text, a number, an address, or an option of one. `None` and what is empty identify nobody.
    pub fn new(value: impl Selector) -> Option<Self> {
        let value = value.value().into_owned();
        (!value.as_ref().is_empty()).then_some(Self(value))
    }
}

impl AsRef<[u8]> for ClientId {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}
