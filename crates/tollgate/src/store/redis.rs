//! Buckets in Redis or Valkey, shared by a fleet.

#[cfg_attr(not(test), expect(dead_code, reason = "the scripts come next"))]
mod call;
mod error;
#[cfg_attr(not(test), expect(dead_code, reason = "the scripts come next"))]
mod key;
mod stub;
mod url;
#[cfg_attr(not(test), expect(dead_code, reason = "the scripts come next"))]
mod wire;

pub use error::StoreError;
pub use stub::{Page, Redis};
pub use url::{Address, PasswordFileError, RedisUrl, RedisUrlError, Secret, SettingError, Topology};
pub use wire::{Health, NodeHealth, NodeState};
