//! Parses the URL of a Redis store.
//!
//! ```text
//! redis://[user[:password]@]host[:port][/database]
//! redis+sentinel://[user[:password]@]host[:port],…/PRIMARY[/database]
//! redis+cluster://[user[:password]@]host[:port],…
//! ```
//!
//! each with an `s` after `redis` for TLS, with `valkey` for `redis`, and with `?name=value&…` at the end. No error
//! repeats text before an `@`, or a port that is not a number: either may be a password.

use std::net::Ipv6Addr;
use std::str::FromStr;

use thiserror::Error;

use super::setting::TEXT_MAX;
use super::{Address, RedisUrl, SettingError, Topology};
use crate::quote::shorten;

/// The longest URL: the longest password with every byte encoded, and room for the rest.
const URL_MAX: usize = 4 * TEXT_MAX;
/// The largest number of nodes in a URL. One node of a Cluster knows all the others.
const NODES_MAX: usize = 64;
/// The longest name of a host, by the rules of DNS.
const HOST_MAX: usize = 253;
/// The settings that can follow `?`.
const OPTIONS: [&str; 6] = ["namespace", "deadline", "password_file", "tls_ca", "tls_cert", "tls_key"];

/// The error of a text that is not a valid URL of a Redis store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisUrlError {
    /// The scheme is unknown.
    #[error(
        "must be a URL such as redis://cache:6379, redis+sentinel://a,b/PRIMARY or redis+cluster://a,b \
         (rediss for TLS), not \"{given}\""
    )]
    Scheme {
        /// The text that was given, without a password.
        given: String,
    },
    /// The URL is too long.
    #[error("can have at most {URL_MAX} bytes, and has {len}")]
    TooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The password contains a separator that is not encoded.
    #[error(
        "has an \"@\" in the wrong place; in a user or password write \"/\", \"?\" and \"#\" as %2F, %3F and %23, \
         and in an option write \"@\" as %40"
    )]
    LateAt,
    /// A `%` is not followed by two digits, or the decoded text is not UTF-8.
    #[error(
        "has a \"%\" that is not followed by two hexadecimal digits of UTF-8 text; write \"%\" itself as %25"
    )]
    Encoding,
    /// The host is missing.
    #[error("has no host; write redis://cache:6379, with an IPv6 address in brackets")]
    NoHost,
    /// The host is not valid.
    #[error("has an invalid host \"{given}\"; use a name, an IPv4 address, or an IPv6 address in brackets")]
    Host {
        /// The text that was given.
        given: String,
    },
    /// The port is not valid.
    #[error("has an invalid port after the host \"{host}\"; use a whole number from 1 to 65535")]
    Port {
        /// The host before the port.
        host: String,
    },
    /// There are several hosts, and the scheme takes one.
    #[error(
        "has {hosts} hosts, but {scheme}:// takes one; for several use {scheme}+cluster:// or {scheme}+sentinel://"
    )]
    SeveralHosts {
        /// The number of hosts.
        hosts: usize,
        /// The scheme of the URL.
        scheme: &'static str,
    },
    /// There are too many hosts.
    #[error("has {hosts} hosts, but can have at most {NODES_MAX}; a few are enough to find the others")]
    TooManyHosts {
        /// The number of hosts.
        hosts: usize,
    },
    /// The name of the primary is missing.
    #[error("does not name the primary; write redis+sentinel://a,b/PRIMARY")]
    NoPrimary,
    /// The database is not a number.
    #[error("has an invalid database \"{given}\"; use a whole number from 0 to 65535")]
    Database {
        /// The text that was given.
        given: String,
    },
    /// A database is given for a Cluster.
    #[error("has a database, but a cluster has only database 0; remove what follows the hosts")]
    ClusterDatabase,
    /// The option is unknown.
    #[error(
        "has an unknown option \"{given}\"; use namespace, deadline, password_file, tls_ca, tls_cert or tls_key"
    )]
    Option {
        /// The name of the option.
        given: String,
    },
    /// The value of an option is not valid.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, RedisUrlError> {
        if text.len() > URL_MAX {
            return Err(RedisUrlError::TooLong { len: text.len() });
        }
        let unknown = || RedisUrlError::Scheme { given: without_login(text) };
        let (scheme, rest) = text.split_once("://").ok_or_else(unknown)?;
        let (tls, kind) = scheme_of(scheme).ok_or_else(unknown)?;
        let (login_and_hosts, tail) = split_before(rest, ['/', '?', '#']);
        if tail.contains('@') {
            return Err(RedisUrlError::LateAt);
        }
        let (login, hosts) = login_and_hosts.rsplit_once('@').unwrap_or(("", login_and_hosts));
        let (path, options) = tail.split_once('?').unwrap_or((tail, ""));
        let (topology, database) = topology(kind, tls, hosts, path)?;
        let url = Self { tls, database, ..Self::new(topology) };
        let url = url.with_login(login)?.with_options(options)?;
        url.check_certificate()?;
        Ok(url)
    }
}

/// The topology that a scheme stands for.
#[derive(Clone, Copy)]
enum Kind {
    Single,
    Sentinel,
    Cluster,
}

