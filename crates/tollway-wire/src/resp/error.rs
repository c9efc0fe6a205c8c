//! The errors of commands, in the words in which a client reads them.

use std::fmt;

use thiserror::Error;
use tollway_core::{BillError, Verb};

use super::{COMMAND_MAX, KEY_MAX, LINE_MAX, SKIPPED_WORDS_MAX, WORDS_MAX};

/// The most bytes of a client's own words that an error repeats.
const SHOWN_MAX: usize = 64;

/// An error in the bytes of a client, after which the next command cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RespFramingError {
    /// A length that is negative, or no number.
    #[error("ERR Protocol error: invalid length")]
    InvalidLength,
    /// More words than [`SKIPPED_WORDS_MAX`].
    #[error(
        "ERR Protocol error: a command can have at most {WORDS_MAX} words; the connection is closed after more than \
         {SKIPPED_WORDS_MAX}"
    )]
    TooManyWords,
    /// More bytes than [`COMMAND_MAX`].
    #[error("ERR Protocol error: a command can have at most {COMMAND_MAX} bytes")]
    TooLong,
    /// More bytes of plain text than [`LINE_MAX`].
    #[error(
        "ERR Protocol error: a line of plain text can have at most {LINE_MAX} bytes; send the command as an array"
    )]
    LineTooLong,
    /// Something else than an array or plain text.
    #[error("ERR Protocol error: expected '*', got '{}'", Byte(*.found))]
    NoArray {
        /// The byte that was found.
        found: u8,
    },
    /// Something else than a string in an array.
    #[error("ERR Protocol error: expected '$', got '{}'", Byte(*.found))]
    NoString {
        /// The byte that was found.
        found: u8,
    },
    /// A string that is longer or shorter than its length.
    #[error("ERR Protocol error: a string is not as long as its length says")]
    NoLineEnd,
    /// Plain text with a quote that is not closed, or with an escape in quotes.
    #[error("ERR Protocol error: unbalanced quotes, or an escape; send the command as an array")]
    Quotes,
}

struct Byte(u8);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

