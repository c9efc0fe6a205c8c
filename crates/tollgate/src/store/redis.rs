//! Buckets in Redis or Valkey, shared by a fleet.

mod error;
mod url;

pub use error::StoreError;
pub use url::{Address, RedisUrl, Secret, Topology};
