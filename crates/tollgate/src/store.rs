//! Where buckets live.

pub mod memory;
