//! Reads how many connections a gate accepts.
//!
//! ```yaml
//! http: { listen: 0.0.0.0:8080, max_connections: 20000, max_connections_per_address: 500 }
//! ```

use crate::config::errors::ErrorCollector;
use crate::config::fields::{YamlFields, whole_number};

pub(super) const TOTAL: &str = "max_connections";
pub(super) const PER_ADDRESS: &str = "max_connections_per_address";

/// The greatest number that is accepted. Most systems do not let a process open more files.
const MOST: u64 = 1_000_000;

/// Limits the connections of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxConnections {
    /// The number that all clients together may have.
    pub total: usize,
    /// The number that one IPv4 address, or one /64 of IPv6, may have. Without it that is 2,500, and any number for
    /// loopback.
    pub per_address: Option<usize>,
}

impl MaxConnections {
    /// The default, which allows 10,000 connections.
    pub const DEFAULT: Self = Self { total: 10_000, per_address: None };
    /// The number that one address may have by default, unless it is loopback.
    const DEFAULT_PER_ADDRESS: usize = 2_500;

    /// Returns the maximum for one address.
    pub fn of_address(&self, is_loopback: bool) -> usize {
        let default = if is_loopback { usize::MAX } else { Self::DEFAULT_PER_ADDRESS };
        self.per_address.unwrap_or(default)
    }

    /// Reads both settings of a gate.
    pub(super) fn read(fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<Self> {
        let mut number = |name| {
            let entry = fields.get(name)?;
            Some(
                whole_number(entry, 1..=MOST, errors)
                    .map(|number| usize::try_from(number).unwrap_or(usize::MAX)),
            )
        };
        let (total, per_address) = (number(TOTAL), number(PER_ADDRESS));
        Some(Self {
            total: total.unwrap_or(Some(Self::DEFAULT.total))?,
            per_address: match per_address {
                Some(per_address) => Some(per_address?),
                None => None,
            },
        })
    }
}
