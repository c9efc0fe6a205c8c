//! Which Redis, and how it is talked to.
//!
//! ```
//! use tollway::store::redis::{RedisUrl, Topology};
//!
//! let url: RedisUrl = "rediss+cluster://app:s3cret@a,b:7001?deadline=20ms".parse()?;
//! assert!(url.tls && matches!(&url.topology, Topology::Cluster(nodes) if nodes.len() == 2));
//! assert_eq!(url.to_string(), "rediss+cluster://app:***@a:6379,b:7001?deadline=20ms");
//! # Ok::<(), tollway::store::redis::RedisUrlError>(())
//! ```
//!
//! A password goes to Redis and nowhere else: neither what is printed nor an error about a URL has it.

mod parse;
mod secret;
mod setting;

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

pub use parse::RedisUrlError;
pub use secret::{PasswordFileError, Secret};
pub use setting::SettingError;

/// One Redis, one that Sentinels watch, or a Cluster, and everything that must be known to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where it is.
    pub topology: Topology,
    /// Is it spoken to over TLS?
    pub tls: bool,
    /// A file of certificates, in PEM, that are trusted instead of the usual ones.
    pub tls_ca: Option<PathBuf>,
    /// The user, where there are several.
    pub username: Option<String>,
    /// What proves it.
    pub password: Option<Secret>,
    /// The file that has the password in it, if it is not given here. [`RedisUrl::secret`] reads it.
    pub password_file: Option<PathBuf>,
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

impl RedisUrl {
    /// The port of Redis.
    pub const PORT: u16 = 6379;
    /// The port of Sentinel.
    pub const SENTINEL_PORT: u16 = 26379;
    /// What keys begin with unless configured otherwise.
    pub const NAMESPACE: &str = "tollway";
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
            password_file: None,
            database: 0,
            namespace: Self::NAMESPACE.to_owned(),
            deadline: Self::DEADLINE,
        }
    }

    /// The password: the one given, or what is in the file now. A file may be replaced while connections are made.
    pub fn secret(&self) -> Result<Option<Secret>, PasswordFileError> {
        match (&self.password, &self.password_file) {
            (Some(password), _) => Ok(Some(password.clone())),
            (None, Some(path)) => Secret::from_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Where it is and who asks, without the settings.
    pub(crate) fn place(&self) -> impl Display {
        fmt::from_fn(move |f| {
            let (kind, nodes, path) = match &self.topology {
                Topology::Single(address) => ("", std::slice::from_ref(address), String::new()),
                Topology::Sentinel { sentinels, primary } => {
                    ("+sentinel", &**sentinels, format!("/{}", parse::encoded(primary)))
                }
                Topology::Cluster(nodes) => ("+cluster", &**nodes, String::new()),
            };
            write!(f, "redis{}{kind}://", if self.tls { "s" } else { "" })?;
            match (&self.username, &self.password) {
                (None, None) => {}
                (Some(user), None) => write!(f, "{}@", parse::encoded(user))?,
                (user, Some(_)) => write!(f, "{}:***@", parse::encoded(user.as_deref().unwrap_or_default()))?,
            }
            let nodes: Vec<_> = nodes.iter().map(Address::to_string).collect();
            write!(f, "{}{path}", nodes.join(","))?;
            if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
        })
    }
}

/// The URL that means this, but for the password, which is `***`.
impl Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &PathBuf| parse::encoded(&path.to_string_lossy()).replace("%2F", "/");
        let options = [
            ("namespace", (self.namespace != Self::NAMESPACE).then(|| self.namespace.clone())),
            ("deadline", (self.deadline != Self::DEADLINE).then(|| format!("{:?}", self.deadline))),
            ("password_file", self.password_file.as_ref().map(path)),
            ("tls_ca", self.tls_ca.as_ref().map(path)),
        ];
        write!(f, "{}", self.place())?;
        let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        for (index, (name, value)) in given.enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
