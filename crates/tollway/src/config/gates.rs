//! Where the server listens.

mod smockron;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use super::errors::Errors;
use super::fields::{Fields, choice, literal, mapping, refuse};
use super::yaml::{YamlEntry, YamlValue, shorten};

pub use smockron::SmockronGate;

/// Where each gate listens; `None` is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    /// The HTTP gate.
    pub http: Option<SocketAddr>,
    /// The text gate, UDP.
    pub text: Option<SocketAddr>,
    /// The Throttr gate.
    pub throttr: Option<SocketAddr>,
    /// What the Throttr gate does when a live pair is inserted again.
    pub on_insert: OnInsert,
    /// The Smockron gate.
    pub smockron: Option<SmockronGate>,
}

/// What an insert does to a pair that is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInsert {
    /// It fails, and the pair stays as it is.
    #[default]
    Fail,
    /// It starts the pair over.
    Reset,
}

/// Every gate at its default address, on loopback.
impl Default for Gates {
    fn default() -> Self {
        Self {
            http: Some(Self::HTTP),
            text: Some(Self::TEXT),
            throttr: Some(Self::THROTTR),
            on_insert: OnInsert::default(),
            smockron: Some(SmockronGate::at(SmockronGate::ACCOUNTING)),
        }
    }
}

/// Why a text is no address for a gate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be an address and a port, such as {usual}, or off, not {given}{hint}")]
pub struct GateAddressError {
    usual: SocketAddr,
    given: String,
    hint: String,
}

impl Gates {
    /// Where the HTTP gate listens unless told otherwise.
    pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
    /// Where the text gate listens unless told otherwise.
    pub const TEXT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2000);
    /// Where the Throttr gate listens unless told otherwise.
    pub const THROTTR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

    /// No gate at all.
    pub const OFF: Self =
        Self { http: None, text: None, throttr: None, on_insert: OnInsert::Fail, smockron: None };

    /// An address and a port, or `off`. An error suggests the `usual` port, that of the gate's default.
    pub fn address(text: &str, usual: SocketAddr) -> Result<Option<SocketAddr>, GateAddressError> {
        if text == "off" {
            return Ok(None);
        }
        let error = || GateAddressError { usual, given: shorten(text), hint: hint(text, usual.port()) };
        text.parse().map(Some).map_err(|_| error())
    }

    /// Is there nowhere to ask?
    pub fn are_off(&self) -> bool {
        [self.http, self.text, self.throttr] == [None; 3] && self.smockron.is_none()
    }

    pub(super) fn read(entry: &YamlEntry, errors: &mut Errors) -> Option<Self> {
        let mut gates = Self::OFF;
        let entries = mapping(entry, "{http: 127.0.0.1:8080}", errors)?;
        let fields = Fields::read(entries, "gates", &["http", "text", "throttr", "smockron"], errors);
        let mut sound = true;
        for (name, usual, place) in [
            ("http", Self::HTTP, &mut gates.http),
            ("text", Self::TEXT, &mut gates.text),
            ("throttr", Self::THROTTR, &mut gates.throttr),
        ] {
            let Some(entry) = fields.get(name) else { continue };
            match read_gate(entry, usual, &mut gates.on_insert, errors) {
                Some(address) => *place = address,
                None => sound = false,
            }
        }
        if let Some(entry) = fields.get("smockron") {
            match smockron::read(entry, errors) {
                Some(gate) => gates.smockron = gate,
                None => sound = false,
            }
        }
        sound.then_some(gates)
    }
}

/// An address, or a mapping with one in `listen` and whatever else there is to say about the gate.
fn read_gate(
    entry: &YamlEntry,
    usual: SocketAddr,
    on_insert: &mut OnInsert,
    errors: &mut Errors,
) -> Option<Option<SocketAddr>> {
    let YamlValue::Map(entries) = &entry.value.value else { return read_address(entry, usual, errors) };
    let names: &[_] = if usual == Gates::THROTTR { &["listen", "on_insert"] } else { &["listen"] };
    let fields = Fields::read(entries, &entry.key.text, names, errors);
    let address = fields.get("listen").map_or(Some(Some(usual)), |entry| read_address(entry, usual, errors));
    if let Some(entry) = fields.get("on_insert") {
        *on_insert = choice(entry, &[("fail", OnInsert::Fail), ("reset", OnInsert::Reset)], errors)?;
    }
    address
}

fn read_address(entry: &YamlEntry, usual: SocketAddr, errors: &mut Errors) -> Option<Option<SocketAddr>> {
    let text = literal(&entry.value).filter(|text| !text.is_empty());
    let Some(text) = text else {
        return refuse(entry, &format!("must be an address and a port, such as {usual}, or off"), errors);
    };
    Gates::address(text, usual)
        .map_err(|error| errors.add(entry.value.at, format!("{} {error}", entry.key.quoted())))
        .ok()
}

/// What was probably meant by a port alone, a host name, or an address alone.
fn hint(text: &str, usual_port: u16) -> String {
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
        Ok(address) => format!("; did you mean {}?", SocketAddr::new(address, usual_port)),
        Err(_) if matches!(text, "false" | "no" | "none" | "null" | "~") => "; did you mean off?".to_owned(),
        Err(_) => String::new(),
    }
}