/// Returns whether a scheme means TLS, and its topology.
fn scheme_of(scheme: &str) -> Option<(bool, Kind)> {
    let (name, kind) = match scheme.split_once('+') {
        None => (scheme, Kind::Single),
        Some((name, "sentinel")) => (name, Kind::Sentinel),
        Some((name, "cluster")) => (name, Kind::Cluster),
        Some(_) => return None,
    };
    match name {
        "redis" | "valkey" => Some((false, kind)),
        "rediss" | "valkeys" => Some((true, kind)),
        _ => None,
    }
}

/// Returns a text for an error, without the part before an `@`, which could be a password.
fn without_login(text: &str) -> String {
    match text.rfind('@') {
        Some(at) if !text.contains("://") => shorten(&format!("***{}", &text[at..])),
        _ => shorten(text),
    }
}

/// Splits a text before the first of `stops`.
fn split_before(text: &str, stops: [char; 3]) -> (&str, &str) {
    text.split_at(text.find(stops).unwrap_or(text.len()))
}

fn topology(kind: Kind, tls: bool, hosts: &str, path: &str) -> Result<(Topology, u16), RedisUrlError> {
    let port = if matches!(kind, Kind::Sentinel) { RedisUrl::SENTINEL_PORT } else { RedisUrl::PORT };
    let mut nodes = addresses(hosts, port)?;
    let path = path.strip_prefix('/').unwrap_or(path);
    match kind {
        Kind::Single if nodes.len() > 1 => {
            let scheme = if tls { "rediss" } else { "redis" };
            Err(RedisUrlError::SeveralHosts { hosts: nodes.len(), scheme })
        }
        Kind::Single => Ok((Topology::Single(nodes.remove(0)), database(path)?)),
        Kind::Sentinel => {
            let (primary, number) = path.split_once('/').unwrap_or((path, ""));
            let primary = decoded(primary)?;
            if primary.is_empty() {
                return Err(RedisUrlError::NoPrimary);
            }
            Ok((Topology::Sentinel { sentinels: nodes, primary }, database(number)?))
        }
        Kind::Cluster if matches!(path, "" | "0") => Ok((Topology::Cluster(nodes), 0)),
        Kind::Cluster => Err(RedisUrlError::ClusterDatabase),
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, RedisUrlError> {
    let count = hosts.split(',').count();
    if count > NODES_MAX {
        return Err(RedisUrlError::TooManyHosts { hosts: count });
    }
    hosts.split(',').map(|host| address(host, port)).collect()
}

fn address(text: &str, usual_port: u16) -> Result<Address, RedisUrlError> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, after)) => (ipv6(host)?, after),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (named(host, text)?, port)
        }
    };
    let number = port.strip_prefix(':').map(|port| digits(port).filter(|port| *port > 0));
    match number {
        None if port.is_empty() => Ok(Address { host, port: usual_port }),
        Some(Some(port)) => Ok(Address { host, port }),
        _ => Err(RedisUrlError::Port { host }),
    }
}

fn ipv6(host: &str) -> Result<String, RedisUrlError> {
    let address = host.parse::<Ipv6Addr>();
    address.map(|address| address.to_string()).map_err(|_| RedisUrlError::Host { given: shorten(host) })
}

fn named(host: &str, text: &str) -> Result<String, RedisUrlError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match host {
        "" if text.parse::<Ipv6Addr>().is_err() => Err(RedisUrlError::NoHost),
        host if !host.is_empty() && host.len() <= HOST_MAX && host.bytes().all(fits) => Ok(host.to_owned()),
        _ => Err(RedisUrlError::Host { given: shorten(if host.is_empty() { text } else { host }) }),
    }
}

fn database(text: &str) -> Result<u16, RedisUrlError> {
    match text {
        "" => Ok(0),
        text => digits(text).ok_or_else(|| RedisUrlError::Database { given: shorten(text) }),
    }
}

fn digits(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl RedisUrl {
    fn with_login(self, login: &str) -> Result<Self, RedisUrlError> {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let mut url = self;
        for (name, value) in [("username", decoded(user)?), ("password", decoded(password)?)] {
            if !value.is_empty() {
                url = url.with_setting(name, &value)?;
            }
        }
        Ok(url)
    }

    fn with_options(mut self, options: &str) -> Result<Self, RedisUrlError> {
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (given, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(name) = OPTIONS.iter().find(|name| **name == given) else {
                return Err(RedisUrlError::Option { given: shorten(given) });
            };
            self = self.with_setting(name, &decoded(value)?)?;
        }
        Ok(self)
    }
}

/// Decodes `%41` and the like.
fn decoded(text: &str) -> Result<String, RedisUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let byte = digit().and_then(|high| Some(high * 16 + digit()?));
        bytes.push(byte.and_then(|byte| u8::try_from(byte).ok()).ok_or(RedisUrlError::Encoding)?);
    }
    String::from_utf8(bytes).map_err(|_| RedisUrlError::Encoding)
}

/// Encodes the characters that have a meaning in a URL.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
