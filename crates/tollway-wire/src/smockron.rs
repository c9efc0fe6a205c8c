//! Smockron: gatekeepers report requests to a master, and the master tells them whom to delay, and until when.
//!
//! ```text
//! gatekeeper -> master   default\0  ACCEPTED     10.0.0.1  1700000000000  (empty)        (log info)
//! gatekeeper -> master   default\0  DELAYED      10.0.0.1  1700000000100  1700000001000  (log info)
//! master -> gatekeepers  default\0  DELAY_UNTIL  10.0.0.1  1700000002000
//! ```
//!
//! Each line is one ZeroMQ message, and each column is one frame of it ([`zmtp`](crate::zmtp)). Times are milliseconds
//! since 1970 in decimal digits. ZeroMQ matches topics by prefix; the NUL keeps the topic `a` from matching `ab`.
//!
//! ```
//! use tollway_wire::smockron::{AccountingMessage, AccountingStatus};
//!
//! let frames = ["default\0", "ACCEPTED", "10.0.0.1", "3000.7", "", "curl/8"].map(str::as_bytes);
//! let accounting = AccountingMessage::decode(frames)?;
//! assert_eq!((accounting.domain, accounting.status), (&b"default"[..], AccountingStatus::Accepted { received: 3_000 }));
//! # Ok::<(), tollway_wire::smockron::AccountingError>(())
//! ```

mod accounting;
mod control;
mod millis;

pub use accounting::{AccountingError, AccountingMessage, AccountingStatus};
pub use control::{ControlError, ControlMessage};

/// Returns the domain that a topic names. The NUL at its end may be missing.
fn topic_domain(topic: &[u8]) -> &[u8] {
    topic.strip_suffix(&[0]).unwrap_or(topic)
}
