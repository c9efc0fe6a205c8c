//! Reads the setting `inline` of a gate: whether clients may bring the numbers of limits.

use std::net::SocketAddr;

use super::super::errors::ErrorCollector;
use super::super::fields::choice;
use super::super::yaml::YamlEntry;

/// The name of the setting.
pub(super) const INLINE: &str = "inline";

/// Says whether clients of a gate may bring the numbers of a limit with a request.
///
/// A client that chooses its own numbers is not limited, and can fill the store. So by default only a gate on loopback
/// accepts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InlineAccess {
    /// Clients may bring numbers if the gate listens on loopback.
    #[default]
    Loopback,
    /// Clients may bring numbers.
    Allow,
    /// Clients may use configured limits only.
    Deny,
}

impl InlineAccess {
    /// Returns whether clients of a gate at this address may bring numbers.
    pub const fn is_allowed_at(self, address: SocketAddr) -> bool {
        match self {
            Self::Loopback => address.ip().is_loopback(),
            Self::Allow => true,
            Self::Deny => false,
        }
    }

    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        choice(entry, &[("allow", Self::Allow), ("deny", Self::Deny)], errors)
    }
}
