//! Waits in tests until a condition holds, with a timeout.

use std::thread;
use std::time::{Duration, Instant};

/// The time after which a test has failed. It is longer than anything in a test takes, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two checks of a condition. A check may start `redis-cli`, so a busy loop would slow down
/// everything.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds, or panics after [`TEST_TIMEOUT`] with a message that names `what`.
///
/// ```
/// let server = std::thread::spawn(|| "ready");
/// tollway_testbed::eventually("the other thread's end", || server.is_finished());
/// ```
#[track_caller]
pub fn eventually(what: &str, so: impl FnMut() -> bool) {
    assert!(holds_in_time(so), "{what} did not come");
}

/// Waits until a condition holds, and returns whether it did before [`TEST_TIMEOUT`].
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
