//! Answers the commands of Redis clients, as many as have arrived.
//!
//! ```text
//! CL.THROTTLE  THROTTLE  TOLL SPEND  PING  …   collected, up to 64, and settled in one call
//! negative quantities, TOLL CHECK, DEL, TTL …  one call each, after what was collected before them
//! MULTI … EXEC                                 kept as bytes, and answered together at EXEC
//! ```

mod alone;
mod collector;
mod connection;

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollway_core::{Bill, Charge, Decision, InlineLimit, Verb};
use tollway_wire::resp::{self, ReplyWriter, ThrottleUse, Words};

use self::collector::{Asked, Collector, Stop};
pub(crate) use self::connection::RespConnection;
use super::{CountedPolicy, Service};
use crate::bounds::Bounds;
use crate::decision_log;
use crate::metrics::{LimitCounters, SpendTally};

/// The number of commands that are settled in one call.
const BATCH: usize = 64;

/// The name of the inline limit, whose buckets are those of keys.
const INLINE_NAME: &str = "throttle";

/// Answers the RESP commands of one worker.
pub(crate) struct RespService {
    service: Arc<Service>,
    settings: RespSettings,
    inline: InlineLimit,
    inline_counters: Arc<LimitCounters>,
}

/// The settings that a RESP gate has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RespSettings {
    /// True if clients may bring the numbers of limits.
    allow_inline: bool,
    /// The bytes that the commands of one transaction may have.
    transaction_max: usize,
    /// The bytes of replies after which the rest of what has arrived has to wait.
    outbox_max: usize,
}

/// Reports what became of the bytes that had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RespAnswered {
    /// The number of bytes that were commands, all of which are answered.
    pub(crate) taken: usize,
    pub(crate) next: RespNext,
}

/// Tells what follows after the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RespNext {
    /// The next command has not arrived.
    Read,
    /// The replies are sent first, and then the rest is answered.
    Again,
    /// The connection is closed.
    Close,
}

/// The buffers that commands are answered with. The caller keeps them to save allocations.
#[derive(Default)]
pub(crate) struct RespScratch {
    decisions: Vec<Decision>,
    /// The replies that need no store, until their turn comes.
    prepared: Vec<u8>,
}

/// The reason why no more commands were answered.
enum End {
    Incomplete,
    OutboxFull,
    Execute,
    Close,
}

impl RespSettings {
    pub(crate) const fn new(allow_inline: bool, bounds: &Bounds) -> Self {
        Self { allow_inline, transaction_max: bounds.transaction, outbox_max: bounds.outbox }
    }
}

impl RespService {
    pub(crate) fn new(service: Arc<Service>, settings: RespSettings) -> Self {
        let inline = InlineLimit::new(INLINE_NAME).expect("the name is one of a limit");
        let inline_counters = service.metrics.limit(inline.limit().name());
        Self { service, settings, inline, inline_counters }
    }

    /// Answers every complete command in `inbox`, in order.
    pub(crate) async fn answer(
        &self,
        connection: &mut RespConnection,
        inbox: &[u8],
        outbox: &mut Vec<u8>,
        scratch: &mut RespScratch,
    ) -> RespAnswered {
        let policy = self.service.policy();
        let mut taken = 0;
        loop {
            let (len, end) = self.run(&policy, connection, &inbox[taken..], outbox, scratch).await;
            taken += len;
            let next = match end {
                End::Incomplete => RespNext::Read,
                End::OutboxFull => RespNext::Again,
                End::Close => RespNext::Close,
                End::Execute if self.execute(&policy, connection, outbox, scratch).await => continue,
                End::Execute => RespNext::Close,
            };
            return RespAnswered { taken, next };
        }
    }

