//! The load generator behind `tollway bench`: it sends requests to a server, and measures the replies.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use tollway_load::{HttpSpend, KeySpace, Load};
//!
//! let keys = KeySpace { format: "k{}".parse()?, count: 1_000 };
//! let load = Load { rate: Some(20_000), ..Load::new("127.0.0.1:8080".parse()?) };
//! let report = load.run(&HttpSpend::new("demo", &keys), &mut |_| ControlFlow::Continue(()))?;
//! println!("{} requests/s, p99 {:?}", report.rate(), report.stats.latency(0.99));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Load`] says whom to ask, over how many connections, how fast and for how long. A [`Protocol`] has the bytes of
//! one request and recognizes replies. A new protocol is one module in `protocol/`: it encodes one request as a
//! [`Template`], of which every request is a copy with another key, and reads one reply at a time. Everything else
//! (sockets, schedules, what is in flight, latencies) is shared.
//!
//! One thread does all of it, with sockets that never block and no allocation per request.
#![forbid(unsafe_code)]

mod awaited;
mod generator;
mod keys;
mod protocol;
mod report;
mod run;
mod schedule;
mod socket;
mod stats;
mod template;
mod zipf;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::generator::Generator;

pub use crate::keys::{KeyFormat, KeyOrder, KeySpace};
pub use crate::protocol::http::HttpSpend;
pub use crate::protocol::redis::RedisIncr;
pub use crate::protocol::resp::{RespAsk, RespCommands, ThrottleNumbers};
pub use crate::protocol::text::TextOverLimit;
pub use crate::protocol::throttr::{ThrottrAsk, ThrottrQuotas};
pub use crate::protocol::{Echo, NotAReply, Protocol, Reply, ReplyKind, Transport};
pub use crate::report::{LoadError, LoadReport};
pub use crate::stats::LoadStats;
pub use crate::template::Template;

/// A load: the server, the connections, the rate and the length of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The address of the server.
    pub addr: SocketAddr,
    /// The number of connections, or of UDP sockets.
    pub connections: u16,
    /// The number of requests that a connection sends at once.
    pub pipeline: u16,
    /// The order in which keys are used.
    pub key_order: KeyOrder,
    /// The time after which no more requests are sent, or the number of requests.
    pub length: RunLength,
    /// The time before measuring begins. Requests are sent, and not counted.
    pub warmup: Duration,
    /// Requests per second in an open loop. In a closed loop, `None`, a connection sends again when its last batch is
    /// answered.
    pub rate: Option<u64>,
    /// The time after which a datagram without a reply counts as unanswered.
    pub reply_timeout: Duration,
    /// True if the kernel splits a batch into datagrams (GSO).
    pub segmentation_offload: bool,
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunLength {
    /// Sends requests for this long.
    Time(Duration),
    /// Sends this many requests.
    Requests(u64),
}

/// The state of a run, as its observer sees it several times a second.
#[derive(Debug)]
pub struct RunProgress<'a> {
    /// The time since the run began, its warm-up included.
    pub elapsed: Duration,
    /// The replies so far; those of the warm-up are dropped at its end.
    pub stats: &'a LoadStats,
}

impl Load {
    /// Creates a closed loop of 5 s over 50 connections, with uniformly distributed keys.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            connections: 50,
            pipeline: 1,
            key_order: KeyOrder::Uniform,
            length: RunLength::Time(Duration::from_secs(5)),
            warmup: Duration::ZERO,
            rate: None,
            reply_timeout: Duration::from_millis(100),
            segmentation_offload: true,
        }
    }

    /// Runs this load on the calling thread. `observe` is called several times a second, and may end the run early.
    ///
    /// An error means that the run never began. What ends it later is the [`failure`](LoadReport::failure) of the
    /// report, beside what was measured until then.
    pub fn run<P: Protocol>(
        &self,
        protocol: &P,
        observe: &mut dyn FnMut(&RunProgress<'_>) -> ControlFlow<()>,
    ) -> Result<LoadReport, LoadError> {
        let mut generator = Generator::connect(self, protocol)?;
        let failure = generator.drive(observe).err();
        Ok(generator.into_report(failure))
    }
}
