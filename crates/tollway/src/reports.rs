//! The reports that gatekeepers send to a Smockron master, and the delays that the master publishes.

mod known_delays;

use tollway_core::{Domain, Timestamp};

pub use self::known_delays::{KnownDelays, PublishedDelay};

/// A request that a gatekeeper let through, immediately or after a delay.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The domain whose rules apply to the request.
    pub domain: &'a Domain,
    /// The client that made the request.
    pub identifier: &'a [u8],
    /// The time at which it was let through, by the gatekeeper's clock.
    pub at: Timestamp,
}

/// A client that is delayed at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Delay {
    /// The client whose next request is not allowed yet.
    pub identifier: Vec<u8>,
    /// The time from which its next request is allowed.
    pub until: Timestamp,
}

/// One page of the clients that are delayed at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Delays {
    /// The delays on this page.
    pub delays: Vec<Delay>,
    /// The position at which the next page starts, if there is one.
    pub next: Option<u64>,
}
