//! Starts a Redis Cluster for tests.

use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;

use crate::port;
use crate::server::{RedisServer, directory, retry};
use crate::wait::eventually;

/// The slots that each primary has. The replica of the node `n` is the node `n + 3`.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10922, 10923..=16383];

/// A cluster that has six nodes: three primaries, each with a replica.
///
/// If a slot is not served, the others still are (`cluster-require-full-coverage no`).
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster with a node timeout of one second, and waits until it serves every slot.
    pub fn start() -> Self {
        Self::start_with(1000, &[])
    }

    /// Starts a cluster with a node timeout in milliseconds, and passes the arguments to every node.
    pub fn start_with(node_timeout: u32, arguments: &[&str]) -> Self {
        retry(|| Self::try_start(node_timeout, arguments))
    }

    fn try_start(node_timeout: u32, arguments: &[&str]) -> Option<Self> {
        let ports: [u16; 12] = port::free();
        let (ports, bus_ports) = ports.split_at(6);
        let mut nodes = Vec::new();
        for myself in 0..6 {
            let directory = directory();
            // Each node starts with a `nodes.conf` that lists the others: `CLUSTER MEET` would take seconds.
            let known = nodes_conf(myself, ports, bus_ports);
            fs::write(directory.path().join("nodes.conf"), known).expect("a file in a directory of our own");
            let (bus_port, node_timeout) = (bus_ports[myself].to_string(), node_timeout.to_string());
            let ours = [
                ["--cluster-enabled", "yes"],
                ["--cluster-port", &bus_port],
                ["--cluster-node-timeout", &node_timeout],
                ["--cluster-require-full-coverage", "no"],
                ["--repl-diskless-sync-delay", "0"],
            ];
            let arguments = [ours.as_flattened(), arguments].concat();
            nodes.push(RedisServer::at(ports[myself], &arguments, directory, None)?);
        }
        let cluster = Self { nodes };
        eventually("a Cluster that is well", || cluster.is_healthy());
        Some(cluster)
    }

    /// Returns the URL, `redis+cluster://` with the addresses of all nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.addresses().join(","))
    }

    /// Returns the addresses of all nodes, `127.0.0.1:PORT` each.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::address).collect()
    }

    /// Returns all six nodes. The first three started as primaries, and the fourth as the replica of the first.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the primary that has a slot now, as the first running node sees it.
    pub fn primary_of(&mut self, slot: u16) -> &mut RedisServer {
        let port = self.port_of(slot).unwrap_or_else(|| panic!("nobody has slot {slot}"));
        self.nodes.iter_mut().find(|node| node.port() == port).expect("one of ours")
    }

    /// Kills the primary that has a slot, and returns its port.
    pub fn kill_primary_of(&mut self, slot: u16) -> u16 {
        let primary = self.primary_of(slot);
        primary.kill();
        primary.port()
    }

    /// Deletes every key.
    pub fn flush(&self) {
        for node in self.running().filter(|node| node.cli(&["ROLE"]).starts_with("master")) {
            node.cli(&["FLUSHALL"]);
        }
    }

    /// Waits until every slot has a primary, and every running node agrees.
    pub fn settle(&self) {
        eventually("a Cluster that is well again", || self.is_healthy());
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    /// Returns whether every running node sees all slots served, and every replica is connected to its primary.
    fn is_healthy(&self) -> bool {
        self.running().all(|node| {
            let info = node.cli(&["CLUSTER", "INFO"]);
            let role = node.cli(&["ROLE"]);
            let has = |field: &str| info.lines().any(|line| line.trim() == field);
            has("cluster_state:ok")
                && has("cluster_slots_ok:16384")
                && (role.starts_with("master") || role.contains("\nconnected\n"))
        })
    }

    fn port_of(&self, slot: u16) -> Option<u16> {
        let seen = self.running().next()?.cli(&["CLUSTER", "NODES"]);
        let owner = seen.lines().find(|line| {
            let mut ranges = line.split(' ').skip(8).filter(|range| !range.starts_with('['));
            ranges.any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let number = |text: &str| text.parse::<u16>().ok();
                number(first).zip(number(last)).is_some_and(|(first, last)| (first..=last).contains(&slot))
            })
        })?;
        let address = owner.split(' ').nth(1)?.split('@').next()?;
        address.rsplit_once(':')?.1.parse().ok()
    }
}

/// Returns the `nodes.conf` of a node that has met the others, with the slots already distributed.
fn nodes_conf(myself: usize, ports: &[u16], bus_ports: &[u16]) -> String {
    let mut known = String::new();
    for node in 0..6 {
        let me = if node == myself { "myself," } else { "" };
        let (flags, primary, slots) = match SLOTS.get(node) {
            Some(slots) => ("master", "-".to_owned(), format!(" {}-{}", slots.start(), slots.end())),
            None => ("slave", name(node - 3), String::new()),
        };
        let (port, bus_port, epoch) = (ports[node], bus_ports[node], node % 3 + 1);
        let name = name(node);
        writeln!(
            known,
            "{name} 127.0.0.1:{port}@{bus_port} {me}{flags} {primary} 0 0 {epoch} connected{slots}"
        )
        .expect("text takes everything");
    }
    known + "vars currentEpoch 3 lastVoteEpoch 0\n"
}

/// Returns the name of a node, which is forty hexadecimal digits.
fn name(node: usize) -> String {
    format!("{node:040x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_over_when_its_primary_is_killed() {
        let mut cluster = RedisCluster::start();
        let before = cluster.kill_primary_of(0);
        eventually("another primary", || cluster.port_of(0).is_some_and(|port| port != before));
        cluster.settle();
        assert_eq!(cluster.primary_of(0).cli(&["SET", "{06S}", "1"]), "OK");
    }
}
