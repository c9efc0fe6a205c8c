//! Rules, on memory, on Redis and on a Cluster: what they decide beside one that keeps every timestamp, what many at once
//! get through, and what is left in Redis.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod agreement;
mod hammer;
mod kept;
mod naive;
mod servers;
