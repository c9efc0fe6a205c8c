//! Tests that compare the core with a second, naive implementation on random histories.
//!
//! Both ways: what is admitted is never too much, and what conforms is never denied. A million decisions for each
//! algorithm in the ordinary suite.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod bill;
mod extremes;
mod fixed_window;
mod history;
mod naive;
mod policy;
mod quota;
mod rule;
mod sliding_log;
mod sliding_window;
mod smoothed_rate;
mod token_bucket;
