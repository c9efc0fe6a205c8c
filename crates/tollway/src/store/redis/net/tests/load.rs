//! A load of callers that go on until they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::Value;

use super::*;

/// The pause of each caller between two calls.
const THINK: Duration = Duration::from_millis(1);

/// Many callers on one thread, which go on until they are stopped. Every call counts in a key of its own, so that one
/// that is executed twice leaves a two behind.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    well: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    callers: JoinHandle<Vec<Reply>>,
}

impl Load {
    /// Starts the callers. Their keys are in this slot, and have `{tag}` in their names.
    pub(super) fn start(net: &Arc<Net>, callers: usize, tag: &'static str, slot: u16) -> Self {
        let (net, stop) = (Arc::clone(net), Arc::<AtomicBool>::default());
        let (well, failed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (stopped, counted) = (Arc::clone(&stop), [Arc::clone(&failed), Arc::clone(&well)]);
        let ask = move |caller: usize| {
            let (net, stop, counts) = (Arc::clone(&net), Arc::clone(&stopped), counted.clone());
            async move {
                let mut asked = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("{{{tag}}}{caller}/{}", asked.len());
                    let reply = net.send(vec![Call { slot, ..count(&key) }]).await.remove(0);
                    counts[usize::from(reply.is_ok())].fetch_add(1, Ordering::Relaxed);
                    asked.push(reply);
                    tokio::time::sleep(THINK).await;
                }
                asked
            }
        };
        let callers = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let callers: Vec<_> = (0..callers).map(|caller| tokio::spawn(ask(caller))).collect();
                let mut asked = Vec::new();
                for caller in callers {
                    asked.extend(caller.await.unwrap());
                }
                asked
            })
        });
        Self { stop, well, failed, callers }
    }

    /// Waits until `more` calls have been answered.
    pub(super) fn wait_for(&self, more: u64) {
        wait_for_more(&self.well, more);
    }

    /// Waits until `more` calls have failed.
    pub(super) fn wait_for_failures(&self, more: u64) {
        wait_for_more(&self.failed, more);
    }

    /// Stops the callers, and returns all replies.
    pub(super) fn stop(self) -> Vec<Reply> {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.join().unwrap()
    }
}

fn wait_for_more(count: &AtomicU64, more: u64) {
    let before = count.load(Ordering::Relaxed);
    eventually("replies", || count.load(Ordering::Relaxed) >= before + more);
}

/// Asserts that every answer is a one, so that no call was executed twice.
pub(super) fn assert_never_twice(replies: &[Reply]) {
    for reply in replies {
        assert!(*reply == Ok(Value::Int(1)) || reply.is_err(), "{reply:?}");
    }
}

/// Asserts that calls without an answer were not executed twice either.
pub(super) fn assert_no_twos(server: &RedisServer) {
    let look = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                if redis.call('GET', key) ~= '1' then n = n + 1 end end return n";
    assert_eq!(server.cli(&["EVAL", look, "0"]), "0");
}
