//! Every bound on what a client, or an upstream, can make the proxy keep or wait for, but for those that are flags.

use std::time::Duration;

/// The longest head of a request, and the most that is read ahead of what the other side takes.
pub(super) const HEAD_MAX: u32 = 64 << 10;

/// How many requests a client may have under way on one connection of HTTP/2.
pub(super) const STREAMS_MAX: u32 = 128;

/// How many requests a client of HTTP/2 may take back before we have looked at them.
pub(super) const TAKEN_BACK_MAX: usize = 32;

/// Who speaks HTTP/2 and has said nothing for so long is asked whether it is there, and must answer as soon.
pub(super) const ASK_AFTER: Duration = Duration::from_secs(60);
pub(super) const ASKED_MAX: Duration = Duration::from_secs(20);

/// The same for every connection, by the system. A machine that vanishes says no goodbye.
pub(super) const PROBE_AFTER: Duration = Duration::from_secs(60);
pub(super) const PROBE_AGAIN_AFTER: Duration = Duration::from_secs(15);
pub(super) const PROBES: u32 = 4;

/// The pace below which a client is slow, in bytes a second. It matters when somebody else has no place because of it.
pub(super) const SLOW: u64 = 500;

/// How long connecting to the upstream may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How many connections to the upstream that nobody uses each worker keeps. Any more were needed at the same moment once, and
/// may not be again.
pub(super) const IDLE_MAX: usize = 512;

/// The longest identifier that a header may give. A longer one would cost more to tell than the request, and is nobody's key.
pub(super) const IDENTIFIER_MAX: usize = 1_024;

/// How long a client that is sent away may take to understand that.
pub(super) const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// How long requests may take that are here when the server is told to stop.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(10);
