//! Runs the requests of the Throttr protocol, as many as have arrived.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollway::config::{OnInsert, ThrottrSettings};
use tollway_core::algorithm::{QuotaCommand, QuotaOperation, QuotaOutcome};
use tollway_wire::throttr::{QuotaAttribute, ThrottrCommand, ThrottrReply, ThrottrRequest, decode, encode};

use super::Service;
use crate::decision_log;

/// The number of requests that are run in one call.
const BATCH: usize = 64;

/// Answers the Throttr requests of one worker.
pub(crate) struct ThrottrService {
    service: Arc<Service>,
    settings: ThrottrSettings,
}

/// Reports what became of the bytes that had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottrAnswered {
    /// The number of bytes that were requests, all of which are answered.
    pub(crate) taken: usize,
    /// True if the rest starts with no request: nothing after it can be decoded.
    pub(crate) is_broken: bool,
}

impl ThrottrService {
    pub(crate) fn new(service: Arc<Service>, settings: ThrottrSettings) -> Self {
        Self { service, settings }
    }

    /// Answers every complete request in `inbox`, in order. `outcomes` is emptied and filled; the caller keeps it to
    /// save allocations.
    pub(crate) async fn answer(
        &self,
        inbox: &[u8],
        outbox: &mut Vec<u8>,
        outcomes: &mut Vec<QuotaOutcome>,
    ) -> ThrottrAnswered {
        let mut answered = ThrottrAnswered { taken: 0, is_broken: false };
        loop {
            let mut requests: ArrayVec<ThrottrRequest<'_>, BATCH> = ArrayVec::new();
            while !requests.is_full() {
                match decode(&inbox[answered.taken..]) {
                    Ok(Some((request, len))) => {
                        requests.push(request);
                        answered.taken += len;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        answered.is_broken = true;
                        break;
                    }
                }
            }
            let more = requests.is_full();
            self.answer_batch(&requests, outbox, outcomes).await;
            if !more {
                return answered;
            }
        }
    }

    async fn answer_batch(
        &self,
        requests: &[ThrottrRequest<'_>],
        outbox: &mut Vec<u8>,
        outcomes: &mut Vec<QuotaOutcome>,
    ) {
        let mut commands: ArrayVec<QuotaCommand<'_>, BATCH> = ArrayVec::new();
        for request in requests {
            // An update that is not defined reads the pair in its turn, and fails.
            let operation = self.operation(&request.command).unwrap_or(QuotaOperation::Query);
            let ttl_max = self.settings.max_ttl;
            commands.push(QuotaCommand { pair: request.key.bytes(), operation, ttl_max });
        }
        outcomes.clear();
        self.service.limiter.run_quota_commands(&commands, outcomes).await;
        if self.service.tap.sample().is_some() {
            self.service.tap.skip(requests.len() as u64);
        }
        let (mut failed, logs) = (0, decision_log::is_on());
        for (request, outcome) in requests.iter().zip(&*outcomes) {
            let reply = match outcome {
                QuotaOutcome::Done => ThrottrReply::Status(true),
                QuotaOutcome::Found { left, lifetime }
                    if matches!(request.command, ThrottrCommand::Query) =>
                {
                    ThrottrReply::Quota { left: *left, lifetime: *lifetime }
                }
                _ => ThrottrReply::Status(false),
            };
            failed += u64::from(matches!(reply, ThrottrReply::Status(false)));
            if logs {
                decision_log::quota(request, &reply);
            }
            encode(request.id, &reply, outbox);
        }
        let metrics = &self.service.metrics.throttr;
        metrics.done.add(requests.len() as u64 - failed);
        metrics.failed.add(failed);
    }

    /// Returns the operation of a command, or `None` for an update that is not defined.
    fn operation(&self, command: &ThrottrCommand) -> Option<QuotaOperation> {
        Some(match *command {
            ThrottrCommand::Insert { quota, lifetime } => {
                let over_live = self.settings.on_insert == OnInsert::Reset;
                QuotaOperation::Insert { left: quota, lifetime, over_live }
            }
            ThrottrCommand::Query => QuotaOperation::Query,
            ThrottrCommand::Update { attribute: QuotaAttribute::Quota, change, value } => {
                QuotaOperation::ChangeLeft { change, value }
            }
            ThrottrCommand::Update { attribute: QuotaAttribute::Ttl, change, value } => {
                QuotaOperation::ChangeLifetime { change, value }
            }
            ThrottrCommand::UndefinedUpdate { .. } => return None,
            ThrottrCommand::Purge => QuotaOperation::Purge,
        })
    }
}
