//! Admits, delays or rejects requests by the delays that a master publishes, without a request to the master.
//!
//! ```no_run
//! # async fn serve() -> Result<(), tollway_client::gatekeeper::GatekeeperError> {
//! use tollway_client::gatekeeper::{Admission, Gatekeeper};
//!
//! let gatekeeper = Gatekeeper::new("master:10004", "api")?;
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
//! [`Gatekeeper::builder`] changes the settings:
//!
//! ```no_run
//! # async fn serve() -> Result<(), tollway_client::gatekeeper::GatekeeperError> {
//! use std::time::Duration;
//! use tollway_client::gatekeeper::{Gatekeeper, RejectedReports};
//!
//! let gatekeeper = Gatekeeper::builder("master:10004", "api")
//!     .max_delay(Duration::from_secs(2))
//!     .max_delayed(500)
//!     .report_rejected(RejectedReports::OneIn(100))
//!     .build()?;
//! let admission = gatekeeper.admit_with("192.0.2.7", b"curl/8.5").await;
//! # Ok(())
//! # }
//! ```
//!
//! Every request that passes is reported to the master, over [Smockron](tollway_wire::smockron), and the master
//! publishes the time at which the next request of the same identifier is allowed. A thread of the gatekeeper does all
//! of that: a request costs a lookup in a table, and a wait is a timer of tokio. Without a master there are no limits:
//! a request of an identifier without a delay passes.
//!
//! # Requests before the answer of the master
//! A request that must wait takes the slot that the master published, and the master answers with the next one. Until
//! that answer arrives, after one round trip, other requests of the same identifier are queued. New slots are given out
//! in the order in which the requests came, so that they do not all pass at the same moment. If no answer comes, they
//! pass at the slot before them, as they would without a queue.

mod accounting_queue;
mod builder;
mod clock;
mod delay_table;
mod master_driver;
mod shared;
#[cfg(feature = "simulation")]
mod simulation;
mod stats;
mod wait;
mod zmtp_connection;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::runtime;
use tokio::sync::oneshot;

pub use self::builder::{GatekeeperBuilder, GatekeeperError, RejectedReports};
use self::master_driver::MasterDriver;
use self::shared::Shared;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::simulation::{SimulatedLink, SimulatedTime};
pub use self::stats::GatekeeperStats;
pub use self::wait::Wait;

/// The port for accounting of an address without one. Masters listen there by default.
pub const DEFAULT_PORT: u16 = 10_004;

/// A gatekeeper that limits the requests of one domain. Clones are the same gatekeeper; when the last is dropped, its
/// connections are closed.
#[derive(Clone)]
pub struct Gatekeeper {
    shared: Arc<Shared>,
    /// Dropped with the last clone, which ends the thread.
    _running: Arc<oneshot::Sender<()>>,
}

/// The outcome that a request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Admission {
    /// The request passed at once.
    Passed,
    /// The request passed after a wait.
    Delayed {
        /// The time that it waited.
        by: Duration,
    },
    /// The request must not pass.
    Rejected {
        /// The time at which a request would pass.
        until: SystemTime,
        /// The time from now until then.
        retry_after: Duration,
    },
}

/// The decision that is made on a request at once.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum AdmissionDecision {
    /// The request passes now.
    Pass,
    /// The request must wait first.
    Wait(Wait),
    /// The request must not pass.
    Reject {
        /// The time at which a request would pass.
        until: SystemTime,
        /// The time from now until then.
        retry_after: Duration,
    },
}

impl Gatekeeper {
    /// Creates a gatekeeper of `domain` whose master is at `address`: `HOST`, or `HOST:PORT` if its port for accounting
    /// is not [`DEFAULT_PORT`]. The port for control is the next one. It connects in the background, and again whenever
    /// a connection ends.
    pub fn new(address: &str, domain: &str) -> Result<Self, GatekeeperError> {
        Self::builder(address, domain).build()
    }

    /// Returns a builder, which can change the settings of the gatekeeper.
    pub fn builder(address: &str, domain: &str) -> GatekeeperBuilder {
        GatekeeperBuilder::new(address, domain)
    }

    fn start(
        builder: GatekeeperBuilder,
        accounting: String,
        control: String,
    ) -> Result<Self, GatekeeperError> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let shared = Arc::new(Shared::new(builder, accounting.clone()));
        let (running, done) = oneshot::channel();
        let driver = MasterDriver::new(Arc::clone(&shared), accounting, control);
        let serve = move || {
            runtime.block_on(driver.run(done));
            // Do not wait for a name lookup that is still under way: it may take long.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("tollway-gatekeeper".to_owned()).spawn(serve)?;
        Ok(Self { shared, _running: Arc::new(running) })
    }

    /// Creates a gatekeeper without a thread and without sockets: whoever holds the link carries the messages. For the
    /// simulator.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn simulated(domain: &str, time: &Arc<SimulatedTime>) -> (Self, SimulatedLink) {
        let mut shared = Shared::new(Self::builder("simulated", domain), "simulated".to_owned());
        shared.clock = clock::GatekeeperClock::simulated(Arc::clone(time));
        let (shared, (running, _)) = (Arc::new(shared), oneshot::channel());
        let link = SimulatedLink::new(Arc::clone(&shared));
        (Self { shared, _running: Arc::new(running) }, link)
    }

    /// Waits until a request of this identifier may pass, or returns that it must not. Dropping the future gives up.
    pub async fn admit(&self, identifier: impl AsRef<[u8]>) -> Admission {
        self.admit_with(identifier, &[]).await
    }

    /// Admits a request like [`admit`](Self::admit), and sends up to 4 KiB of log info to the master.
    pub async fn admit_with(&self, identifier: impl AsRef<[u8]>, log_info: &[u8]) -> Admission {
        match self.decide(identifier, log_info) {
            AdmissionDecision::Pass => Admission::Passed,
            AdmissionDecision::Wait(wait) => wait.finish().await,
            AdmissionDecision::Reject { until, retry_after } => Admission::Rejected { until, retry_after },
        }
    }

    /// Decides on a request of this identifier without waiting, for callers with timers of their own.
    pub fn decide(&self, identifier: impl AsRef<[u8]>, log_info: &[u8]) -> AdmissionDecision {
        Shared::decide(&self.shared, identifier.as_ref(), log_info)
    }

    /// Returns the numbers since the start, and the state now.
    pub fn stats(&self) -> GatekeeperStats {
        self.shared.stats()
    }

    /// Returns the address of the master: its host and its port for accounting.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.shared.domain
    }
}

impl fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Gatekeeper");
        fields
            .field("address", &self.address())
            .field("domain", &self.domain())
            .field("stats", &self.stats())
            .finish()
    }
}
