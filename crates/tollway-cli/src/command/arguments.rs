//! Parses arguments that several commands take.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tollway::config::{GateAddressError, Gates, SmockronGate};
use tollway::core::Nanos;
use tollway_client::http::blocking::Client;

use super::tls_flags::TlsFlags;
use super::token_flags::TokenFlags;

/// The server that a command for operators asks.
#[derive(Args)]
pub(super) struct AdminServer {
    /// The address of the server's admin gate, or of its HTTP gate if there is no admin gate
    #[arg(
        long,
        visible_alias = "server",
        value_name = "ADDR",
        default_value = "127.0.0.1:8082",
        env = "TOLLWAY_ADMIN_ADDR"
    )]
    addr: String,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    token: TokenFlags,
}

impl AdminServer {
    /// Creates the client of the server.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        super::client(&self.addr, &self.tls, &self.token)
    }
}

/// A limit and an id, which are written as `LIMIT:ID`.
#[derive(Clone)]
pub(super) struct Bucket {
    pub(super) limit: String,
    pub(super) id: String,
}

impl FromStr for Bucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (limit, id) = text.split_once(':').ok_or("must be a limit and an id, such as \"demo:alice\"")?;
        Ok(Self { limit: limit.to_owned(), id: id.to_owned() })
    }
}

/// A value for a selector of a rule, which is written as `SELECTOR=VALUE`.
#[derive(Clone)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) value: String,
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("must be a selector and its value, such as \"user=vova\"".to_owned()),
        }
    }
}

/// A word that follows `--rule`: the name of the rule, or a value for one of its selectors.
#[derive(Clone)]
pub(super) enum RuleWord {
    Name(String),
    Selector(Selector),
}

impl FromStr for RuleWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Neither a rule nor a selector has a colon in its name. A charge would be taken for one of them, and would not
        // be made.
        if text.split('=').next().is_some_and(|name| name.contains(':')) {
            return Err("write LIMIT:ID before --rule".to_owned());
        }
        if text.contains('=') { text.parse().map(Self::Selector) } else { Ok(Self::Name(text.to_owned())) }
    }
}

/// Parses a period: a time with units, or whole seconds.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    text.parse().map(Nanos::as_duration).map_err(|error| error.to_string())
}

/// Parses the cost of a request.
pub(super) fn cost(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.fract() != 0.0 => {
            "costs are whole numbers; for finer steps multiply the count and the burst of the limit"
                .to_owned()
        }
        _ => format!("costs are whole numbers from 0 to {}", u64::MAX),
    })
}

/// The address at which a gate listens; `None` turns it off.
#[derive(Clone, Copy)]
pub(super) struct GateFlag(pub(super) Option<SocketAddr>);

impl GateFlag {
    pub(super) fn http(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::HTTP).map(Self)
    }

    pub(super) fn admin(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::ADMIN).map(Self)
    }

    pub(super) fn text(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::TEXT).map(Self)
    }

    pub(super) fn throttr(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::THROTTR).map(Self)
    }

    pub(super) fn resp(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::RESP).map(Self)
    }

    pub(super) fn rls(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, Gates::RLS).map(Self)
    }

    pub(super) fn smockron(text: &str) -> Result<Self, GateAddressError> {
        Gates::address(text, SmockronGate::ACCOUNTING).map(Self)
    }
}
