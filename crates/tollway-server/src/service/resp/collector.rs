//! Collects commands that are settled together, and prepares the replies to those that need no store.

use std::fmt::Display;
use std::ops::Range;
use std::time::Instant;

use arrayvec::ArrayVec;
use tollway_core::{Charge, ChargeRequest, ErrorChain, InlineLimit, RuleRequest, Verb};
use tollway_wire::resp::{
    self, ClientCommand, CommandError, Decoded, Hello, ReplyWriter, RespCommand, ThrottleRequest,
    ThrottleTemplate, ThrottleUse, TollRequest, Words, decode,
};

use super::{BATCH, RespConnection, RespService, Transaction};
use crate::caller::AccessDenied;
use crate::service::CountedPolicy;
use crate::tokens::Scope;

/// The error of a client that brings its own numbers where that is not allowed.
const INLINE_DENIED: &str = "ERR this gate takes no numbers from clients; set \"inline: allow\" at gates.resp, or use \
                             TOLL with a configured limit";
/// The errors of clients that have to log in, in the words of Redis: clients look for the first one.
const NO_AUTH: &str = "NOAUTH Authentication required.";
pub(super) const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time";
const TOO_LONG_BEFORE_LOGIN: &str =
    "ERR Protocol error: a command is longer than 16 KiB; send AUTH before it";
/// The longest command of a client that has yet to log in, in bytes. A longer one would take memory for somebody who
/// may not do anything. Redis has the same bound.
const LOGIN_MAX: usize = 16 << 10;
/// The errors of clients that log in where nobody has to. There are no passwords, and the default user needs none.
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user; remove \
                           the password from the settings of the client, or send AUTH default <password>";
pub(super) const WRONG_USER: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const ONE_DATABASE: &str = "ERR DB index is out of range; there is only database 0";
const NO_DATABASE: &str = "ERR DB index must be an integer; there is only database 0";
const NESTED: &str = "ERR MULTI calls can not be nested";
const NOTHING_TO_EXECUTE: &str = "ERR EXEC without MULTI";
const NOTHING_TO_DISCARD: &str = "ERR DISCARD without MULTI";
const NOT_IN_TRANSACTION: &str = "ERR command not allowed inside a transaction";
const TRANSACTION_TOO_LONG: &str =
    "ERR the transaction is too long; send fewer commands between MULTI and EXEC";
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// The most requests with different numbers that are settled together. Nearly all commands have the numbers of the one
/// before them, and every byte that is kept for a batch costs time.
const NUMBERS_MAX: usize = 16;

/// The commands that are settled together.
#[derive(Default)]
pub(super) struct Collected<'a> {
    pub(super) asked: ArrayVec<Asked<'a>, BATCH>,
    /// The requests with different numbers.
    pub(super) requests: ArrayVec<ThrottleRequest<'a>, NUMBERS_MAX>,
}

impl Collected<'_> {
    const fn is_full(&self) -> bool {
        self.asked.is_full() || self.requests.is_full()
    }
}

