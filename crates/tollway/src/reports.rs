//! What gatekeepers report to a master.

use tollway_core::{Domain, Timestamp};

/// One request that a gatekeeper let through, at once or after a wait.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Of which resource.
    pub domain: &'a Domain,
    /// Whose.
    pub identifier: &'a [u8],
    /// When it was let through, by the gatekeeper's clock.
    pub at: Timestamp,
}

/// One identifier that is still to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Whose next request is not welcome yet.
    pub identifier: Vec<u8>,
    /// From when on it is.
    pub until: Timestamp,
}

/// Some of those who are still to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Who, and until when.
    pub delays: Vec<Delay>,
    /// Where the next page starts, if there is one.
    pub next: Option<u64>,
}
