//! Finds out what the words of a command mean.

use super::KEY_MAX;
use super::error::{CommandError, shown};
use super::integer;
use super::reply::RespVersion;
use super::throttle::{Dialect, ThrottleRequest};
use super::toll::TollRequest;

/// A command that a client sends. Its words are borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RespCommand<'w, 'a> {
    /// `CL.THROTTLE` or `THROTTLE`: asks under the numbers that come with it.
    Throttle(ThrottleRequest<'a>),
    /// `TOLL`: asks under limits and rules of the policy.
    Toll(TollRequest<'w, 'a>),
    /// `DEL`: forgets the buckets of these keys.
    Del(&'w [&'a [u8]]),
    /// `TTL`, or `PTTL` if in milliseconds: the time until the bucket of this key is full.
    Ttl {
        /// The key of the bucket.
        key: &'a [u8],
        /// True if the reply is in milliseconds.
        millis: bool,
    },
    /// `PING`, perhaps with a text that comes back.
    Ping(Option<&'a [u8]>),
    /// `ECHO`: sends the text back.
    Echo(&'a [u8]),
    /// `QUIT`: closes the connection.
    Quit,
    /// `HELLO`: chooses a version of the protocol.
    Hello(Hello<'a>),
    /// `AUTH`, with or without a user.
    Auth {
        /// The user; `None` is the default one.
        user: Option<&'a [u8]>,
        /// The password.
        password: &'a [u8],
    },
    /// `SELECT`: chooses a database, of which there is one; `None` if the word is no integer.
    Select(Option<i64>),
    /// `CLIENT`: tells about the client, or asks about its connection.
    Client(ClientCommand<'a>),
    /// `COMMAND`: lists the commands.
    Commands,
    /// `COMMAND COUNT`: counts the commands.
    CommandCount,
    /// `COMMAND DOCS`: documents the commands of these names, or all.
    CommandDocs(&'w [&'a [u8]]),
    /// `INFO`: tells about the server.
    Info,
    /// `CONFIG GET`: tells settings, of which there are none.
    ConfigGet,
    /// `MULTI`: begins a transaction.
    Multi,
    /// `EXEC`: executes a transaction.
    Exec,
    /// `DISCARD`: forgets a transaction.
    Discard,
    /// `RESET`: makes the connection as it was at its start.
    Reset,
}

/// The words that follow `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version that the client chooses; `None` keeps the one it has.
    pub version: Option<RespVersion>,
    /// The user and the password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// The name of the connection.
    pub name: Option<&'a [u8]>,
}

/// The subcommands that `CLIENT` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCommand<'a> {
    /// Names the connection.
    SetName(&'a [u8]),
    /// Asks for the name of the connection.
    GetName,
    /// Asks for the number of the connection.
    Id,
    /// Tells or wishes something that has no effect here.
    Accepted,
}

impl<'w, 'a> RespCommand<'w, 'a> {
    /// Parses the words of a command. Names may be in any case.
    #[inline]
    pub fn parse(words: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        let Some((name, arguments)) = words.split_first() else { return Err(CommandError::Empty) };
        // First, because nearly every command is this. In its usual case it is two comparisons of whole words.
        if *name == b"CL.THROTTLE" || name.eq_ignore_ascii_case(b"CL.THROTTLE") {
            return ThrottleRequest::parse(Dialect::RedisCell, words).map(Self::Throttle);
        }
        if name.eq_ignore_ascii_case(b"THROTTLE") {
            return ThrottleRequest::parse(Dialect::Throttlecrab, words).map(Self::Throttle);
        }
        if name.eq_ignore_ascii_case(b"TOLL") {
            return TollRequest::parse(arguments).map(Self::Toll);
        }
        Self::parse_other(name, arguments)
    }

    fn parse_other(name: &[u8], arguments: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        let mut upper = [0; NAME_MAX];
        let upper = match upper.get_mut(..name.len()) {
            Some(upper) => upper,
            None => return Err(unknown(name)),
        };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        match (&*upper, arguments) {
            (b"PING", []) => Ok(Self::Ping(None)),
            (b"PING", [text]) => Ok(Self::Ping(Some(text))),
            (b"PING", _) => wrong_count("ping"),
            (b"ECHO", [text]) => Ok(Self::Echo(text)),
            (b"ECHO", _) => wrong_count("echo"),
            (b"QUIT", _) => Ok(Self::Quit),
            (b"HELLO", words) => hello(words).map(Self::Hello),
            (b"AUTH", [password]) => Ok(Self::Auth { user: None, password }),
            (b"AUTH", [user, password]) => Ok(Self::Auth { user: Some(user), password }),
            (b"AUTH", _) => wrong_count("auth"),
            (b"SELECT", [number]) => Ok(Self::Select(integer::parse(number))),
            (b"SELECT", _) => wrong_count("select"),
            (b"CLIENT", words) => client(words).map(Self::Client),
            (b"COMMAND", words) => commands(words),
            (b"INFO", _) => Ok(Self::Info),
            (b"CONFIG", [get, _, ..]) if get.eq_ignore_ascii_case(b"GET") => Ok(Self::ConfigGet),
            (b"CONFIG", words) => Err(unknown_subcommand("config", words)),
            (b"MULTI", []) => Ok(Self::Multi),
            (b"MULTI", _) => wrong_count("multi"),
            (b"EXEC", []) => Ok(Self::Exec),
            (b"EXEC", _) => wrong_count("exec"),
            (b"DISCARD", []) => Ok(Self::Discard),
            (b"DISCARD", _) => wrong_count("discard"),
            (b"RESET", []) => Ok(Self::Reset),
            (b"RESET", _) => wrong_count("reset"),
            (b"DEL", keys @ [_, ..]) => match keys.iter().any(|key| key.len() > KEY_MAX) {
                true => Err(CommandError::KeyTooLong),
                false => Ok(Self::Del(keys)),
            },
            (b"DEL", []) => wrong_count("del"),
            (b"TTL" | b"PTTL", [key]) if key.len() > KEY_MAX => Err(CommandError::KeyTooLong),
            (b"TTL", [key]) => Ok(Self::Ttl { key, millis: false }),
            (b"TTL", _) => wrong_count("ttl"),
            (b"PTTL", [key]) => Ok(Self::Ttl { key, millis: true }),
            (b"PTTL", _) => wrong_count("pttl"),
            // A page in a browser can make it send a form to any port, with commands in the lines of its body.
            (b"POST" | b"HOST:", _) => Err(CommandError::Http),
            _ => Err(unknown(name)),
        }
    }
}

/// The longest name of a command that is not looked for earlier.
const NAME_MAX: usize = 8;

fn hello<'a>(words: &[&'a [u8]]) -> Result<Hello<'a>, CommandError> {
    let mut hello = Hello::default();
    let Some((version, mut rest)) = words.split_first() else { return Ok(hello) };
    hello.version = Some(match *version {
        b"2" => RespVersion::Resp2,
        b"3" => RespVersion::Resp3,
        word if integer::parse(word).is_some() => return Err(CommandError::Version),
        word => return Err(CommandError::NoVersion { found: shown(word) }),
    });
    loop {
        rest = match rest {
            [] => return Ok(hello),
            [auth, user, password, rest @ ..] if auth.eq_ignore_ascii_case(b"AUTH") => {
                hello.auth = Some((user, password));
                rest
            }
            [setname, name, rest @ ..] if setname.eq_ignore_ascii_case(b"SETNAME") => {
                hello.name = Some(connection_name(name)?);
                rest
            }
            _ => return Err(CommandError::Syntax),
        };
    }
}

