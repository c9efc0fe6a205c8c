//! The algorithms a second time: as the specification words them, in wide integers, without a thought for speed.
//!
//! The specification speaks of times that only run forward and of limits that stay. Where they do not, each model
//! adds what Tollway promises on top: nobody waits longer than a bucket takes to be as new, and a bucket that has
//! nothing more to say is forgotten.

mod bill;
mod fixed_window;
mod quota;
mod sliding_log;
mod sliding_window;
mod smoothed_rate;
mod token_bucket;

use tollway_core::{Decision, Nanos, Refund, Timestamp, Verdict};

pub(crate) use bill::answer;
pub(crate) use fixed_window::{NaiveFixedWindow, window_end};
pub(crate) use quota::NaiveQuota;
pub(crate) use sliding_log::NaiveSlidingLog;
pub(crate) use sliding_window::NaiveSlidingWindow;
pub(crate) use smoothed_rate::NaiveSmoothedRate;
pub(crate) use token_bucket::NaiveTokenBucket;

fn decision(verdict: Verdict, remaining: i128, retry_after: i128, reset_after: i128) -> Decision {
    let remaining = u64::try_from(remaining).expect("units left");
    Decision::new(verdict, remaining, nanos(retry_after), nanos(reset_after))
}

fn refund(refunded: bool, remaining: i128, reset_after: i128) -> Refund {
    let remaining = u64::try_from(remaining).expect("units left");
    Refund::new(refunded, remaining, nanos(reset_after))
}

fn nanos(span: i128) -> Nanos {
    Nanos::new(u64::try_from(span).expect("a span of time"))
}

fn wide(moment: Timestamp) -> i128 {
    moment.as_nanos().into()
}
