//! The URL of a Redis store: its address and its settings.
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
//! A password is sent to Redis only: neither a printed URL nor an error about it contains the password.

mod parse;
mod secret;
mod setting;

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

pub use parse::RedisUrlError;
pub use secret::{PasswordFileError, Secret};
pub use setting::SettingError;

/// The address and the settings of one Redis, of one that Sentinels watch, or of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// The nodes and how they are organized.
    pub topology: Topology,
    /// True if the connections use TLS.
    pub tls: bool,
    /// A PEM file of certificates that are trusted in place of those of the system.
    pub tls_ca: Option<PathBuf>,
    /// A PEM file with the certificate that Redis is shown, for one that accepts only clients with a certificate. It
    /// needs `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// The PEM file with the private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// The user, if Redis has several.
    pub username: Option<String>,
    /// The password of the user.
    pub password: Option<Secret>,
    /// The file that contains the password, if it is not given here. [`RedisUrl::secret`] reads it.
    pub password_file: Option<PathBuf>,
    /// The number of the database; a Cluster has only 0.
    pub database: u16,
    /// The prefix of every key, before a colon.
    pub namespace: String,
    /// The longest time that a call waits for Redis.
    pub deadline: Duration,
}

/// The way in which the nodes of a store are organized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// There is one node.
    Single(Address),
    /// There is one primary, whose address the Sentinels know.
    Sentinel {
        /// The addresses of the Sentinels.
        sentinels: Vec<Address>,
        /// The name of the primary.
        primary: String,
    },
    /// Several nodes share the slots. These are asked for the others.
    Cluster(Vec<Address>),
}

/// The host and the port that a node listens at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The name or the address of the host; an IPv6 address has no brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl RedisUrl {
    /// The default port of Redis.
    pub const PORT: u16 = 6379;
    /// The default port of Sentinel.
    pub const SENTINEL_PORT: u16 = 26379;
    /// The default prefix of keys.
    pub const NAMESPACE: &str = "tollway";
    /// The default deadline.
    pub const DEADLINE: Duration = Duration::from_millis(50);

    /// Makes a URL of these nodes, with default settings.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tls: false,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            username: None,
            password: None,
            password_file: None,
            database: 0,
            namespace: Self::NAMESPACE.to_owned(),
            deadline: Self::DEADLINE,
        }
    }

    /// Returns the password: the given one, or the current content of the file, which may be replaced.
    pub fn secret(&self) -> Result<Option<Secret>, PasswordFileError> {
        match (&self.password, &self.password_file) {
            (Some(password), _) => Ok(Some(password.clone())),
            (None, Some(path)) => Secret::from_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Formats the address and the user, without the settings.
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

/// Formats the URL, with `***` in place of the password.
impl Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &PathBuf| parse::encoded(&path.to_string_lossy()).replace("%2F", "/");
        let options = [
            ("namespace", (self.namespace != Self::NAMESPACE).then(|| self.namespace.clone())),
            ("deadline", (self.deadline != Self::DEADLINE).then(|| format!("{:?}", self.deadline))),
            ("password_file", self.password_file.as_ref().map(path)),
            ("tls_ca", self.tls_ca.as_ref().map(path)),
            ("tls_cert", self.tls_cert.as_ref().map(path)),
            ("tls_key", self.tls_key.as_ref().map(path)),
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
