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
            let start = answered.taken;
            let mut batch = Batch { asked: ArrayVec::new(), commands: ArrayVec::new() };
            while !batch.commands.is_full() {
                match decode(&inbox[answered.taken..]) {
                    Ok(Some((request, len))) => {
                        self.add(&request, &mut batch);
                        answered.taken += len;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        answered.is_broken = true;
                        break;
                    }
                }
            }
            let more = batch.commands.is_full();
            outcomes.clear();
            let requests = &inbox[start..answered.taken];
            self.service.run_quota_commands(&batch.commands, requests, outcomes).await;
            if decision_log::is_on() {
                log(requests, outcomes);
            }
            self.reply(&batch.asked, outcomes, outbox);
            if !more {
                return answered;
            }
        }
    }

    fn add<'a>(&self, request: &ThrottrRequest<'a>, batch: &mut Batch<'a>) {
        // An update that is not defined reads the pair in its turn, and fails.
        let operation = self.operation(&request.command).unwrap_or(QuotaOperation::Query);
        let ttl_max = self.settings.max_ttl;
        batch.commands.push(QuotaCommand { pair: request.key.bytes(), operation, ttl_max });
        let is_query = matches!(request.command, ThrottrCommand::Query);
        batch.asked.push(Asked { id: request.id, is_query });
    }

    /// Appends the replies to a batch, and counts them.
    fn reply(&self, asked: &[Asked], outcomes: &[QuotaOutcome], outbox: &mut Vec<u8>) {
        let mut failed = 0;
        for (Asked { id, is_query }, outcome) in asked.iter().zip(outcomes) {
            let reply = reply_to(*is_query, outcome);
            failed += u64::from(matches!(reply, ThrottrReply::Status(false)));
            encode(*id, &reply, outbox);
        }
        let metrics = &self.service.metrics.throttr;
        metrics.done.add(asked.len() as u64 - failed);
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

/// The requests that are run in one call.
struct Batch<'a> {
    asked: ArrayVec<Asked, BATCH>,
    commands: ArrayVec<QuotaCommand<'a>, BATCH>,
}

/// The parts of a request that its reply depends on.
struct Asked {
    id: u32,
    is_query: bool,
}

#[inline]
fn reply_to(is_query: bool, outcome: &QuotaOutcome) -> ThrottrReply {
    match outcome {
        QuotaOutcome::Done => ThrottrReply::Status(true),
        QuotaOutcome::Found { left, lifetime } if is_query => {
            ThrottrReply::Quota { left: *left, lifetime: *lifetime }
        }
        _ => ThrottrReply::Status(false),
    }
}

/// Returns the requests in these bytes with their replies. They are decoded once more, because hardly anybody logs or
/// records them, and keeping them for it would cost every request.
pub(super) fn answered_requests<'a>(
    requests: &'a [u8],
    outcomes: &'a [QuotaOutcome],
) -> impl Iterator<Item = (ThrottrRequest<'a>, ThrottrReply)> {
    let mut rest = requests;
    outcomes.iter().map_while(move |outcome| {
        let (request, len) = decode(rest).ok()??;
        rest = &rest[len..];
        let is_query = matches!(request.command, ThrottrCommand::Query);
        Some((request, reply_to(is_query, outcome)))
    })
}

#[cold]
fn log(requests: &[u8], outcomes: &[QuotaOutcome]) {
    answered_requests(requests, outcomes).for_each(|(request, reply)| decision_log::quota(&request, &reply));
}
