//! Identifies clients by a header.

use http::HeaderName;

use super::{ClientId, Identify, RequestHead};

/// Identifies a client by the value of a header, such as an API key.
///
/// Check the header before this layer: a client can send any value.
#[derive(Clone, Debug)]
pub struct ByHeader(HeaderName);

impl ByHeader {
    /// Reads the header of this name. If a request has several, the first counts.
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }
}

impl Identify for ByHeader {
    fn identify(&self, head: RequestHead<'_>) -> Option<ClientId> {
        ClientId::new(head.headers.get(&self.0)?.as_bytes())
    }
}
