//! Tests of exports: buckets that were moved from one store to another decide as if they had stayed, nobody gets more
//! than they had, and a file that is not whole is refused.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod damage;
mod merge;
mod random_moves;
mod stores;
