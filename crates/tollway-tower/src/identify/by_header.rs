//! By a header that the client sends.

use http::HeaderName;

use super::{ClientId, Identify, RequestHead};

/// The value of a header: an API key, say. Only as good as whoever checks it: a client may send what it likes.
#[derive(Clone, Debug)]
pub struct ByHeader(HeaderName);

impl ByHeader {
    /// The header of this name, of several the first.
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }
}

impl Identify for ByHeader {
    fn identify(&self, head: RequestHead<'_>) -> Option<ClientId> {
        ClientId::new(head.headers.get(&self.0)?.as_bytes())
    }
}
