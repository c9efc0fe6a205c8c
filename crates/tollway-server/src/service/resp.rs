//! Answers the commands of Redis clients, as many as have arrived.
//!
//! ```text
//! CL.THROTTLE  THROTTLE  TOLL SPEND  PING  …   collected, up to 64, and settled in one call
//! negative quantities, TOLL CHECK, DEL, TTL …  one call each, after what was collected before them
//! MULTI … EXEC                                 kept as bytes, and executed at EXEC
//! ```

mod alone;
mod collector;
mod connection;

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollway_core::{Bill, Charge, Decision, InlineLimit};
use tollway_wire::resp::{self, ReplyWriter, ThrottleRequest, ThrottleTemplate, ThrottleUse};

use self::collector::{Asked, Collected, Collector, Stop};
pub(crate) use self::connection::RespConnection;
use self::connection::Transaction;
use super::{CountedPolicy, Service};
use crate::bounds::Bounds;
use crate::caller::Authenticator;
use crate::metrics::LimitCounters;

/// The number of commands that are settled in one call.
const BATCH: usize = 64;

/// Answers the RESP commands of one worker.
pub(crate) struct RespService {
    service: Arc<Service>,
    settings: RespSettings,
    auth: Authenticator,
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
    /// The numbers that came last, on any connection. On the heap, because these buffers are moved for every read.
    template: Option<Box<ThrottleTemplate>>,
}

/// The reason why no more commands were answered.
enum End {
    Incomplete,
    OutboxFull,
    /// A transaction is to be executed.
    Execute,
    /// All commands of a transaction are executed.
    Executed,
    Close,
}

impl RespSettings {
    pub(crate) const fn new(allow_inline: bool, bounds: &Bounds) -> Self {
        Self { allow_inline, transaction_max: bounds.transaction, outbox_max: bounds.outbox }
    }
}

impl RespService {
    pub(crate) fn new(service: Arc<Service>, settings: RespSettings, auth: Authenticator) -> Self {
        let inline = InlineLimit::default();
        let inline_counters = service.metrics.limit(inline.limit().name());
        Self { service, settings, auth, inline, inline_counters }
    }

