//! Checks that many tasks on one key get exactly as many calls as the rule allows.

use std::sync::Arc;

use tollway::rate_limit::RateLimitExceeded;
use tollway::{RateLimit, limit};

use super::{at, limits};

const TASKS: u32 = 64;
const SECONDS: u64 = 5;

/// One user has two keys: the user's limit is reached after a hundred, a key's after sixty.
#[limit("Or('user:100/s', 'apikey:60/s')", with = limits, user, apikey)]
async fn hit(limits: &RateLimit, user: &str, apikey: u32) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[test]
fn sixty_four_tasks_get_exactly_what_the_rule_allows() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(8).build().unwrap();
    let (limits, clock) = limits();
    let limits = Arc::new(limits);
    for second in 0..SECONDS {
        at(&clock, second * 1_000);
        let mut allowed = [0; 2];
        let tasks: Vec<_> =
            (0..TASKS).map(|task| runtime.spawn(ask(Arc::clone(&limits), task % 2))).collect();
        for (task, apikey) in tasks.into_iter().zip([0, 1].into_iter().cycle()) {
            allowed[apikey] += runtime.block_on(task).unwrap();
        }
        assert_eq!(allowed[0] + allowed[1], 100, "the user's, in second {second}");
        assert!(allowed.iter().all(|count| *count <= 60), "the keys', in second {second}: {allowed:?}");
    }
}

/// Asks more often than could ever be allowed.
async fn ask(limits: Arc<RateLimit>, apikey: u32) -> u32 {
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += u32::from(hit(&limits, "vova", apikey).await.is_ok());
        tokio::task::yield_now().await;
    }
    allowed
}
