//! Parses arguments that several commands take.

use std::net::SocketAddr;
use std::str::FromStr;

use tollway::config::{GateAddressError, Gates, SmockronGate};

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
