//! Where the server listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use super::errors::Errors;
use super::fields::{Fields, literal, mapping, refuse};
use super::yaml::{Entry, shorten};

/// Where each gate listens; `None` is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    /// The HTTP gate.
    pub http: Option<SocketAddr>,
}

/// Every gate at its default address, on loopback.
impl Default for Gates {
    fn default() -> Self {
        Self { http: Some(Self::HTTP) }
    }
}

/// Why a text is no address for a gate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be an address and a port, such as 127.0.0.1:8080, or off, not {given}{hint}")]
pub struct GateAddressError {
    given: String,
    hint: String,
}

impl Gates {
    /// Where the HTTP gate listens unless told otherwise.
    pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

    /// No gate at all.
    const OFF: Self = Self { http: None };

    /// An address and a port, or `off`.
    pub fn address(text: &str) -> Result<Option<SocketAddr>, GateAddressError> {
        if text == "off" {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| GateAddressError { given: shorten(text), hint: hint(text) })
    }

    pub(super) fn read(entry: &Entry, errors: &mut Errors) -> Option<Self> {
        let mut gates = Self::OFF;
        let entries = mapping(entry, "{http: 127.0.0.1:8080}", errors)?;
        let fields = Fields::read(entries, "gates", &["http"], errors);
        if let Some(entry) = fields.get("http") {
            gates.http = read_address(entry, errors)?;
        }
        Some(gates)
    }
}

fn read_address(entry: &Entry, errors: &mut Errors) -> Option<Option<SocketAddr>> {
    let text = literal(&entry.value).filter(|text| !text.is_empty());
    let Some(text) = text else {
        return refuse(entry, "must be an address and a port, such as 127.0.0.1:8080, or off", errors);
    };
    Gates::address(text)
        .map_err(|error| errors.add(entry.value.at, format!("{} {error}", entry.key.quoted())))
        .ok()
}

/// What was probably meant by a port alone, a host name, or an address alone.
fn hint(text: &str) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    if let Ok(port) = port.parse::<u16>() {
        match host {
            "" => return format!("; did you mean 127.0.0.1:{port}, or 0.0.0.0:{port} for every interface?"),
            "localhost" => return format!("; did you mean 127.0.0.1:{port}?"),
            "*" => return format!("; did you mean 0.0.0.0:{port}?"),
            _ => {}
        }
    }
    match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => format!("; did you mean {}?", SocketAddr::new(address, Gates::HTTP.port())),
        Err(_) if matches!(text, "false" | "no" | "none" | "null" | "~") => "; did you mean off?".to_owned(),
        Err(_) => String::new(),
    }
}
