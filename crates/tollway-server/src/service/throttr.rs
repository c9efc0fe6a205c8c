//! The Throttr protocol's requests, as many as have arrived.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollway::config::OnInsert;
use tollway_core::algorithm::{Change, QuotaCommand, QuotaOperation, QuotaOutcome};
use tollway_wire::throttr::{ThrottrCommand, ThrottrReply, ThrottrRequest, decode, encode};

use super::Service;

/// How many requests are looked up together.
const BATCH: usize = 64;

/// One worker's way from requests to replies.
pub(crate) struct ThrottrService {
    service: Arc<Service>,
    on_insert: OnInsert,
}

/// What became of the bytes that had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// How many of them were requests, all of which are answered.
    pub(crate) taken: usize,
    /// What follows is no request: nothing after it can be understood.
    pub(crate) broken: bool,
}

impl ThrottrService {
    pub(crate) fn new(service: Arc<Service>, on_insert: OnInsert) -> Self {
        Self { service, on_insert }
    }

    /// Is an answer something to wait for?
    pub(crate) fn waits(&self) -> bool {
        self.service.limiter.is_shared()
    }

    /// Answers every whole request in `inbox`, in order. `outcomes` is where they are gathered, kept between calls to spare
    /// an allocation each.
    pub(crate) async fn answer(
        &self,
        inbox: &[u8],
        outbox: &mut Vec<u8>,
        outcomes: &mut Vec<QuotaOutcome>,
    ) -> Heard {
        let mut heard = Heard { taken: 0, broken: false };
        loop {
            let mut requests: ArrayVec<ThrottrRequest<'_>, BATCH> = ArrayVec::new();
            while !requests.is_full() {
                match decode(&inbox[heard.taken..]) {
                    Ok(Some((request, len))) => {
                        requests.push(request);
                        heard.taken += len;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        heard.broken = true;
                        break;
                    }
                }
            }
            let more = requests.is_full();
            self.answer_batch(&requests, outbox, outcomes).await;
            if !more {
                return heard;
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
            // What makes no sense still has its turn: it reads, and is told that it failed.
            let operation = self.operation(&request.command).unwrap_or(QuotaOperation::Query);
            commands.push(QuotaCommand { pair: request.key.bytes(), operation });
        }
        outcomes.clear();
        self.service.limiter.run_quota_commands(&commands, outcomes).await;
        let mut failed = 0;
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
            encode(request.id, &reply, outbox);
        }
        let metrics = &self.service.metrics.throttr;
        metrics.done.add(requests.len() as u64 - failed);
        metrics.failed.add(failed);
    }

    /// `None` for an attribute or a change that there is not.
    fn operation(&self, command: &ThrottrCommand) -> Option<QuotaOperation> {
        Some(match *command {
            ThrottrCommand::Insert { quota, lifetime } => {
                let over_live = self.on_insert == OnInsert::Reset;
                QuotaOperation::Insert { left: quota, lifetime, over_live }
            }
            ThrottrCommand::Query => QuotaOperation::Query,
            ThrottrCommand::Update { attribute, change, value } => {
                let change = match change {
                    ThrottrCommand::CHANGE_PATCH => Change::Patch,
                    ThrottrCommand::CHANGE_INCREASE => Change::Increase,
                    ThrottrCommand::CHANGE_DECREASE => Change::Decrease,
                    _ => return None,
                };
                match attribute {
                    ThrottrCommand::ATTRIBUTE_QUOTA => QuotaOperation::ChangeLeft { change, value },
                    ThrottrCommand::ATTRIBUTE_TTL => QuotaOperation::ChangeLifetime { change, value },
                    _ => return None,
                }
            }
            ThrottrCommand::Purge => QuotaOperation::Purge,
        })
    }
}
