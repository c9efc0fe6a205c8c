//! The UDP text protocol: each request is one datagram of text, and so is its reply.
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
//! The caller chooses the id, and the reply repeats it byte for byte, so that a late reply is not taken for the next
//! one. A malformed datagram gets no reply at all, because its sender address may be forged.
//!
//! With feature `hmac`, requests and replies can be signed: `SigningKey::sign_request` appends a line to a request, and
//! `SignedRequest::split` takes it off.
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
//! let reply = TextReply::OverLimit(OverLimit::new(false, 2034.3, 2500.0, 10));
//! let mut datagram = Vec::new();
//! text::encode(request.id, &reply, &mut datagram);
//! assert_eq!(datagram, b"7 ok N 2034.3 2500.0 10");
//! # Ok::<(), &str>(())
//! ```

mod check_limit;
mod received_reply;
mod reply;
mod request;
#[cfg(feature = "hmac")]
mod signature;
#[cfg(feature = "hmac")]
mod signing_key;

pub use check_limit::{CheckKey, CheckLimit};
pub use received_reply::{ReceivedReply, decode_reply};
pub use reply::{KeyStats, OverLimit, ReplyEncoder, TextReply, encode};
pub use request::{TextCommand, TextRequest, decode};
#[cfg(feature = "hmac")]
pub use signature::{Mac, REPLY_SIGNATURE_LEN, SignedRequest};
#[cfg(feature = "hmac")]
pub use signing_key::{KEYS_MAX, SigningKey, SigningKeyError, SigningKeys, SigningKeysError};

/// The longest datagram in bytes. Longer ones are cut to this length, in both directions, and then decoded or sent.
pub const DATAGRAM_MAX: usize = 1000;

/// Splits a datagram into its id, if it has one, and the rest. An id is digits, followed by exactly one space.
#[inline]
pub fn split_id(datagram: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match datagram.split_at(leading_digits(datagram)) {
        (id @ [_, ..], [b' ', rest @ ..]) => (Some(id), rest),
        _ => (None, datagram),
    }
}

/// Returns the number of digits at the start, of which eight are counted at once.
#[inline]
fn leading_digits(bytes: &[u8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    if let Some(first) = bytes.first_chunk() {
        // A digit becomes 0 to 9, which 0x76 does not raise to 0x80. Others may carry into the bytes behind them, but
        // only the first that is no digit counts.
        let values = u64::from_le_bytes(*first) ^ (EACH * 0x30);
        let others = (values.wrapping_add(EACH * 0x76) | values) & (EACH * 0x80);
        if others != 0 {
            return others.trailing_zeros() as usize / 8;
        }
    }
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}
