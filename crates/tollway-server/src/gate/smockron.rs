//! Smockron over ZeroMQ: gatekeepers report what they let through at one address, and hear of delays at another.
//!
//! Each address is a gate of its own; both share a [`Master`]. No gatekeeper holds up another: reports are read when
//! they arrive and recorded in turn, and what is published goes through a queue per subscriber. ZMTP is decoded by
//! `tollway_wire::zmtp`, which believes no length that a peer announces.

mod accounting;
mod backlog;
mod control;
mod in_flight;
mod publisher;
mod reminders;
mod statsd;
mod subscriber;

use std::io;
use std::sync::Arc;

use tollway::engine::Engine;
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::{ZmtpEvent, ZmtpSession};

pub(super) use self::accounting::Accounting;
pub(super) use self::control::Control;
use self::publisher::Publisher;
use self::statsd::Statsd;
pub(crate) use self::subscriber::Subscription;
use super::connection::{Missing, Next};
use crate::bounds::Bounds;
use crate::metrics::SmockronCounters;
use crate::service::SmockronService;

/// The name of the gate that gatekeepers report to.
pub(crate) const ACCOUNTING: &str = "smockron (accounting)";
/// The name of the gate that publishes delays.
pub(crate) const CONTROL: &str = "smockron (control)";

/// The state that both gates of all workers share.
pub(crate) struct Master {
    pub(crate) publisher: Arc<Publisher>,
    statsd: Option<Statsd>,
}

impl Master {
    pub(crate) fn new(bounds: &Bounds, limiter: &Arc<Engine>, statsd: Option<&str>) -> io::Result<Arc<Self>> {
        let publisher = Arc::new(Publisher::new(bounds, Arc::clone(limiter)));
        Ok(Arc::new(Self { publisher, statsd: statsd.map(Statsd::find).transpose()? }))
    }

    /// Records the requests of these messages, and publishes the delays that follow.
    pub(crate) async fn account<'m, M: IntoIterator<Item = &'m [u8]>>(
        &self,
        service: &SmockronService,
        messages: impl IntoIterator<Item = M>,
    ) {
        let metrics = service.metrics();
        let mut lines = self.statsd.as_ref().map(|statsd| statsd.lines(metrics));
        let publish = |delays: &[ControlMessage<'_>]| self.publisher.publish(delays, metrics);
        let observe = |status, delayed_by| {
            if let Some(lines) = &mut lines {
                lines.request(status, delayed_by);
            }
        };
        let _in_flight = self.publisher.begin_report();
        service.account(messages, self.publisher.wall_offset(), publish, observe).await;
    }
}

/// Passes every event in `input` to `on_event`. Returns the number of bytes that were decoded, and whether the rest is
/// not ZMTP.
fn decode_all<'a>(
    session: &mut ZmtpSession,
    input: &'a [u8],
    mut on_event: impl FnMut(ZmtpEvent<'a>),
) -> (usize, bool) {
    let mut taken = 0;
    loop {
        match session.next(&input[taken..]) {
            Ok(Some((event, len))) => {
                taken += len;
                on_event(event);
            }
            Ok(None) => return (taken, false),
            Err(_) => return (taken, true),
        }
    }
}

/// Returns what follows after everything that has arrived is decoded.
fn zmtp_next(session: &ZmtpSession, unfinished: bool, is_broken: bool, metrics: &SmockronCounters) -> Next {
    if is_broken {
        metrics.broken.one();
        Next::Refuse
    } else if unfinished || !session.is_ready() {
        Next::Read(Missing::Frame)
    } else {
        Next::Read(Missing::Nothing)
    }
}
