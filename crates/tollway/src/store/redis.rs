//! Buckets in Redis or Valkey, shared by a fleet.
//!
//! ```text
//! bills ─> calls, one for each bill ─> one pipeline ─> scripts decide, and write ─> replies ─> decisions
//! ```
//!
//! A script is one step that nobody can split, by Redis's own clock, so that the hosts of a fleet need not agree on the
//! time. It does what the memory store does, to the nanosecond. A bucket that says nothing any more expires by itself, and never
//! sooner than that.

mod accounts;
mod call;
mod error;
mod execute;
mod inspect;
mod key;
mod knock;
mod part;
mod refund;
mod reply;
mod rules;
mod script;
mod seen;
mod settle;
mod undo;
mod url;
mod wire;

use std::io;

use self::key::Namespace;
use self::wire::Wire;

pub use error::StoreError;
pub use inspect::Page;
pub use url::{Address, PasswordFileError, RedisUrl, RedisUrlError, Secret, SettingError, Topology};
pub use wire::{Health, NodeHealth, NodeState};

/// The Redis store. Every call may be awaited on any runtime, or on none.
#[derive(Debug)]
pub struct Redis {
    wire: Wire,
    namespace: Namespace,
}

impl Redis {
    /// A store at this address. Waits for nobody: Redis may be away, and come later.
    pub fn open(url: &RedisUrl) -> io::Result<Self> {
        Ok(Self { wire: Wire::start(url)?, namespace: Namespace::new(&url.namespace) })
    }

    /// How the nodes are.
    pub fn health(&self) -> Health {
        self.wire.health()
    }
}
