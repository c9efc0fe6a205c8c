//! A Redis Cluster.

use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;

use crate::port;
use crate::server::{RedisServer, directory, retry};
use crate::wait::eventually;

/// Which slots each primary has; the replica of each comes three places later.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10922, 10923..=16383];

/// Six nodes: three primaries, each with a replica.
///
/// A slot that nobody has does not stop the others (`cluster-require-full-coverage no`).
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts one in which a node is given up after one second, and waits until it serves every slot.
    pub fn start() -> Self {
        Self::start_with(1000, &[])
    }

    /// Starts one in which a node is given up after so many milliseconds, every node with these arguments.
    pub fn start_with(node_timeout: u32, arguments: &[&str]) -> Self {
        retry(|| Self::try_start(node_timeout, arguments))
    }

    fn try_start(node_timeout: u32, arguments: &[&str]) -> Option<Self> {
        let ports: [u16; 12] = port::free();
        let (ports, bus_ports) = ports.split_at(6);
        let mut nodes = Vec::new();
        for myself in 0..6 {
            let directory = directory();
            // They start as nodes that have met before: introducing them one by one would take seconds.
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

    /// `redis+cluster://` and the addresses of all nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.addresses().join(","))
    }

    /// The addresses of all nodes, `127.0.0.1:PORT` each.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::address).collect()
    }

    /// All six nodes. The first three began as primaries, and the fourth as the replica of the first.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node that has a slot now, as most others see it.
    pub fn primary_of(&mut self, slot: u16) -> &mut RedisServer {
        let port = self.port_of(slot).unwrap_or_else(|| panic!("nobody has slot {slot}"));
        self.nodes.iter_mut().find(|node| node.port() == port).expect("one of ours")
    }

    /// Kills the node that has a slot, and says at which port it was.
    pub fn kill_primary_of(&mut self, slot: u16) -> u16 {
        let primary = self.primary_of(slot);
        primary.kill();
        primary.port()
    }

    /// Forgets every key.
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

    /// Does every running node see every slot served, by primaries that answer, and every replica up to date?
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

/// What `nodes.conf` says once six nodes have met and shared the slots.
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

/// The name of a node: forty hexadecimal digits.
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
