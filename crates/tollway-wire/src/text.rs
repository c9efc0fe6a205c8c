//! The UDP text protocol: one datagram asks, one datagram answers.
//!
//! ```text
//! -> 7 over_limit ws global       id, command, key
//! <- 7 ok N 2034.3 2500.0 10      id, over the limit?, rate, limit, period in seconds
//!
//! -> get_stats ws global
//! <- n_req=2 n_over=1 last_max_rate=1 key=ws global
//! -> get_size
//! <- size=3 keys=3
//! -> ping
//! <- pong
//! ```
//!
//! The id is the caller's and is echoed byte for byte, so a late answer is never taken for the next one. What is not
//! understood gets no answer at all: the sender of a datagram may not be who it says.
//!
//! A server [`decode`]s a [`TextRequest`] and [`encode`]s a [`TextReply`]; a client does [`TextRequest::encode`] and
//! [`decode_reply`].
//!
//! ```
//! use tollway_wire::text::{self, TextCommand, OverLimit, TextReply};
//!
//! let request = text::decode(b"7 over_limit ws global").ok_or("silence")?;
//! assert_eq!(request.command, TextCommand::OverLimit { key: b"ws global" });
//!
//! let reply = TextReply::OverLimit(OverLimit { over: false, rate: 2034.3, limit: 2500.0, period: 10 });
//! let mut datagram = Vec::new();
//! text::encode(request.id, &reply, &mut datagram);
//! assert_eq!(datagram, b"7 ok N 2034.3 2500.0 10");
//! # Ok::<(), &str>(())
//! ```

mod check_limit;
mod received_reply;
mod reply;
mod request;

pub use check_limit::{CheckKey, CheckLimit};
pub use received_reply::{ReceivedReply, decode_reply};
pub use reply::{KeyStats, OverLimit, TextReply, encode};
pub use request::{TextCommand, TextRequest, decode};

/// The longest datagram. What is longer is cut here, in both directions, and then taken for what it is.
pub const DATAGRAM_MAX: usize = 1000;

/// The id in front, if there is one, and the rest: an id is digits and exactly one space.
#[inline]
pub fn split_id(datagram: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let digits = datagram.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match datagram.split_at(digits) {
        (id @ [_, ..], [b' ', rest @ ..]) => (Some(id), rest),
        _ => (None, datagram),
    }
}
