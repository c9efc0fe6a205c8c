//! The `RateLimit` headers, which tell a client its limit and what remains of it.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollway_wire::http::rate_limit_headers::HeaderSink;

/// The headers of a response, to which those of a decision are added.
pub(crate) struct ResponseHeaders<'a>(pub(crate) &'a mut HeaderMap);

impl HeaderSink for ResponseHeaders<'_> {
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::with_capacity(64);
        write(&mut value);
        // This never fails: names of limits have only characters that a header may have.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