/// A command whose reply is written when everything that was collected with it is settled.
pub(super) enum Asked<'a> {
    /// A request for the bucket of this key. Its numbers are at this place in [`Collected::requests`].
    Throttle { key: &'a [u8], request: usize },
    /// A spend of one charge.
    Toll(Charge<'a>),
    /// A reply that is ready: a part of [`RespScratch::prepared`](super::RespScratch::prepared).
    Prepared(Range<usize>),
}

/// The reason why no more commands are collected.
pub(super) enum Stop<'a> {
    /// The rest of the next command has not arrived.
    Incomplete,
    /// There is no room for more.
    Full,
    /// A command has to be answered by itself.
    Alone(Alone<'a>),
    /// A transaction is executed.
    Execute,
    /// The connection is closed.
    Close,
}

/// A command that is answered by itself, after those that came before it.
pub(super) enum Alone<'a> {
    /// Gives tokens back to the bucket of a key.
    GiveBack(ThrottleRequest<'a>, u64),
    /// Performs a verb on charges and rules of the policy.
    Toll(Verb, Vec<ChargeRequest<'a>>, Vec<RuleRequest<'a>>),
    /// Forgets the buckets of keys.
    Del(Vec<&'a [u8]>),
    /// Returns the time until the bucket of a key is full.
    Ttl { key: &'a [u8], millis: bool },
    /// Changes the version of the protocol, in which the replies before it are not written.
    Hello(Hello<'a>),
    /// Makes the connection as it was at its start.
    Reset,
}

/// Collects the commands of one connection.
pub(super) struct Collector<'s, 'a> {
    service: &'s RespService,
    policy: &'a CountedPolicy,
    connection: &'s mut RespConnection,
    prepared: &'s mut Vec<u8>,
    /// A place of the caller: returning it would copy all of it.
    collected: &'s mut Collected<'a>,
    /// The numbers that came last, on any connection of the worker.
    template: &'s mut Option<Box<ThrottleTemplate>>,
    /// The place of the template's request in what was collected; `None` if it is not there.
    template_request: Option<usize>,
    /// True if the client may send the commands of the template next, so that nothing has to be checked.
    trusts_template: bool,
    /// The commands that wait in a transaction. They count when they are executed.
    queued: u64,
    errors: u64,
}

impl<'s, 'a> Collector<'s, 'a> {
    pub(super) fn new(
        service: &'s RespService,
        policy: &'a CountedPolicy,
        connection: &'s mut RespConnection,
        prepared: &'s mut Vec<u8>,
        template: &'s mut Option<Box<ThrottleTemplate>>,
        collected: &'s mut Collected<'a>,
    ) -> Self {
        prepared.clear();
        collected.asked.clear();
        collected.requests.clear();
        let mut collector = Self {
            service,
            policy,
            connection,
            prepared,
            collected,
            template,
            template_request: None,
            trusts_template: false,
            queued: 0,
            errors: 0,
        };
        collector.trusts_template = collector.may_always_ask();
        collector
    }

    /// Counts what was collected.
    pub(super) fn count(&self) {
        let metrics = &self.service.service.metrics.resp;
        metrics.commands.add(self.collected.asked.len() as u64 - self.queued);
        metrics.errors.add(self.errors);
    }

    /// Collects the commands in `inbox` from `taken` on, which it moves behind them. The place for `words` is large, so
    /// it is only made for a command that the template does not parse.
    pub(super) fn collect(
        &mut self,
        inbox: &'a [u8],
        taken: &mut usize,
        words: &mut Option<Words<'a>>,
    ) -> Stop<'a> {
        while !self.collected.is_full() {
            let rest = &inbox[*taken..];
            if let Some(template) = self.template.as_ref().filter(|_| self.trusts_template)
                && let Some((key, len)) = template.parse(rest)
            {
                *taken += len;
                let requests = &mut self.collected.requests;
                let request = *self.template_request.get_or_insert_with(|| {
                    requests.push(*template.request());
                    requests.len() - 1
                });
                self.collected.asked.push(Asked::Throttle { key, request });
                continue;
            }
            if rest.is_empty() {
                return Stop::Incomplete;
            }
            let words = words.get_or_insert_with(Words::new);
            let decoded = decode(rest, words);
            let len = decoded.as_ref().map_or(0, |decoded| decoded.map_or(rest.len(), |(_, len)| len));
            if len > LOGIN_MAX && self.service.must_log_in(self.connection) {
                self.service.service.metrics.resp.broken.one();
                self.error(&TOO_LONG_BEFORE_LOGIN);
                return Stop::Close;
            }
            match decoded {
                Ok(None) => return Stop::Incomplete,
                Ok(Some((Decoded::Blank, len))) => *taken += len,
                Ok(Some((Decoded::Command, len))) => {
                    *taken += len;
                    if let Some(stop) = self.add(&rest[..len], words) {
                        return stop;
                    }
                }
                Ok(Some((Decoded::TooManyWords, len))) => {
                    *taken += len;
                    self.command_error(&CommandError::TooManyWords);
                }
                Err(error) => {
                    self.service.service.metrics.resp.broken.one();
                    self.error(&error);
                    return Stop::Close;
                }
            }
        }
        Stop::Full
    }

    /// Returns whether the client may send inline limits whatever it has sent before. With tokens, the command before
    /// has to be checked.
    fn may_always_ask(&self) -> bool {
        self.service.settings.allow_inline
            && self.service.auth.tokens().is_none()
            && !self.connection.is_in_transaction()
    }

    /// Adds one command, or returns why it ends what is collected.
    fn add(&mut self, bytes: &'a [u8], words: &Words<'a>) -> Option<Stop<'a>> {
        let stop = self.add_parsed(bytes, words);
        // A command may change what the next one may do: a transaction may begin, or another client log in.
        let is_of_template = matches!(
            self.collected.asked.last(),
            Some(Asked::Throttle { request, .. }) if self.template_request == Some(*request)
        );
        self.trusts_template = is_of_template || self.may_always_ask();
        stop
    }

    #[inline]
    fn add_parsed(&mut self, bytes: &'a [u8], words: &Words<'a>) -> Option<Stop<'a>> {
        let parsed = RespCommand::parse(words);
        if self.service.auth.tokens().is_some()
            && let Ok(command) = &parsed
            && let Err(denied) = self.check_access(command)
        {
            self.deny(&denied);
            return None;
        }
        match parsed {
            Ok(command) if self.connection.is_in_transaction() => self.add_in_transaction(command, bytes),
            Ok(RespCommand::Throttle(request)) if self.service.settings.allow_inline => {
                if let ThrottleUse::GiveBack(units) = request.usage() {
                    return Some(Stop::Alone(Alone::GiveBack(request, units)));
                }
                let place = self.collected.requests.len();
                self.collected.requests.push(request);
                self.collected.asked.push(Asked::Throttle { key: request.key, request: place });
                if let Some(template) = ThrottleTemplate::new(bytes, &request) {
                    match self.template {
                        Some(place) => **place = template,
                        None => *self.template = Some(Box::new(template)),
                    }
                    self.template_request = Some(place);
                }
                None
            }
            Ok(command) => self.add_other(command),
            Err(error) => {
                self.command_error(&error);
                error.closes().then_some(Stop::Close)
            }
        }
    }

    /// Answers a command that has an error. None of its transaction is executed.
    fn command_error(&mut self, error: &CommandError) {
        if let Some(transaction) = &mut self.connection.transaction {
            transaction.abort();
        }
        self.error(error);
    }

    /// Checks that the client may send a command: that it has logged in, and that its token has the scope.
    fn check_access(&self, command: &RespCommand<'_, '_>) -> Result<(), AccessDenied> {
        let needed = match command {
            RespCommand::Auth { .. } | RespCommand::Hello(_) | RespCommand::Quit | RespCommand::Reset => {
                return Ok(());
            }
            RespCommand::Throttle(request) => match request.usage() {
                ThrottleUse::Spend(_) | ThrottleUse::TooMuch => Some(Scope::Decide),
                ThrottleUse::GiveBack(_) => Some(Scope::Refund),
            },
            RespCommand::Toll(request) => Some(scope_of(request.verb)),
            RespCommand::Del(_) => Some(Scope::Admin),
            RespCommand::Ttl { .. } => Some(Scope::Read),
            _ => None,
        };
        if self.connection.token.is_none() {
            return Err(AccessDenied::NoToken);
        }
        let caller = self.connection.caller(&self.service.auth);
        needed.map_or(Ok(()), |scope| caller.check_scope(scope))?;
        match command {
            RespCommand::Throttle(_) | RespCommand::Del(_) | RespCommand::Ttl { .. } => {
                caller.check_limit(InlineLimit::NAME)
            }
            // Its limits are known when its words are read.
            _ => Ok(()),
        }
    }

    /// Refuses a command that the client may not send.
    fn deny(&mut self, denied: &AccessDenied) {
        if let Some(transaction) = &mut self.connection.transaction {
            transaction.abort();
        }
        self.service.service.count_denied(denied);
        self.error(&denied_text(denied));
    }

    fn add_other(&mut self, command: RespCommand<'_, 'a>) -> Option<Stop<'a>> {
        match command {
            RespCommand::Throttle(_) => self.error(&INLINE_DENIED),
            RespCommand::Del(_) | RespCommand::Ttl { .. } if !self.service.settings.allow_inline => {
                self.error(&INLINE_DENIED);
            }
            RespCommand::Del(keys) => return Some(Stop::Alone(Alone::Del(keys.to_vec()))),
            RespCommand::Ttl { key, millis } => return Some(Stop::Alone(Alone::Ttl { key, millis })),
            RespCommand::Toll(request) => return self.add_toll(request),
            RespCommand::Ping(None) => self.reply(|reply| reply.simple("PONG")),
            RespCommand::Ping(Some(text)) | RespCommand::Echo(text) => self.reply(|reply| reply.bulk(text)),
            RespCommand::Quit => {
                self.reply(|reply| reply.simple("OK"));
                return Some(Stop::Close);
            }
            RespCommand::Hello(hello) => return Some(Stop::Alone(Alone::Hello(hello))),
            RespCommand::Reset => return Some(Stop::Alone(Alone::Reset)),
            RespCommand::Auth { user, password } if self.service.auth.tokens().is_some() => {
                match self.service.log_in(self.connection, user, password) {
                    Ok(()) => self.reply(|reply| reply.simple("OK")),
                    Err(error) => self.error(&error),
                }
            }
            RespCommand::Auth { user: Some(b"default"), .. } => self.reply(|reply| reply.simple("OK")),
            RespCommand::Auth { user: Some(_), .. } => self.error(&WRONG_USER),
            RespCommand::Auth { user: None, .. } => self.error(&NO_PASSWORD),
            RespCommand::Select(Some(0)) => self.reply(|reply| reply.simple("OK")),
            RespCommand::Select(Some(_)) => self.error(&ONE_DATABASE),
            RespCommand::Select(None) => self.error(&NO_DATABASE),
            RespCommand::Client(command) => self.add_client(command),
            RespCommand::Commands => self.reply(resp::put_commands),
            RespCommand::CommandCount => self.reply(|reply| reply.integer(resp::COMMANDS.len() as i64)),
            RespCommand::CommandDocs(names) => self.reply(|reply| resp::put_command_docs(names, reply)),
            RespCommand::ConfigGet => self.reply(|reply| reply.map(0)),
            RespCommand::Info => self.reply(|reply| resp::put_info(env!("CARGO_PKG_VERSION"), reply)),
            RespCommand::Multi => {
                self.connection.transaction = Some(Box::new(Transaction::new(Instant::now())));
                self.reply(|reply| reply.simple("OK"));
            }
            RespCommand::Exec => self.error(&NOTHING_TO_EXECUTE),
            RespCommand::Discard => self.error(&NOTHING_TO_DISCARD),
            _ => self.error(&CommandError::Syntax),
        }
        None
    }

    fn add_toll(&mut self, request: TollRequest<'_, 'a>) -> Option<Stop<'a>> {
        let mut charges = request.charges();
        let is_one = charges.len() == 1 && request.verb == Verb::Spend && !request.has_rules();
        let only = is_one.then(|| charges.next()).flatten();
        let error = match only {
            Some(Ok(asked)) => {
                if let Err(denied) = self.connection.caller(&self.service.auth).check_limit(asked.limit) {
                    self.deny(&denied);
                    return None;
                }
                match self.policy.policy().charge(asked.limit, asked.id, asked.cost) {
                    Ok(charge) => self.collected.asked.push(Asked::Toll(charge)),
                    Err(error) => {
                        let error = self.connection.caller(&self.service.auth).hide_other_limits(error);
                        self.error(&format_args!("ERR {}", ErrorChain(&error)));
                    }
                }
                return None;
            }
            Some(Err(error)) => error,
            None => match toll_parts(request) {
                Ok((charges, rules)) => return Some(Stop::Alone(Alone::Toll(request.verb, charges, rules))),
                Err(error) => error,
            },
        };
        self.error(&error);
        None
    }

    fn add_client(&mut self, command: ClientCommand<'_>) {
        match command {
            ClientCommand::SetName(name) => {
                self.connection.set_name(name);
                self.reply(|reply| reply.simple("OK"));
            }
            ClientCommand::GetName => {
                let name = self.connection.name.clone();
                self.reply(|reply| match name {
                    Some(name) => reply.bulk(&name),
                    None => reply.null(),
                });
            }
            ClientCommand::Id => {
                let id = self.connection.id;
                self.reply(|reply| reply.integer(id));
            }
            _ => self.reply(|reply| reply.simple("OK")),
        }
    }

    fn add_in_transaction(&mut self, command: RespCommand<'_, 'a>, bytes: &[u8]) -> Option<Stop<'a>> {
        let max = self.service.settings.transaction_max;
        let Some(transaction) = &mut self.connection.transaction else { return None };
        match command {
            RespCommand::Exec if transaction.is_aborted => {
                self.connection.transaction = None;
                self.error(&ABORTED);
            }
            RespCommand::Exec => return Some(Stop::Execute),
            RespCommand::Discard => {
                self.connection.transaction = None;
                self.reply(|reply| reply.simple("OK"));
            }
            RespCommand::Quit | RespCommand::Reset => return self.add_other(command),
            RespCommand::Multi => self.error(&NESTED),
            RespCommand::Hello(_) | RespCommand::Auth { .. } => {
                transaction.abort();
                self.error(&NOT_IN_TRANSACTION);
            }
            _ if transaction.is_aborted => {
                self.queued += 1;
                self.reply(|reply| reply.simple("QUEUED"));
            }
            _ if transaction.bytes.len() + bytes.len() > max => {
                transaction.abort();
                self.error(&TRANSACTION_TOO_LONG);
            }
            _ => {
                transaction.bytes.extend_from_slice(bytes);
                transaction.commands += 1;
                self.queued += 1;
                self.reply(|reply| reply.simple("QUEUED"));
            }
        }
        None
    }

    fn error(&mut self, error: &dyn Display) {
        self.errors += 1;
        self.reply(|reply| reply.error(error));
    }

    /// Prepares a reply, which is written when its turn comes.
    fn reply(&mut self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let start = self.prepared.len();
        write(&mut ReplyWriter::new(self.prepared, self.connection.version));
        self.collected.asked.push(Asked::Prepared(start..self.prepared.len()));
    }
}

/// Returns the error that a client reads which may not send a command. Redis has these words for its users.
pub(super) fn denied_text(denied: &AccessDenied) -> String {
    match denied {
        AccessDenied::NoToken => NO_AUTH.to_owned(),
        AccessDenied::UnknownToken => WRONG_USER.to_owned(),
        denied => format!("NOPERM {denied}"),
    }
}

/// Returns the scope that a verb needs.
const fn scope_of(verb: Verb) -> Scope {
    match verb {
        Verb::Spend | Verb::Check => Scope::Decide,
        Verb::Refund => Scope::Refund,
        Verb::Reset => Scope::Admin,
    }
}

/// Returns the charges and the rules of a request.
fn toll_parts<'a>(
    request: TollRequest<'_, 'a>,
) -> Result<(Vec<ChargeRequest<'a>>, Vec<RuleRequest<'a>>), CommandError> {
    let charges = request.charges().map(|charge| charge.map(ChargeRequest::from));
    Ok((charges.collect::<Result<_, _>>()?, request.rules()?))
}
