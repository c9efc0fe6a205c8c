//! Records what gatekeepers report, in one call, and returns the delays that follow.

use std::sync::Arc;
use std::time::Instant;

use tollway::clock::WallOffset;
use tollway::reports::Report;
use tollway_core::{Domain, LogThrottle, Nanos, Timestamp};
use tollway_wire::smockron::{AccountingError, AccountingMessage, AccountingStatus, ControlMessage};
use tracing::warn;

use super::counted_policy::Counted;
use super::{CountedPolicy, Service};
use crate::bounds::LOG_PAUSE;
use crate::gate::smockron::ACCOUNTING;
use crate::metrics::{DomainCounters, Malformed, SmockronCounters};

const MILLISECOND: u64 = 1_000_000;

/// Records the reports that one worker has read.
pub(crate) struct SmockronService {
    service: Arc<Service>,
    throttle: LogThrottle,
}

impl SmockronService {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, throttle: LogThrottle::new(LOG_PAUSE, Instant::now()) }
    }

    pub(crate) fn metrics(&self) -> &SmockronCounters {
        &self.service.metrics.smockron
    }

    /// Records the requests of these messages, and calls `publish` with the delays that follow, in times of the store.
    /// Requests are counted when that is done, and passed to `observe` with the time for which they were delayed.
    pub(crate) async fn account<'a, M: IntoIterator<Item = &'a [u8]>>(
        &self,
        messages: impl IntoIterator<Item = M>,
        offset: WallOffset,
        publish: impl FnOnce(&[ControlMessage<'_>]),
        observe: impl FnMut(AccountingStatus, Option<Nanos>),
    ) {
        let policy = self.service.policy();
        let (mut requests, mut reports) = (Vec::new(), Vec::new());
        for message in messages {
            match ReportedRequest::new(&policy, message) {
                Ok(request) => {
                    reports.extend(request.report(offset));
                    requests.push(request);
                }
                Err(why) => self.ignore(why),
            }
        }
        if !reports.is_empty() {
            let mut next_allowed = Vec::with_capacity(reports.len());
            self.service.limiter.record_reports(&reports, &mut next_allowed).await;
            let delays = reports.iter().zip(next_allowed).filter_map(|(report, next_allowed_at)| {
                Some(control_message(report.domain.name().as_bytes(), report.identifier, next_allowed_at?))
            });
            publish(&delays.collect::<Vec<_>>());
        }
        self.count(&policy, &requests, observe);
    }

    fn ignore(&self, why: Malformed) {
        self.metrics().malformed[why as usize].one();
        if let Some(held_back) = self.throttle.allow(Instant::now()) {
            warn!(held_back, reason = why.name(), "ignored malformed accounting messages");
        }
    }

    fn count(
        &self,
        policy: &CountedPolicy,
        requests: &[ReportedRequest<'_>],
        mut observe: impl FnMut(AccountingStatus, Option<Nanos>),
    ) {
        let mut decided = self.service.decided(ACCOUNTING, policy);
        for ReportedRequest { message, counters, .. } in requests {
            let delayed_by = match message.status {
                AccountingStatus::Delayed { received, until } => {
                    Some(Nanos::from_millis(until.saturating_sub(received)))
                }
                AccountingStatus::Accepted { .. } | AccountingStatus::Rejected { .. } => None,
            };
            if let Some(delay) = delayed_by {
                self.metrics().delays.record(delay.into());
            }
            decided.report(counters, message, delayed_by);
            observe(message.status, delayed_by);
        }
    }
}

/// One request that a gatekeeper reported, with its domain.
struct ReportedRequest<'a> {
    message: AccountingMessage<'a>,
    domain: &'a Domain,
    counters: &'a Counted<DomainCounters>,
}

impl<'a> ReportedRequest<'a> {
    fn new<'m: 'a>(
        policy: &'a CountedPolicy,
        message: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<Self, Malformed> {
        let message: AccountingMessage<'a> =
            AccountingMessage::decode(message).map_err(|error| match error {
                AccountingError::TooShort { .. } => Malformed::Frames,
                AccountingError::UnknownStatus => Malformed::Status,
                _ => Malformed::Time,
            })?;
        let (domain, counters) = policy.domain(message.domain).ok_or(Malformed::Domain)?;
        Ok(Self { message, domain, counters })
    }

    /// Returns what is recorded. A rejected request is not: it used nothing.
    fn report(&self, offset: WallOffset) -> Option<Report<'a>> {
        let at = match self.message.status {
            AccountingStatus::Accepted { received } => received,
            AccountingStatus::Delayed { until, .. } => until,
            AccountingStatus::Rejected { .. } => return None,
        };
        let at = Timestamp::EPOCH + Nanos::from_millis(offset.from_wall_millis(at));
        Some(Report { domain: self.domain, identifier: self.message.identifier, at })
    }
}

/// Returns a delay until this time of the store, in whole milliseconds, rounded up: a request that is early would be
/// delayed again.
pub(crate) fn control_message<'a>(
    domain: &'a [u8],
    identifier: &'a [u8],
    next_allowed_at: Timestamp,
) -> ControlMessage<'a> {
    ControlMessage { domain, identifier, delay_until: next_allowed_at.as_nanos().div_ceil(MILLISECOND) }
}
