//! The place that buckets are moved from or to: a server, a Redis or a directory.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tollway::config::StoreUrl;
use tollway::store::redis::{Redis, RedisUrl};
use tollway_client::http::blocking::Client;

use crate::command::store;
use crate::command::tls_flags::TlsFlags;
use crate::command::token_flags::TokenFlags;

/// The deadline of calls to Redis: nobody waits for a decision here, and a long log takes longer than one.
const DEADLINE: Duration = Duration::from_secs(10);

/// The flags that a server needs.
#[derive(Args)]
pub(super) struct ServerFlags {
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    token: TokenFlags,
}

/// A place, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The admin gate of a running server.
    Server(String),
    /// The URL of a Redis. It may have a password, so it is parsed where errors do not print it.
    Redis(String),
    /// The directory of a journal.
    Directory(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("http" | "https") => Ok(Self::Server(text.to_owned())),
            Some(_) => Ok(Self::Redis(text.to_owned())),
            None if text.is_empty() => Err("write a URL or a directory".to_owned()),
            None => Ok(Self::Directory(text.into())),
        }
    }
}

/// A place that is open.
pub(super) enum OpenPlace {
    Server(Client),
    Redis(Redis),
    Directory(PathBuf),
}

impl Place {
    pub(super) fn open(&self, flags: &ServerFlags) -> anyhow::Result<OpenPlace> {
        Ok(match self {
            Self::Server(address) => {
                OpenPlace::Server(crate::command::client(address, &flags.tls, &flags.token)?)
            }
            Self::Directory(dir) => OpenPlace::Directory(dir.clone()),
            Self::Redis(url) => match store::chosen(Some(url), StoreUrl::Memory)? {
                StoreUrl::Redis(url) => {
                    OpenPlace::Redis(Redis::open(&RedisUrl { deadline: DEADLINE, ..url })?)
                }
                _ => bail!("write the URL of a server or of a Redis, or a directory"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_url_or_a_directory() {
        for (text, expected) in [
            ("http://127.0.0.1:8082", Place::Server("http://127.0.0.1:8082".to_owned())),
            ("redis+cluster://a,b", Place::Redis("redis+cluster://a,b".to_owned())),
            ("/var/lib/tollway", Place::Directory("/var/lib/tollway".into())),
            ("data", Place::Directory("data".into())),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
        assert!("".parse::<Place>().is_err());
    }
}
