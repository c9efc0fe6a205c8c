//! RESP carries the commands of any Redis client over TCP, and replies in the same order.
//!
//! ```text
//! -> *5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n     at most 16 at once, 30 in 60 s
//! <- *5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n                             not limited, of 16 are 15 left, full in 2 s
//! -> PING\r\n                                                       plain text is a command, too
//! <- +PONG\r\n
//! ```
//!
//! [`decode`] splits the bytes into the words of a command, which are borrowed from the read buffer, and
//! [`RespCommand::parse`] finds what they mean. Neither allocates for a command that is correct. A length is compared
//! with its bound before anything waits for that many bytes. A [`ThrottleTemplate`] does both in one step for a command
//! that has the numbers of the one before it.
//!
//! ```
//! use tollway_wire::resp::{self, Decoded, ReplyWriter, RespCommand, RespVersion, Words};
//!
//! let mut words = Words::new();
//! let decoded = resp::decode(b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", &mut words)?;
//! assert_eq!(decoded, Some((Decoded::Command, 22)));
//! let Ok(RespCommand::Echo(text)) = RespCommand::parse(&words) else { panic!() };
//!
//! let mut out = Vec::new();
//! ReplyWriter::new(&mut out, RespVersion::Resp2).bulk(text);
//! assert_eq!(out, b"$2\r\nhi\r\n");
//! # Ok::<(), tollway_wire::resp::RespFramingError>(())
//! ```

mod command;
mod error;
mod handshake;
mod integer;
mod plain_text;
mod received;
mod reply;
mod template;
mod throttle;
mod toll;
mod words;

pub use command::{ClientCommand, Hello, RespCommand};
pub use error::{CommandError, RespFramingError};
pub use handshake::{COMMANDS, put_command_docs, put_commands, put_hello, put_info};
pub use received::{ReplyError, reply_len, reply_text};
pub use reply::{ReplyWriter, RespVersion};
pub use template::ThrottleTemplate;
pub use throttle::{Dialect, ThrottleRequest, ThrottleUse};
pub use toll::{TollCharge, TollRequest, put_decision, put_refund, put_reset, put_rule_decision};
pub use words::{Decoded, Words, decode, encode_command};

/// The longest line of plain text, in bytes, as in Redis. Its end is searched for each time that more of it arrives, so
/// a long one that arrives byte by byte would take a worker's time from other clients.
pub const LINE_MAX: usize = 64 << 10;

/// The longest command, in bytes, with the lengths of its words.
pub const COMMAND_MAX: usize = 1 << 20;

/// The most words that a command can have, its name included. One with more gets an error, and the next is read.
pub const WORDS_MAX: usize = 32;

/// The most words of a command that are skipped to find the next one. They are skipped again each time that more of
/// the command arrives, so more of them, byte by byte, would take a worker's time from other clients.
pub const SKIPPED_WORDS_MAX: usize = 1024;

/// The longest key, the longest id and the longest value of a selector, in bytes.
pub const KEY_MAX: usize = 512;
