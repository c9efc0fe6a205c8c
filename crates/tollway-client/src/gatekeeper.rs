//! A gatekeeper: admits, delays or rejects requests by what a master last said, without ever asking it.
//!
//! ```no_run
//! # async fn serve() -> Result<(), tollway_client::gatekeeper::ConnectError> {
//! use tollway_client::gatekeeper::{Admission, Gatekeeper};
//!
//! let gatekeeper = Gatekeeper::connect("master:10004", "api")?;
//! match gatekeeper.admit("192.0.2.7").await {
//!     Admission::Passed => println!("served at once"),
//!     Admission::Delayed { by } => println!("served after {by:?}"),
//!     Admission::Rejected { retry_after, .. } => println!("503, Retry-After: {}", retry_after.as_secs() + 1),
//!     _ => println!("served"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Gatekeeper::builder`] says more:
//!
//! ```no_run
//! # async fn serve() -> Result<(), tollway_client::gatekeeper::ConnectError> {
//! # use tollway_client::gatekeeper::Gatekeeper;
//! use std::time::Duration;
//! use tollway_client::gatekeeper::RejectedAccounting;
//!
//! let gatekeeper = Gatekeeper::builder("master:10004", "api")
//!     .max_delay(Duration::from_secs(2))
//!     .max_delayed(500)
//!     .rejected(RejectedAccounting::OneIn(100))
//!     .connect()?;
//! let admission = gatekeeper.admit_with("192.0.2.7", b"curl/8.5").await;
//! # Ok(())
//! # }
//! ```
//!
//! Whatever passes is told to the master, over [Smockron](tollway_wire::smockron), and the master says from when on the
//! next request of the same identifier is welcome. A thread of the gatekeeper's own does all of that: a request costs
//! a look into a table, and a wait is a timer of tokio's. No master, no limits: what is not known passes.
//!
//! # Who comes before the master has answered
//! A request that must wait takes the place that the master named, and the master answers with the next one. Until
//! that answer is there, which takes as long as a message there and back, others of the same identifier stand in line. The
//! places that come are given out in the order in which requests came, so that they do not all pass at the same
//! moment. If no answer comes, they pass when the place before them has come, as they would have without a line.

mod book;
mod builder;
mod clock;
mod connection;
mod counts;
mod link;
mod outbox;
mod shared;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::runtime;
use tokio::sync::oneshot;

pub use self::builder::{ConnectError, GatekeeperBuilder, RejectedAccounting};
pub use self::counts::Counts;
use self::link::Link;
use self::shared::Shared;
pub use self::wait::Wait;

/// ShardGuards one domain. Clones are the same gatekeeper; when the last is dropped, it says no more to the master.
#[derive(Clone)]
pub struct Gatekeeper {
    shared: Arc<Shared>,
    /// Dropped with the last clone, which ends the thread.
    _at_work: Arc<oneshot::Sender<()>>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// It passed at once.
    Passed,
    /// It passed after a wait.
    Delayed {
        /// How long it waited.
        by: Duration,
    },
    /// It must not pass.
    Rejected {
        /// When a request would be welcome.
        until: SystemTime,
        /// How long that is from now.
        retry_after: Duration,
    },
}

/// What a request must do.
#[derive(Debug)]
#[must_use]
pub enum Gate {
    /// Pass.
    Pass,
    /// Wait first.
    Wait(Wait),
    /// Go away.
    Reject {
        /// When a request would be welcome.
        until: SystemTime,
        /// How long that is from now.
        retry_after: Duration,
    },
}

impl Gatekeeper {
    /// ShardGuards `domain` by what the master at `address` says: a host and its port for accounting, as in `master:10004`. The
    /// port for control is the next one. Nobody need be there yet, and whoever goes away is looked for until it is back.
    pub fn connect(address: &str, domain: &str) -> Result<Self, ConnectError> {
        Self::builder(address, domain).connect()
    }

    /// The same, with more to say.
    pub fn builder(address: &str, domain: &str) -> GatekeeperBuilder {
        GatekeeperBuilder::new(address, domain)
    }

    fn start(builder: GatekeeperBuilder, accounting: String, control: String) -> Result<Self, ConnectError> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let shared = Arc::new(Shared::new(builder));
        let (at_work, done) = oneshot::channel();
        let link = Link::new(Arc::clone(&shared), accounting, control);
        let serve = move || {
            runtime.block_on(link.run(done));
            // Looking up a name may take long, and there is nobody left to wait for it.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("tollway-gatekeeper".to_owned()).spawn(serve)?;
        Ok(Self { shared, _at_work: Arc::new(at_work) })
    }

    /// Lets a request of this identifier pass now, later or not at all. To drop what this returns is to give up waiting.
    pub async fn admit(&self, identifier: impl AsRef<[u8]>) -> Admission {
        self.admit_with(identifier, &[]).await
    }

    /// The same, with something that the master may log: up to 4 KiB of it.
    pub async fn admit_with(&self, identifier: impl AsRef<[u8]>, log_info: &[u8]) -> Admission {
        match self.decide(identifier.as_ref(), log_info) {
            Gate::Pass => Admission::Passed,
            Gate::Wait(wait) => wait.over().await,
            Gate::Reject { until, retry_after } => Admission::Rejected { until, retry_after },
        }
    }

    /// Says at once what a request of this identifier must do, for who has timers of its own.
    pub fn decide(&self, identifier: &[u8], log_info: &[u8]) -> Gate {
        Shared::decide(&self.shared, identifier, log_info)
    }

    /// What happened since the beginning, and how it is now.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// The domain that it guards.
    pub fn domain(&self) -> &str {
        &self.shared.domain
    }
}

impl fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Gatekeeper");
        fields.field("domain", &self.domain()).field("counts", &self.counts()).finish()
    }
}
