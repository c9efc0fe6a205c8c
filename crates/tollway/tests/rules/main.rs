//! Checks rules on memory, on Redis and on a Cluster: their decisions beside a rule that keeps every timestamp, the
//! number of calls that many callers get through at once, and the entries that are left in Redis.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod agreement;
mod hammer;
mod kept;
mod naive;
mod servers;