    /// Executes the commands of a transaction. Returns false if one of them closes the connection.
    async fn execute(
        &self,
        policy: &CountedPolicy,
        connection: &mut RespConnection,
        outbox: &mut Vec<u8>,
        scratch: &mut RespScratch,
    ) -> bool {
        let Some(transaction) = connection.transaction.take() else { return true };
        ReplyWriter::new(outbox, connection.version).array(transaction.commands);
        let mut rest = &*transaction.bytes;
        loop {
            let (len, end) = self.run(policy, connection, rest, outbox, scratch).await;
            rest = &rest[len..];
            match end {
                // The array has been begun, so all of it is written.
                End::OutboxFull => {}
                End::Incomplete | End::Execute => return true,
                End::Close => return false,
            }
        }
    }

    /// Answers commands until something ends that. Returns the number of bytes that they had.
    async fn run(
        &self,
        policy: &CountedPolicy,
        connection: &mut RespConnection,
        inbox: &[u8],
        outbox: &mut Vec<u8>,
        scratch: &mut RespScratch,
    ) -> (usize, End) {
        let (mut taken, mut words) = (0, Words::new());
        loop {
            let mut collector = Collector::new(self, policy, connection, &mut scratch.prepared);
            let stop = collector.collect(inbox, &mut taken, &mut words);
            let (asked, errors) = collector.finish();
            self.service.metrics.resp.commands.add(asked.len() as u64);
            self.service.metrics.resp.errors.add(errors);
            let mut reply = ReplyWriter::new(outbox, connection.version);
            self.settle(policy, &asked, scratch, &mut reply).await;
            match stop {
                Stop::Full => {}
                Stop::Incomplete => return (taken, End::Incomplete),
                Stop::Execute => return (taken, End::Execute),
                Stop::Close => return (taken, End::Close),
                Stop::Alone(command) => self.answer_alone(policy, connection, command, &mut reply).await,
            }
            if outbox.len() > self.settings.outbox_max {
                return (taken, End::OutboxFull);
            }
        }
    }

    /// Settles what was collected in one call, and writes all replies.
    async fn settle(
        &self,
        policy: &CountedPolicy,
        asked: &[Asked<'_>],
        scratch: &mut RespScratch,
        reply: &mut ReplyWriter<'_>,
    ) {
        let RespScratch { decisions, prepared } = scratch;
        let charges: ArrayVec<Charge<'_>, BATCH> =
            asked.iter().filter_map(|asked| self.charge(asked)).collect();
        let bills: ArrayVec<Bill<'_>, BATCH> = charges.iter().map(Bill::one).collect();
        decisions.clear();
        if !bills.is_empty() {
            self.service.limiter.settle_into(&bills, decisions).await;
        }
        if decision_log::is_on() {
            for (charge, decision) in charges.iter().zip(&*decisions) {
                decision_log::limit("resp", Verb::Spend, std::slice::from_ref(charge), decision);
            }
        }
        let (mut decided, mut tally) = (decisions.iter(), SpendTally::default());
        for asked in asked {
            let mut decision = || decided.next().expect("every charge is decided");
            match asked {
                Asked::Prepared(range) => reply.written(&prepared[range.clone()]),
                Asked::Throttle(request) => {
                    let decision = decision();
                    tally.add(decision);
                    request.put_decision(decision, reply);
                }
                Asked::Toll(charge) => {
                    let decision = decision();
                    policy.limit_counters(charge.limit().index()).spent(decision);
                    resp::put_decision(std::slice::from_ref(charge), decision, reply);
                }
            }
        }
        self.inline_counters.spent_all(&tally);
    }

    /// Returns the charge of a command; `None` if its reply needs no store.
    fn charge<'c>(&'c self, asked: &'c Asked<'_>) -> Option<Charge<'c>> {
        match asked {
            Asked::Prepared(_) => None,
            Asked::Toll(charge) => Some(charge.held_to(charge.algorithm())),
            Asked::Throttle(request) => {
                let cost = match request.usage() {
                    ThrottleUse::Spend(cost) => cost,
                    ThrottleUse::TooMuch | ThrottleUse::GiveBack(_) => 0,
                };
                let charge = self.inline.charge(&request.numbers, request.key, cost);
                Some(charge.expect("what is above the burst is only looked at"))
            }
        }
    }
}
