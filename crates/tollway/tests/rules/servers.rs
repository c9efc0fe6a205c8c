//! The stores that the tests run on.

use std::sync::LazyLock;
use std::time::Duration;

use tollway::Clock;
use tollway::core::{Policy, Timestamp};
use tollway::engine::Engine;
use tollway::store::Store;
use tollway::store::memory::Memory;
use tollway::store::redis::{Redis, RedisUrl};
use tollway_testbed::{RedisCluster, RedisServer};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

/// Returns the one Redis that all tests share.
pub(crate) fn server() -> &'static RedisServer {
    &SERVER
}

/// Returns the one Cluster that all tests share.
pub(crate) fn cluster() -> &'static RedisCluster {
    &CLUSTER
}

/// A store with a namespace of its own, and with time for a machine that does other things, too.
pub(crate) fn open(url: &str, namespace: &str) -> Redis {
    let url: RedisUrl = url.parse().unwrap();
    let url = RedisUrl { namespace: namespace.to_owned(), deadline: Duration::from_secs(60), ..url };
    Redis::open(&url).unwrap()
}

/// A limiter, and its clock, which stands until it is set.
pub(crate) fn limiter(store: impl Into<Store>) -> (Engine, Clock) {
    let clock = Clock::manual(Timestamp::EPOCH);
    (Engine::with(Policy::default(), store, clock.clone()), clock)
}

/// Makes an engine in memory, and its clock.
pub(crate) fn in_memory() -> (Engine, Clock) {
    limiter(Memory::new(100_000))
}

/// Makes an engine over the Redis at this address, and its clock.
pub(crate) fn over_redis(url: &str, namespace: &str) -> (Engine, Clock) {
    limiter(Store::Redis(open(url, namespace), Memory::new(1)))
}
