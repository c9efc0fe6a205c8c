//! Bills through a limiter: against a naive model on random histories, and under threads that fight for the same
//! buckets.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod histories;
mod model;
#[path = "../../../tollway-core/tests/oracle/naive/mod.rs"]
mod naive;
mod paper;
mod threads;