/// An error that a command has. The first word is the code, which some clients read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// An array without words.
    #[error("ERR empty command")]
    Empty,
    /// More words than [`WORDS_MAX`].
    #[error(
        "ERR a command can have at most {WORDS_MAX} words; send several commands, or a longer bill over HTTP"
    )]
    TooManyWords,
    /// A command that there is not.
    #[error("ERR unknown command '{name}'")]
    UnknownCommand {
        /// The name that was sent, cut and escaped.
        name: String,
    },
    /// A part of a command that there is not.
    #[error("ERR unknown subcommand '{name}' of '{command}'")]
    UnknownSubcommand {
        /// The command.
        command: &'static str,
        /// The name that was sent, cut and escaped.
        name: String,
    },
    /// Too few words, or too many.
    #[error("ERR wrong number of arguments for '{command}' command")]
    WordCount {
        /// The command.
        command: &'static str,
    },
    /// A `CL.THROTTLE` with too few words, or too many.
    #[error(
        "ERR wrong number of arguments for 'cl.throttle' command; send CL.THROTTLE key max_burst count period [quantity]"
    )]
    CellWords,
    /// A word that is no integer of 64 bits.
    #[error("ERR {field} must be an integer of 64 bits, not '{found}'")]
    NoInteger {
        /// The name of the word.
        field: &'static str,
        /// The word that was sent, cut and escaped.
        found: String,
    },
    /// A word that is no integer, in the words of the other dialect.
    #[error("ERR invalid {field}")]
    Invalid {
        /// The name of the word.
        field: &'static str,
    },
    /// A number that is too small.
    #[error("ERR {field} must be at least {min}")]
    TooSmall {
        /// The name of the number.
        field: &'static str,
        /// The smallest number that is accepted.
        min: i64,
    },
    /// Numbers that make no limit.
    #[error("ERR {problem}")]
    Numbers {
        /// The reason.
        problem: String,
    },
    /// A key of more than [`KEY_MAX`] bytes.
    #[error("ERR a key can have at most {KEY_MAX} bytes")]
    KeyTooLong,
    /// An id of more than [`KEY_MAX`] bytes.
    #[error("ERR an id can have at most {KEY_MAX} bytes")]
    IdTooLong,
    /// A name of a connection of more than [`KEY_MAX`] bytes.
    #[error("ERR the name of a connection can have at most {KEY_MAX} bytes")]
    NameTooLong,
    /// A cost that is no integer, or larger than any other number of this protocol.
    #[error("ERR cost must be an integer from 0 to {}, not '{found}'", i64::MAX)]
    NoCost {
        /// The word that was sent, cut and escaped.
        found: String,
    },
    /// A version of the protocol that is no number.
    #[error("ERR protocol version must be 2 or 3, not '{found}'")]
    NoVersion {
        /// The word that was sent, cut and escaped.
        found: String,
    },
    /// A version of the protocol that there is not.
    #[error("NOPROTO unsupported protocol version; there are 2 and 3")]
    Version,
    /// A word that has no meaning in its place.
    #[error("ERR syntax error")]
    Syntax,
    /// A `TOLL` without a verb.
    #[error("ERR wrong number of arguments for 'toll' command; send TOLL SPEND, CHECK, REFUND or RESET")]
    TollVerb,
    /// A `TOLL` with a verb that there is not.
    #[error("ERR unknown subcommand '{name}' of 'toll'; send TOLL SPEND, CHECK, REFUND or RESET")]
    UnknownTollVerb {
        /// The name that was sent, cut and escaped.
        name: String,
    },
    /// A `TOLL` with too few words, or too many.
    #[error(
        "ERR wrong number of arguments for 'toll' command; send TOLL {} {}",
        .verb.name().to_ascii_uppercase(),
        toll_words(*.verb)
    )]
    TollWords {
        /// The verb.
        verb: Verb,
    },
    /// Several charges of which one has no cost.
    #[error(
        "ERR wrong number of arguments for 'toll' command; several charges need a cost each: send TOLL {} limit id cost \
         limit id cost ...",
        .verb.name().to_ascii_uppercase()
    )]
    TollCosts {
        /// The verb.
        verb: Verb,
    },
    /// A bill that cannot be made.
    #[error("ERR {problem}")]
    Bill {
        /// The reason.
        problem: BillError,
    },
    /// A `RULE` that ends the command.
    #[error("ERR RULE needs the name of a rule; send RULE name selector=value ...")]
    NoRuleName,
    /// A word after the name of a rule that is no selector with its value.
    #[error("ERR a selector is sent as name=value, not as '{found}'; charges come before the first RULE")]
    NoSelector {
        /// The word that was sent, cut and escaped.
        found: String,
    },
    /// Two values for one selector.
    #[error("ERR selector '{name}' is given twice for one rule; send it once")]
    SelectorTwice {
        /// The name of the selector, cut and escaped.
        name: String,
    },
    /// A value of a selector of more than [`KEY_MAX`] bytes.
    #[error("ERR the value of a selector can have at most {KEY_MAX} bytes")]
    ValueTooLong,
    /// A name that is no text.
    #[error("ERR the name of a {of} must be text in UTF-8")]
    NameNotText {
        /// The thing that has the name: a limit, a rule or a selector.
        of: &'static str,
    },
    /// A request of a web browser. The connection is closed.
    #[error("ERR this is not an HTTP server")]
    Http,
}

impl CommandError {
    /// Returns whether the connection is closed after the error. It stays open after a key that is too long, which is
    /// often the choice of a client's own user: a client whose connection is closed sends all that was not answered
    /// again, and what it asked before the error is charged twice.
    pub const fn closes(&self) -> bool {
        matches!(self, Self::Http)
    }
}

/// Returns the words that a verb takes, as its usage shows them.
const fn toll_words(verb: Verb) -> &'static str {
    match verb {
        Verb::Spend | Verb::Check => {
            "limit id [cost], or limit id cost for each of several charges; RULE name selector=value ... may follow, or \
             stand alone"
        }
        Verb::Refund => "limit id [cost], or limit id cost for each of several charges",
        Verb::Reset => "limit id for each bucket",
    }
}

/// Returns a client's own word as an error can have it: short, and in one line.
pub(super) fn shown(word: &[u8]) -> String {
    let cut = &word[..word.len().min(SHOWN_MAX)];
    let dots = if cut.len() < word.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_ascii())
}
