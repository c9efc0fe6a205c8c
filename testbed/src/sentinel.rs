//! Starts a Redis primary, a replica, and the Sentinels that watch them.

use std::fmt::Write;
use std::fs;

use tempfile::TempDir;

use crate::port;
use crate::process::SupervisedProcess;
use crate::server::{RedisServer, directory, retry};
use crate::wait::{eventually, holds_in_time};

/// A primary, a replica, and three Sentinels who watch them under the name [`RedisSentinels::NAME`].
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    // Before the directory: what runs in it must have ended when it goes.
    _process: SupervisedProcess,
    _directory: TempDir,
}

impl RedisSentinels {
    /// The name that the Sentinels have for the primary.
    pub const NAME: &str = "tollbooth";

    /// Starts them, and waits until the Sentinels know of each other and of the replica.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts them, with these arguments for the first primary.
    pub fn start_with(arguments: &[&str]) -> Self {
        let primary = RedisServer::start_with(arguments);
        let port = primary.port().to_string();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
        let sentinels = (0..3).map(|_| Sentinel::start(primary.port())).collect();
        let started = Self { servers: vec![primary, replica], sentinels };
        eventually("Sentinels that know each other", || started.is_healthy());
        started
    }

    /// Returns the URL: `redis+sentinel://`, the addresses of the Sentinels, and the name.
    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/{}", self.addresses().join(","), Self::NAME)
    }

    /// Returns the addresses of the Sentinels, `127.0.0.1:PORT` each.
    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect()
    }

    /// Returns the server that is the primary, according to the first Sentinel.
    pub fn primary(&mut self) -> &mut RedisServer {
        let port = self.sentinels[0].primary().expect("a Sentinel that answers");
        self.servers.iter_mut().find(|server| server.port() == port).expect("one of ours")
    }

    /// Promotes the replica with a manual failover, and waits until all Sentinels agree.
    pub fn fail_over(&mut self) {
        let before = self.primary().port();
        eventually("another primary", || {
            // A Sentinel refuses until it has heard from the replica itself, and gives up if the replica is slow.
            if self.sentinels[0].primary() == Some(before) {
                self.sentinels[0].cli(&["SENTINEL", "FAILOVER", Self::NAME]);
            }
            self.sentinels.iter().all(|each| each.primary().is_some_and(|primary| primary != before))
        });
    }

    fn is_healthy(&self) -> bool {
        self.sentinels.iter().all(|sentinel| {
            let seen = sentinel.cli(&["SENTINEL", "MASTER", Self::NAME]);
            let lines: Vec<_> = seen.lines().collect();
            let has = |field: &str, value: &str| lines.windows(2).any(|pair| pair == [field, value]);
            has("flags", "master") && has("num-slaves", "1") && has("num-other-sentinels", "2")
        })
    }
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        retry(|| {
            let [port] = port::free();
            let directory = directory();
            let file = directory.path().join("sentinel.conf");
            fs::write(&file, configuration(port, primary)).expect("a file in a directory of our own");
            let arguments =
                [file.to_str().expect("temporary names are text").to_owned(), "--sentinel".to_owned()];
            let process = SupervisedProcess::start(directory.path(), "redis-server", &arguments);
            let sentinel = Self { port, _process: process, _directory: directory };
            holds_in_time(|| sentinel.cli(&["PING"]) == "PONG").then_some(sentinel)
        })
    }

    fn cli(&self, command: &[&str]) -> String {
        crate::server::cli(self.port, command)
    }

    fn primary(&self) -> Option<u16> {
        let address = self.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinels::NAME]);
        address.lines().nth(1)?.parse().ok()
    }
}

fn configuration(port: u16, primary: u16) -> String {
    let name = RedisSentinels::NAME;
    let mut lines = format!("port {port}\nbind 127.0.0.1\nsentinel monitor {name} 127.0.0.1 {primary} 2\n");
    // Long enough for a busy machine: a primary that is only slow is not replaced, and a replica that is only slow is
    // not given up.
    for (setting, milliseconds) in [("down-after-milliseconds", 2000), ("failover-timeout", 6000)] {
        writeln!(lines, "sentinel {setting} {name} {milliseconds}").expect("text takes everything");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replica_takes_over_when_asked() {
        let mut sentinels = RedisSentinels::start();
        let before = sentinels.primary().port();
        sentinels.fail_over();
        assert_ne!(sentinels.primary().port(), before);
    }
}
