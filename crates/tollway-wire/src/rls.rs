//! Envoy's rate limit service: its messages as protocol buffers, for gRPC, and as JSON.
//!
//! ```
//! use tollway_wire::rls;
//!
//! let message = b"\x0a\x03dom\x12\x0f\x0a\x0d\x0a\x04user\x12\x05alice";
//! let request = rls::decode(message)?;
//! assert_eq!((&*request.domain, &*request.descriptors[0].entries[0].1), ("dom", "alice"));
//! let json = br#"{"domain":"dom","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#;
//! assert_eq!(rls::from_json(json)?, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The field numbers are those of `envoy/service/ratelimit/v3/rls.proto`. Only these two messages are needed, and
//! decoding them here borrows all strings from what has arrived.

mod descriptor_set;
mod json;
mod protobuf;

use tollway_core::descriptor::DescriptorStatus;
use tollway_core::{Charge, Decision};

pub use descriptor_set::file_descriptor_set;
pub use json::{from_json, put_json, put_trace_json, put_trace_request};
pub use protobuf::{RlsDecodeError, decode, encode};

use crate::http::rate_limit_headers::{HeaderSink, add_decision_headers};

/// The full name of the service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its only method.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct RlsResponse<'a> {
    /// True if the request is over its limits.
    pub over_limit: bool,
    /// The answer about each descriptor, in order.
    pub statuses: &'a [DescriptorStatus<'a>],
    /// The charges that were made, for the headers.
    pub charges: &'a [Charge<'a>],
    /// The decision about them.
    pub decision: &'a Decision,
}

impl<'a> RlsResponse<'a> {
    /// Makes an answer.
    pub const fn new(
        over_limit: bool,
        statuses: &'a [DescriptorStatus<'a>],
        charges: &'a [Charge<'a>],
        decision: &'a Decision,
    ) -> Self {
        Self { over_limit, statuses, charges, decision }
    }

    /// Adds the headers that the proxy adds to its answer: those of the HTTP gate, without `X-RateLimit-*`, which Envoy
    /// makes of the statuses by itself.
    fn add_headers(&self, sink: &mut impl HeaderSink) {
        struct WithoutXRateLimit<'a, S>(&'a mut S);
        impl<S: HeaderSink> HeaderSink for WithoutXRateLimit<'_, S> {
            fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
                if !name.starts_with("X-") {
                    self.0.add(name, write);
                }
            }
        }
        // No charge decided if the limit is zero, or if no waiting helps.
        if self.decision.charge < self.charges.len() && !self.decision.retry_nanos.is_forever() {
            add_decision_headers(&mut WithoutXRateLimit(sink), self.charges, self.decision);
        }
    }
}
