//! Where buckets live.

pub mod memory;
pub mod redis;
