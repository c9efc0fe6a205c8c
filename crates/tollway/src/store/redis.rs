//! Buckets in Redis or Valkey, shared by a fleet.
//!
//! ```text
//! bills ─> calls, one for each bill ─> one pipeline ─> scripts decide, and write ─> replies ─> decisions
//! ```
//!
//! A script is one step that nobody can split, by Redis's own clock, so that the hosts of a fleet need not agree on the
//! time. It does what the memory store does, to the nanosecond. A bucket whose state has no effect any more expires by
//! itself, and never sooner.

mod call;
mod inspect;
mod key;
#[cfg(feature = "journal")]
mod moved;
mod net;
mod part;
mod quota_commands;
mod rate_update;
mod refund;
mod reply;
mod reports;
mod rules;
mod script;
mod seen;
mod settle;
mod undo;
mod url;

use std::io;
use std::sync::Arc;

use self::call::Call;
use self::key::Namespace;
use self::net::{Net, Replies};
use super::{Health, StoreError};

#[cfg(feature = "journal")]
pub use moved::RedisExportPage;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use net::simulation::{NetAction, SimulatedDriver, script_sha};
pub use url::{Address, PasswordFileError, RedisUrl, RedisUrlError, Secret, SettingError, Topology};

/// A handle that sends calls to the Redis store. Every call may be awaited on any runtime, or on none. Clones share the
/// connections.
#[derive(Clone, Debug)]
pub struct Redis {
    net: Arc<Net>,
    namespace: Namespace,
    caller: Caller,
}

/// A caller of the store: an async task, or a thread that sleeps until it has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Task,
    Thread,
}

impl Redis {
    /// Opens the store at this URL. An unreachable Redis may be started later. A password, a user or a certificate that
    /// is refused is an error.
    pub fn open(url: &RedisUrl) -> io::Result<Self> {
        let (net, namespace) = (Arc::new(Net::start(url)?), Namespace::new(&url.namespace));
        Ok(Self { net, namespace, caller: Caller::Task })
    }

    /// Opens a store that has no thread and no sockets: whoever holds the driver moves it on. For the simulator.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn simulated(url: &RedisUrl, seed: u64) -> (Self, SimulatedDriver) {
        let (net, driver) = SimulatedDriver::start(url, seed);
        (Self { net: Arc::new(net), namespace: Namespace::new(&url.namespace), caller: Caller::Task }, driver)
    }

    /// Returns a handle for threads that sleep until they have their answer. A call on it may block the thread that
    /// polls it.
    pub(crate) fn for_blocking_callers(&self) -> Self {
        Self { caller: Caller::Thread, ..self.clone() }
    }

    /// Returns the state of the nodes.
    pub fn health(&self) -> Health {
        self.net.health()
    }

    fn send(&self, calls: Vec<Call>) -> Replies {
        match self.caller {
            Caller::Task => self.net.send(calls),
            Caller::Thread => self.net.send_blocking(calls),
        }
    }
}
