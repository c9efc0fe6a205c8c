//! The servers that the tests share.

use std::sync::LazyLock;
use std::time::Duration;

use tollway::store::redis::{Redis, RedisUrl};
use tollway_testbed::{RedisCluster, RedisServer};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

/// Returns the one Redis that all tests share.
pub(crate) fn server() -> &'static RedisServer {
    &SERVER
}

/// A store of its own in the one Redis, with time for as large batches as tests make.
pub(crate) fn store(namespace: &str) -> Redis {
    open(&server().url(), namespace)
}

/// Returns the one Cluster that all tests share.
pub(crate) fn cluster() -> &'static RedisCluster {
    &CLUSTER
}

/// A store of its own in the one Cluster.
pub(crate) fn cluster_store(namespace: &str) -> Redis {
    open(&cluster().url(), namespace)
}

pub(crate) fn open(url: &str, namespace: &str) -> Redis {
    let url: RedisUrl = url.parse().unwrap();
    let url = RedisUrl { namespace: namespace.to_owned(), deadline: Duration::from_secs(60), ..url };
    Redis::open(&url).unwrap()
}
