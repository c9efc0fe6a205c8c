//! The Redis store, on real servers: what it decides beside the core and the memory store, and what it leaves in Redis.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod agreement;
mod bills;
mod changed_numbers;
mod hammer;
mod inline;
mod kept;
mod looking;
mod model;
#[path = "../bills/paper.rs"]
mod paper;
mod quota_commands;
mod rates;
mod servers;
mod world;
