//! The Throttr protocol carries binary requests over TCP, and replies in the same order.
//!
//! ```text
//! -> 01 01000000 0500000000000000 02 0a00000000000000 01 01 63 72
//!    insert, request 1: a quota of 5 for 10 seconds, consumer `c`, resource `r`
//! <- 01000000 01                             request 1, done
//! -> 02 02000000 01 01 63 72                 query, request 2
//! <- 02000000 01 0500000000000000 02 0900000000000000
//!    5 left, for 9 more whole seconds
//! ```
//!
//! Numbers are little-endian and fields are packed. Only the type and the sizes of a request show where it ends, so
//! after an unknown type the next request cannot be found, and the connection is closed.
//!
//! ```
//! use tollway_wire::throttr::{self, ThrottrCommand, ThrottrReply};
//!
//! let mut bytes = Vec::new();
//! throttr::encode_request(2, &ThrottrCommand::Query, b"c", b"r", &mut bytes)?;
//! let (request, len) = throttr::decode(&bytes)?.ok_or("not yet whole")?;
//! assert_eq!((request.id, request.command, len), (2, ThrottrCommand::Query, bytes.len()));
//! assert_eq!((request.key.consumer(), request.key.resource()), (&b"c"[..], &b"r"[..]));
//!
//! let mut reply = Vec::new();
//! throttr::encode(request.id, &ThrottrReply::Status(false), &mut reply);
//! assert_eq!(reply, [2, 0, 0, 0, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod reply;
mod request;

pub use reply::{ThrottrReply, UnknownStatus, decode_reply, encode};
pub use request::{
    IdTooLong, QuotaAttribute, ThrottrCommand, ThrottrKey, ThrottrRequest, UnknownType, decode,
    encode_request,
};

/// The longest id that a consumer or a resource can have, in bytes.
pub const ID_MAX: usize = u8::MAX as usize;

/// The length of the longest request, in bytes: an insert with two ids of the greatest length.
pub const FRAME_MAX: usize = 24 + 2 * ID_MAX;

/// The length of the longest reply, in bytes: it answers a query and carries a quota.
pub const REPLY_MAX: usize = 22;