    /// Returns whether the gate asks for a token that the client has not sent yet.
    pub(crate) const fn must_log_in(&self, connection: &RespConnection) -> bool {
        self.auth.tokens().is_some() && connection.token.is_none()
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
            let end = match connection.executing.take() {
                Some(transaction) => self.execute(&policy, connection, transaction, outbox, scratch).await,
                None => {
                    let (len, end) = self.run(&policy, connection, &inbox[taken..], outbox, scratch).await;
                    taken += len;
                    end
                }
            };
            let next = match end {
                End::Incomplete => RespNext::Read,
                End::OutboxFull => RespNext::Again,
                End::Close => RespNext::Close,
                // A client may send many short transactions with long replies.
                End::Execute | End::Executed if outbox.len() > self.settings.outbox_max => RespNext::Again,
                End::Execute | End::Executed => continue,
            };
            return RespAnswered { taken, next };
        }
    }

    /// Executes the commands of a transaction, until all are executed or their replies have to be sent first: a few
    /// bytes can ask for a long reply, so the replies of a whole transaction can be far longer than it is.
    async fn execute(
        &self,
        policy: &CountedPolicy,
        connection: &mut RespConnection,
        mut transaction: Box<Transaction>,
        outbox: &mut Vec<u8>,
        scratch: &mut RespScratch,
    ) -> End {
        let rest = &transaction.bytes[transaction.executed..];
        let (len, end) = self.run(policy, connection, rest, outbox, scratch).await;
        transaction.executed += len;
        match end {
            End::Incomplete => End::Executed,
            End::OutboxFull => {
                connection.executing = Some(transaction);
                End::OutboxFull
            }
            end => end,
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
        let (mut taken, mut words, mut collected) = (0, None, Collected::default());
        loop {
            // Before each batch: a pipeline may be long, and a token that is removed meanwhile must not go on.
            if let Some(tokens) = self.auth.tokens() {
                tokens.renew(&mut connection.token);
            }
            let RespScratch { prepared, template, .. } = scratch;
            let mut collector = Collector::new(self, policy, connection, prepared, template, &mut collected);
            let stop = collector.collect(inbox, &mut taken, &mut words);
            collector.count();
            let mut reply = ReplyWriter::new(outbox, connection.version);
            self.settle(policy, &collected, scratch, &mut reply).await;
            match stop {
                Stop::Full => {}
                Stop::Incomplete => return (taken, End::Incomplete),
                Stop::Execute => {
                    self.service.metrics.resp.commands.one();
                    if let Some(transaction) = connection.transaction.take() {
                        reply.array(transaction.commands);
                        connection.executing = Some(transaction);
                    }
                    return (taken, End::Execute);
                }
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
        collected: &Collected<'_>,
        scratch: &mut RespScratch,
        reply: &mut ReplyWriter<'_>,
    ) {
        let RespScratch { decisions, prepared, .. } = scratch;
        let Collected { asked, requests } = collected;
        // Filled where they stay: collecting would copy their whole capacity, which took longer than one decision.
        let mut charges = ArrayVec::<Charge<'_>, BATCH>::new();
        charges.extend(asked.iter().filter_map(|asked| self.charge(asked, requests)));
        let mut bills = ArrayVec::<Bill<'_>, BATCH>::new();
        bills.extend(charges.iter().map(Bill::one));
        decisions.clear();
        let began = self.service.began();
        if !bills.is_empty() {
            self.service.settle_charges(policy, &charges, &bills, decisions).await;
        }
        if !charges.is_empty() {
            let spans = self.service.span_recorder(began, None);
            let mut decided = self.service.decided("resp", policy).with_spans(spans);
            charges.iter().zip(&*decisions).for_each(|(charge, decision)| decided.spend(charge, decision));
            decided.finish();
        }
        let mut decisions = decisions.iter();
        for asked in asked {
            let mut decision = || decisions.next().expect("every charge is decided");
            match asked {
                Asked::Prepared(range) => reply.written(&prepared[range.clone()]),
                Asked::Throttle { request, .. } => requests[*request].put_decision(decision(), reply),
                Asked::Toll(charge) => resp::put_decision(charge, decision(), reply),
            }
        }
    }

    /// Returns the charge of a command; `None` if its reply needs no store.
    fn charge<'c>(&'c self, asked: &'c Asked<'_>, requests: &'c [ThrottleRequest<'_>]) -> Option<Charge<'c>> {
        match asked {
            Asked::Prepared(_) => None,
            Asked::Toll(charge) => Some(charge.held_to(charge.algorithm())),
            Asked::Throttle { key, request } => {
                let request = &requests[*request];
                let cost = match request.usage() {
                    ThrottleUse::Spend(cost) => cost,
                    ThrottleUse::TooMuch | ThrottleUse::GiveBack(_) => 0,
                };
                let charge = self.inline.charge(request.inline.algorithm(), key, cost);
                Some(charge.expect("what is above the burst is only looked at"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollway::config::WatchSettings;
    use tollway::engine::Engine;
    use tollway::{Clock, Config, block_on};
    use tollway_core::Timestamp;

    use super::*;
    use crate::audit::Auditor;
    use crate::metrics::WorkerMetrics;
    use crate::tap::Tap;
    use crate::watch::Watch;

    fn service() -> RespService {
        let config = Config::parse("limits: {}", "policy.yaml").unwrap();
        let limiter = Arc::new(Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap());
        let watch = Arc::new(Watch::new(WatchSettings::DEFAULT, 1));
        let service = Arc::new(Service::new(
            Arc::clone(&limiter),
            Arc::new(WorkerMetrics::default()),
            Arc::clone(&watch),
            Arc::new(Tap::new(Arc::clone(&limiter), 0)),
            Auditor::new(Arc::default(), limiter, watch),
            0,
        ));
        let settings = RespSettings::new(true, &Bounds::default());
        RespService::new(service, settings, Authenticator::open("resp"))
    }

    /// A list of all commands is some hundred times as long as the command that asks for it.
    #[test]
    fn the_replies_of_a_transaction_are_sent_in_parts() {
        let (resp, mut one) = (service(), Vec::new());
        resp::put_commands(&mut ReplyWriter::new(&mut one, Default::default()));

        let (connection, scratch) = (&mut RespConnection::new(None), &mut RespScratch::default());
        let commands = 10_000;
        let inbox = ["MULTI\n", &"COMMAND\n".repeat(commands), "EXEC\nPING\n"].concat();
        let (mut rest, mut sent, mut outbox) = (inbox.as_bytes(), Vec::new(), Vec::new());
        loop {
            let answered = block_on(resp.answer(connection, rest, &mut outbox, scratch));
            rest = &rest[answered.taken..];
            assert!(outbox.len() <= Bounds::default().outbox + BATCH * one.len(), "{}", outbox.len());
            sent.append(&mut outbox);
            if answered.next == RespNext::Read {
                break;
            }
            assert_eq!(answered.next, RespNext::Again);
        }
        let queued = "+QUEUED\r\n".repeat(commands);
        let start = format!("+OK\r\n{queued}*{commands}\r\n");
        assert!(rest.is_empty() && sent.starts_with(start.as_bytes()));
        let replies = &sent[start.len()..];
        let (replies, pong) = replies.split_at(commands * one.len());
        assert!(replies.chunks(one.len()).all(|reply| reply == one));
        assert_eq!(pong, b"+PONG\r\n", "what comes after the transaction is answered after it");
    }

    #[test]
    fn the_replies_of_many_transactions_are_sent_in_parts() {
        let (resp, mut one) = (service(), Vec::new());
        resp::put_commands(&mut ReplyWriter::new(&mut one, Default::default()));
        let (connection, scratch) = (&mut RespConnection::new(None), &mut RespScratch::default());
        let inbox = ["MULTI\n", &"COMMAND\n".repeat(60), "EXEC\n"].concat().repeat(32);
        let (mut rest, mut outbox, mut sent) = (inbox.as_bytes(), Vec::new(), 0);
        loop {
            let answered = block_on(resp.answer(connection, rest, &mut outbox, scratch));
            rest = &rest[answered.taken..];
            assert!(outbox.len() <= Bounds::default().outbox + BATCH * one.len(), "{}", outbox.len());
            sent += std::mem::take(&mut outbox).len();
            if answered.next == RespNext::Read {
                break;
            }
        }
        assert!(rest.is_empty() && sent > 32 * 60 * one.len(), "{sent}");
    }

    #[test]
    fn a_transaction_is_as_old_as_its_own_start() {
        let (resp, connection, mut outbox) = (service(), &mut RespConnection::new(None), Vec::new());
        let mut began_after = |commands: &str| {
            block_on(resp.answer(connection, commands.as_bytes(), &mut outbox, &mut RespScratch::default()));
            connection.transaction_began()
        };
        let first = began_after("MULTI\n");
        assert!(first.is_some());
        assert_eq!(began_after("PING\nMULTI\n"), first);
        let second = began_after("EXEC\nMULTI\n");
        assert!(second > first, "the one before it has ended in the same read");
        assert_eq!(began_after("NONSENSE\n"), second, "also one that is refused");
        assert_eq!(began_after("DISCARD\n"), None);
    }

    #[test]
    fn a_transaction_that_was_refused_keeps_no_commands() {
        let (resp, connection, mut outbox) = (service(), &mut RespConnection::new(None), Vec::new());
        let inbox = ["MULTI\nPING\nNONSENSE\n", &"PING\n".repeat(1_000)].concat();
        block_on(resp.answer(connection, inbox.as_bytes(), &mut outbox, &mut RespScratch::default()));
        assert_eq!(connection.transaction.as_ref().map(|kept| kept.bytes.capacity()), Some(0));
        assert!(outbox.ends_with(b"+QUEUED\r\n"));
    }
}
