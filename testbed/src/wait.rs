//! Waiting for what others do.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything in a test takes, also where the machine is busy: whoever waits this long has failed.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Often enough that nobody notices; to look may be to start `redis-cli`.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until something is so, or panics and says `what` did not come.
///
/// ```
/// let server = std::thread::spawn(|| "ready");
/// tollway_testbed::eventually("the other thread's end", || server.is_finished());
/// ```
#[track_caller]
pub fn eventually(what: &str, so: impl FnMut() -> bool) {
    assert!(holds_in_time(so), "{what} did not come");
}

/// Waits until something is so; says whether it came to be in time.
pub(crate) fn holds_in_time(mut so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !so() {
        if started.elapsed() > TEST_TIMEOUT {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
    true
}
