//! What gatekeepers report, entered in one call, and what they are told for it.

mod delays;
mod hub;
mod mailbox;
mod statsd;

use std::sync::{Arc, Mutex, PoisonError};

use tollway::reports::Report;
use tollway_core::{Domain, Nanos, Timestamp};
use tollway_wire::smockron::{AccountingError, AccountingMessage, AccountingStatus, ControlMessage};
use tracing::warn;

pub(crate) use self::hub::Hub;
pub(crate) use self::mailbox::Subscription;
pub(crate) use self::statsd::Statsd;
use super::{InForce, Service};
use crate::metrics::{DomainCounters, Malformed};
use crate::occasion::Occasion;

const MILLISECOND: u64 = 1_000_000;

/// One worker's way from what was accounted for to what is published.
pub(crate) struct SmockronService {
    service: Arc<Service>,
    hub: Arc<Hub>,
    statsd: Option<Statsd>,
    trouble: Mutex<Occasion>,
}

impl SmockronService {
    pub(crate) fn new(service: Arc<Service>, hub: Arc<Hub>, statsd: Option<Statsd>) -> Self {
        Self { service, hub, statsd, trouble: Mutex::default() }
    }

    /// Is the store something to wait for?
    pub(crate) fn waits(&self) -> bool {
        self.service.limiter.is_shared()
    }

    pub(crate) const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Enters the requests of these messages, and publishes whom to delay. They are counted when that is done.
    pub(crate) async fn account<'a, M: IntoIterator<Item = &'a [u8]>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) {
        let in_force = self.service.in_force();
        let (mut understood, mut accounts) = (Vec::new(), Vec::new());
        for message in messages {
            match Understood::new(&in_force, message) {
                Ok(request) => {
                    accounts.extend(request.account());
                    understood.push(request);
                }
                Err(why) => self.ignore(why),
            }
        }
        if !accounts.is_empty() {
            let mut welcome = Vec::with_capacity(accounts.len());
            self.service.limiter.record_reports(&accounts, &mut welcome).await;
            self.publish(&accounts, &welcome);
        }
        self.count(&understood);
    }

    fn ignore(&self, why: Malformed) {
        self.service.metrics.smockron.malformed[why as usize].one();
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = trouble.now() {
            warn!(times, reason = why.name(), "ignored malformed accounting messages");
        }
    }

    fn publish(&self, accounts: &[Report<'_>], welcome: &[Option<Timestamp>]) {
        let controls: Vec<_> = accounts
            .iter()
            .zip(welcome)
            .filter_map(|(Report { domain, identifier, .. }, welcome)| {
                Some(control(domain.name().as_bytes(), identifier, (*welcome)?))
            })
            .collect();
        self.hub.publish(&controls, &self.service.metrics.smockron);
    }

    fn count(&self, understood: &[Understood<'_>]) {
        let metrics = &self.service.metrics.smockron;
        let mut lines = self.statsd.as_ref().map(|statsd| statsd.lines(metrics));
        for Understood { accounting: AccountingMessage { status, .. }, counters, .. } in understood {
            counters.requested(*status);
            let delayed_by = match *status {
                AccountingStatus::Delayed { received, until } => {
                    Some(Nanos::from_millis(until.saturating_sub(received)))
                }
                AccountingStatus::Accepted { .. } | AccountingStatus::Rejected { .. } => None,
            };
            if let Some(delay) = delayed_by {
                metrics.delays.record(delay.into());
            }
            if let Some(lines) = &mut lines {
                lines.request(*status, delayed_by);
            }
        }
    }
}

/// One request that is accounted for, and where it belongs.
struct Understood<'a> {
    accounting: AccountingMessage<'a>,
    domain: &'a Domain,
    counters: &'a DomainCounters,
}

impl<'a> Understood<'a> {
    fn new<'m: 'a>(
        in_force: &'a InForce,
        message: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<Self, Malformed> {
        let accounting: AccountingMessage<'a> =
            AccountingMessage::decode(message).map_err(|error| match error {
                AccountingError::TooShort { .. } => Malformed::Frames,
                AccountingError::UnknownStatus => Malformed::Status,
                _ => Malformed::Time,
            })?;
        let (domain, counters) = in_force.domain(accounting.domain).ok_or(Malformed::Domain)?;
        Ok(Self { accounting, domain, counters })
    }

    /// What it is entered as. One that was turned away is not: it used nothing up.
    fn account(&self) -> Option<Report<'a>> {
        let at = match self.accounting.status {
            AccountingStatus::Accepted { received } => received,
            AccountingStatus::Delayed { until, .. } => until,
            AccountingStatus::Rejected { .. } => return None,
        };
        let at = Timestamp::EPOCH + Nanos::from_millis(at);
        Some(Report { domain: self.domain, identifier: self.accounting.identifier, at })
    }
}

/// In whole milliseconds, rounded up: a request that is early would be delayed again.
pub(crate) fn control<'a>(domain: &'a [u8], identifier: &'a [u8], welcome: Timestamp) -> ControlMessage<'a> {
    ControlMessage { domain, identifier, delay_until: welcome.as_nanos().div_ceil(MILLISECOND) }
}
