//! Which Redis, and how it is talked to.

use std::fmt;
use std::time::Duration;

/// One Redis, one that Sentinels watch, or a Cluster, and everything that must be known to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where it is.
    pub topology: Topology,
    /// Is it spoken to over TLS?
    pub tls: bool,
    /// A file of certificates, in PEM, that are trusted instead of the usual ones.
    pub tls_ca: Option<std::path::PathBuf>,
    /// The user, where there are several.
    pub username: Option<String>,
    /// What proves it.
    pub password: Option<Secret>,
    /// The number of the database; a Cluster has none but 0.
    pub database: u16,
    /// What every key begins with, before a colon.
    pub namespace: String,
    /// How long an answer is waited for.
    pub deadline: Duration,
}

/// How the nodes hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One node.
    Single(Address),
    /// Whichever node the Sentinels call the primary.
    Sentinel {
        /// The Sentinels.
        sentinels: Vec<Address>,
        /// The name they watch it by.
        primary: String,
    },
    /// Nodes that share the slots. These are asked for all the others.
    Cluster(Vec<Address>),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// What nobody may read in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl RedisUrl {
    /// The port of Redis.
    pub const PORT: u16 = 6379;
    /// The port of Sentinel.
    pub const SENTINEL_PORT: u16 = 26379;
    /// What keys begin with unless configured otherwise.
    pub const NAMESPACE: &str = "tollgate";
    /// How long an answer is waited for unless configured otherwise.
    pub const DEADLINE: Duration = Duration::from_millis(15);

    /// These nodes, with everything else at its default.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tls: false,
            tls_ca: None,
            username: None,
            password: None,
            database: 0,
            namespace: Self::NAMESPACE.to_owned(),
            deadline: Self::DEADLINE,
        }
    }
}

impl Secret {
    /// Keeps it.
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// To hand it to whoever asks for it by protocol.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
