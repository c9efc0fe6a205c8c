//! Networks that lose packets or are cut in two.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::wait_until;

/// Runs a command that must succeed, and returns what it printed.
pub(super) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A rule that drops packets on loopback, to and from some ports. Nobody else is in this network.
pub(super) struct Loss;

impl Loss {
    pub(super) fn between(ports: &[u16], percent: u32) -> Self {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(", ");
        let random = format!("numgen random mod 100 < {percent} counter drop");
        let rules = format!(
            "table inet faults {{\n chain lost {{\n type filter hook input priority 0\n \
             tcp dport {{ {ports} }} {random}\n tcp sport {{ {ports} }} {random}\n }}\n}}\n"
        );
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut nft.stdin.take().unwrap(), rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "nft refused: {rules}");
        Self
    }

    /// Returns the number of packets that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        let listed = command("nft list table inet faults");
        let counts = listed.split("counter packets ").skip(1);
        counts.map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "inet", "faults"]).status();
    }
}

/// Two networks with a cable between them: the test is in one, and most of a Cluster is in the other.
pub(super) struct Namespaces;

const FAR: &str = "tollway-far";
const HERE: &str = "10.231.7.1";
const THERE: &str = "10.231.7.2";

impl Namespaces {
    pub(super) fn create() -> Self {
        command(&format!("ip netns add {FAR}"));
        let created = Self;
        command(&format!("ip link add tw-here type veth peer name tw-there netns {FAR}"));
        // Addresses are on loopback: those of a cable that is unplugged are gone for their own side, too.
        command(&format!("ip address add {HERE}/32 dev lo"));
        created.heal();
        for line in [
            "link set lo up".to_owned(),
            format!("address add {THERE}/32 dev lo"),
            "link set tw-there up".to_owned(),
            format!("route add {HERE} dev tw-there src {THERE}"),
        ] {
            command(&format!("ip -n {FAR} {line}"));
        }
        created
    }

    /// Unplugs the cable.
    pub(super) fn cut(&self) {
        command("ip link set tw-here down");
    }

    /// Plugs the cable in.
    pub(super) fn heal(&self) {
        command("ip link set tw-here up");
        command(&format!("ip route replace {THERE} dev tw-here src {HERE}"));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", FAR]).status();
        let _ = Command::new("ip").args(["address", "delete", &format!("{HERE}/32"), "dev", "lo"]).status();
    }
}

/// Three primaries and three replicas. One primary is here, and everybody else is there.
pub(super) struct PartitionedCluster {
    nodes: Vec<Node>,
    _directory: TempDir,
}

struct Node {
    process: Child,
    host: &'static str,
    port: u16,
}

const PORTS: u16 = 7_400;
const NODE_TIMEOUT_MILLIS: u32 = 1_000;

impl PartitionedCluster {
    pub(super) fn start(_: &Namespaces) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let nodes = (0..6).map(|number| Node::start(number, directory.path())).collect();
        let cluster = Self { nodes, _directory: directory };
        cluster.nodes.iter().for_each(|node| {
            wait_until("a node that answers", || node.cli("ping").contains("PONG"));
        });
        cluster.join();
        cluster
    }

    /// Makes a Cluster of the nodes: the first three have the slots, and each of the others follows one of them.
    fn join(&self) {
        let slots = ["0 5460", "5461 10922", "10923 16383"];
        for (node, slots) in self.nodes.iter().zip(slots) {
            node.cli(&format!("cluster addslotsrange {slots}"));
        }
        for (number, node) in self.nodes.iter().enumerate() {
            node.cli(&format!("cluster set-config-epoch {}", number + 1));
            node.cli(&format!("cluster meet {HERE} {PORTS}"));
        }
        let primaries: Vec<_> =
            self.nodes[..3].iter().map(|node| node.cli("cluster myid").trim().to_owned()).collect();
        for (node, primary) in self.nodes[3..].iter().zip(&primaries) {
            wait_until("a replica", || node.cli(&format!("cluster replicate {primary}")).contains("OK"));
        }
        wait_until("a Cluster that is well", || {
            self.nodes.iter().all(|node| node.cli("cluster info").contains("cluster_state:ok"))
        });
        wait_until("replicas in sync", || {
            self.nodes[3..].iter().all(|node| node.cli("info replication").contains("master_link_status:up"))
        });
    }

    pub(super) fn url(&self) -> String {
        let addresses: Vec<_> =
            self.nodes.iter().map(|node| format!("{}:{}", node.host, node.port)).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Returns whether the replica of the primary that is here has taken over.
    pub(super) fn has_failed_over(&self) -> bool {
        self.nodes[3].cli("info replication").contains("role:master")
    }
}

impl Node {
    fn start(number: u16, directory: &std::path::Path) -> Self {
        let host = if number == 0 { HERE } else { THERE };
        let (port, own) = (PORTS + number, directory.join(number.to_string()));
        std::fs::create_dir(&own).unwrap();
        let mut redis = if number == 0 {
            Command::new("redis-server")
        } else {
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", FAR, "redis-server"]);
            inside
        };
        let timeout = NODE_TIMEOUT_MILLIS.to_string();
        redis.args(["--port", &port.to_string(), "--bind", host, "--protected-mode", "no", "--save", ""]);
        redis.args(["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout]);
        redis.args(["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0", "--dir"]);
        let process = redis.arg(&own).stdout(Stdio::null()).spawn().unwrap();
        Self { process, host, port }
    }

    /// Runs a command on the node, from its own side of the cable.
    fn cli(&self, line: &str) -> String {
        let mut cli = Command::new("ip");
        if self.host == THERE {
            cli.args(["netns", "exec", FAR, "redis-cli"]);
        } else {
            cli = Command::new("redis-cli");
        }
        cli.args(["-h", self.host, "-p", &self.port.to_string()]).args(line.split_whitespace());
        String::from_utf8_lossy(&cli.output().unwrap().stdout).into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