fn client<'a>(words: &[&'a [u8]]) -> Result<ClientCommand<'a>, CommandError> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    match words {
        [word, name] if is(word, "SETNAME") => connection_name(name).map(ClientCommand::SetName),
        [word] if is(word, "GETNAME") => Ok(ClientCommand::GetName),
        [word] if is(word, "ID") => Ok(ClientCommand::Id),
        [word, _, _] if is(word, "SETINFO") => Ok(ClientCommand::Accepted),
        [word, _] if is(word, "NO-EVICT") => Ok(ClientCommand::Accepted),
        [word, ..] if is(word, "MAINT_NOTIFICATIONS") => Ok(ClientCommand::Accepted),
        [word, ..]
            if ["SETNAME", "GETNAME", "ID", "SETINFO", "NO-EVICT"].iter().any(|name| is(word, name)) =>
        {
            Err(CommandError::WordCount { command: "client" })
        }
        words => Err(unknown_subcommand("client", words)),
    }
}

fn commands<'w, 'a>(words: &'w [&'a [u8]]) -> Result<RespCommand<'w, 'a>, CommandError> {
    match words {
        [] => Ok(RespCommand::Commands),
        [word] if word.eq_ignore_ascii_case(b"COUNT") => Ok(RespCommand::CommandCount),
        [word, names @ ..] if word.eq_ignore_ascii_case(b"DOCS") => Ok(RespCommand::CommandDocs(names)),
        words => Err(unknown_subcommand("command", words)),
    }
}

/// Checks the name that a client gives its connection, which is kept.
fn connection_name(name: &[u8]) -> Result<&[u8], CommandError> {
    if name.len() > KEY_MAX { Err(CommandError::NameTooLong) } else { Ok(name) }
}

fn wrong_count<T>(command: &'static str) -> Result<T, CommandError> {
    Err(CommandError::WordCount { command })
}

fn unknown(name: &[u8]) -> CommandError {
    CommandError::UnknownCommand { name: shown(name) }
}

fn unknown_subcommand(command: &'static str, words: &[&[u8]]) -> CommandError {
    match words.first() {
        Some(name) => CommandError::UnknownSubcommand { command, name: shown(name) },
        None => CommandError::WordCount { command },
    }
}
