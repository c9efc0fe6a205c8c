//! Buckets in Redis or Valkey, shared by a fleet.

#[expect(dead_code, reason = "the scripts come next")]
mod call;
mod error;
mod url;
#[expect(dead_code, reason = "the scripts come next")]
mod wire;

pub use error::StoreError;
pub use url::{Address, PasswordFileError, RedisUrl, RedisUrlError, Secret, SettingError, Topology};
