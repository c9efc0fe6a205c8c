//! Configuration files: what they say is what holds, and what is wrong with them is said at its place.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod access;
mod domains;
mod envoy;
mod errors;
mod keys;
mod override_files;
mod page;
mod robust;
mod rules;
mod says;
mod seed;
mod store;
#[cfg(unix)]
mod watch;
