//! Reads the section `gates`: the addresses at which the server listens.

mod access;
mod host_names;
mod http;
mod inline_access;
mod max_connections;
mod smockron;
mod text_hmac;
mod trusted_networks;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use thiserror::Error;
use tollway_core::Nanos;

use super::errors::ErrorCollector;
use super::fields::{YamlFields, choice, duration, mapping, refuse, scalar_text};
use super::yaml::{YamlEntry, YamlValue, shorten};
use access::{TLS, TOKENS};
use host_names::HOSTS;
use inline_access::INLINE;
use max_connections::{PER_ADDRESS, TOTAL};
use text_hmac::HMAC;
use trusted_networks::TRUSTED_NETWORKS;

pub(super) use access::AccessReader;
pub use access::{GateAccess, TlsSettings};
pub use host_names::HostNames;
pub use http::HttpSettings;
pub use inline_access::InlineAccess;
pub use max_connections::MaxConnections;
pub use smockron::SmockronGate;
pub use text_hmac::TextHmac;
pub use trusted_networks::TrustedNetworks;

/// The address of each gate; a gate that is off has `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    /// The address at which the HTTP gate listens.
    pub http: Option<SocketAddr>,
    /// The number of connections that the HTTP gate accepts.
    pub http_connections: MaxConnections,
    /// The settings of who may use the HTTP gate.
    pub http_access: GateAccess,
    /// The settings of the HTTP gate.
    pub http_settings: HttpSettings,
    /// The address at which the admin gate listens.
    pub admin: Option<SocketAddr>,
    /// The number of connections that the admin gate accepts.
    pub admin_connections: MaxConnections,
    /// The settings of who may use the admin gate.
    pub admin_access: GateAccess,
    /// The names by which browsers may ask the admin gate.
    pub admin_hosts: HostNames,
    /// The UDP address at which the text gate listens.
    pub text: Option<SocketAddr>,
    /// The networks whose datagrams the text gate answers.
    pub trusted_networks: TrustedNetworks,
    /// The keys of a text gate that answers signed datagrams only.
    pub text_hmac: Option<TextHmac>,
    /// The address at which the Throttr gate listens.
    pub throttr: Option<SocketAddr>,
    /// The number of connections that the Throttr gate accepts.
    pub throttr_connections: MaxConnections,
    /// The settings of who may use the Throttr gate.
    pub throttr_access: GateAccess,
    /// The settings of the Throttr gate.
    pub throttr_settings: ThrottrSettings,
    /// The address at which the RESP gate listens.
    pub resp: Option<SocketAddr>,
    /// The number of connections that the RESP gate accepts.
    pub resp_connections: MaxConnections,
    /// The settings of who may use the RESP gate.
    pub resp_access: GateAccess,
    /// The clients of the RESP gate that may bring the numbers of limits.
    pub resp_inline: InlineAccess,
    /// The addresses at which the Smockron gate listens.
    pub smockron: Option<SmockronGate>,
    /// The address at which the gate for Envoy's rate limit service listens.
    pub rls: Option<SocketAddr>,
    /// The number of connections that the gate for Envoy's rate limit service accepts.
    pub rls_connections: MaxConnections,
    /// The settings of who may use the gate for Envoy's rate limit service.
    pub rls_access: GateAccess,
}

/// The effect of a Throttr insert on a pair that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInsert {
    /// The insert fails, and the pair stays as it is.
    #[default]
    Fail,
    /// The insert replaces the pair.
    Reset,
}

/// The settings of the Throttr gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottrSettings {
    /// The effect of an insert on a pair that exists already.
    pub on_insert: OnInsert,
    /// The longest lifetime of a pair: a longer one is cut to it. Clients choose lifetimes of up to 2^64 seconds;
    /// without a bound, whoever can reach the gate could fill the store for good.
    pub max_ttl: Nanos,
}

impl ThrottrSettings {
    /// A live pair is not replaced, and no pair lives for more than thirty days.
    pub const DEFAULT: Self = Self { on_insert: OnInsert::Fail, max_ttl: Nanos::from_secs(30 * 86_400) };
}

/// By default every gate listens on loopback, at its default port.
impl Default for Gates {
    fn default() -> Self {
        Self {
            http: Some(Self::HTTP),
            admin: Some(Self::ADMIN),
            text: Some(Self::TEXT),
            throttr: Some(Self::THROTTR),
            resp: Some(Self::RESP),
            smockron: Some(SmockronGate::at(SmockronGate::ACCOUNTING)),
            rls: Some(Self::RLS),
            ..Self::OFF
        }
    }
}

/// A text that is not an address for a gate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be an address and a port, such as {usual}, or off, not \"{given}\"{hint}")]
pub struct GateAddressError {
    usual: SocketAddr,
    given: String,
    hint: String,
}

impl Gates {
    /// The address at which the HTTP gate listens by default.
    pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
    /// The address at which the admin gate listens by default.
    pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082);
    /// The address at which the text gate listens by default.
    pub const TEXT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2000);
    /// The address at which the Throttr gate listens by default.
    pub const THROTTR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);
    /// The address at which the RESP gate listens by default.
    pub const RESP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6380);
    /// The address at which the gate for Envoy's rate limit service listens by default.
    pub const RLS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

    /// A configuration in which every gate is off.
    pub const OFF: Self = Self {
        http: None,
        http_connections: MaxConnections::DEFAULT,
        http_access: GateAccess::OPEN,
        http_settings: HttpSettings::DEFAULT,
        admin: None,
        admin_connections: MaxConnections::DEFAULT,
        admin_access: GateAccess::OPEN,
        admin_hosts: HostNames::NONE,
        text: None,
        trusted_networks: TrustedNetworks::LOCAL,
        text_hmac: None,
        throttr: None,
        throttr_connections: MaxConnections::DEFAULT,
        throttr_access: GateAccess::OPEN,
        throttr_settings: ThrottrSettings::DEFAULT,
        resp: None,
        resp_connections: MaxConnections::DEFAULT,
        resp_access: GateAccess::OPEN,
        resp_inline: InlineAccess::Loopback,
        smockron: None,
        rls: None,
        rls_connections: MaxConnections::DEFAULT,
        rls_access: GateAccess::OPEN,
    };

    /// Parses a [`listen_address`], or `off`. Errors suggest `usual`, the default address of the gate.
    pub fn address(text: &str, usual: SocketAddr) -> Result<Option<SocketAddr>, GateAddressError> {
        if text == "off" {
            return Ok(None);
        }
        let error = || GateAddressError { usual, given: shorten(text), hint: hint(text, usual.port()) };
        listen_address(text).map(Some).ok_or_else(error)
    }

    /// Returns whether every gate is off.
    pub fn are_off(&self) -> bool {
        let addresses = [self.http, self.admin, self.text, self.throttr, self.resp, self.rls];
        addresses.iter().all(Option::is_none) && self.smockron.is_none()
    }

    /// Returns the name, the address and the access of each gate that is on and can ask for certificates or tokens.
    pub fn accesses(&self) -> impl Iterator<Item = (&'static str, SocketAddr, &GateAccess)> {
        let all = [
            ("http", self.http, &self.http_access),
            ("admin", self.admin, &self.admin_access),
            ("throttr", self.throttr, &self.throttr_access),
            ("resp", self.resp, &self.resp_access),
            ("rls", self.rls, &self.rls_access),
        ];
        all.into_iter().filter_map(|(gate, address, access)| Some((gate, address?, access)))
    }

    /// Sets the access to every gate whose clients can send a token.
    fn with_access(self, access: &GateAccess) -> Self {
        let [http_access, admin_access, resp_access, rls_access] = [(); 4].map(|()| access.clone());
        Self { http_access, admin_access, resp_access, rls_access, ..self }
    }

    /// Reads the section; without one, every gate is at its default address. A new setting of a gate is one name in the
    /// list of its gate, and one field below.
    pub(super) fn read(
        entry: Option<&YamlEntry>,
        access: &AccessReader<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<Self> {
        let Some(entry) = entry else { return Some(Self::default().with_access(&access.default())) };
        let entries = mapping(entry, "{http: 127.0.0.1:8080}", errors)?;
        let gates = YamlFields::read(
            entries,
            "gates",
            &["http", "admin", "text", "throttr", "resp", "smockron", "rls"],
            errors,
        );
        let [proxies, inline, throttlecrab, gate, hosts] = http::NAMES;
        let names = ["listen", TOTAL, PER_ADDRESS, TLS, TOKENS, proxies, inline, throttlecrab, gate, hosts];
        let http = GateFields::read(gates.get("http"), Self::HTTP, &names, errors);
        let http_connections = MaxConnections::read(&http.settings, errors);
        let http_access = access.read(&http.settings, errors);
        let http_settings = HttpSettings::read(&http.settings, errors);
        let names = ["listen", HOSTS, TOTAL, PER_ADDRESS, TLS, TOKENS];
        let admin = GateFields::read(gates.get("admin"), Self::ADMIN, &names, errors);
        let admin_hosts = admin.setting(HOSTS, |entry| HostNames::read(entry, errors));
        let admin_connections = MaxConnections::read(&admin.settings, errors);
        let admin_access = access.read(&admin.settings, errors);
        let names = ["listen", TRUSTED_NETWORKS, HMAC];
        let text = GateFields::read(gates.get("text"), Self::TEXT, &names, errors);
        let trusted_networks = text.setting(TRUSTED_NETWORKS, |entry| TrustedNetworks::read(entry, errors));
        let text_hmac = text.setting(HMAC, |entry| TextHmac::read(entry, access, errors));
        let names = ["listen", "on_insert", "max_ttl", TOTAL, PER_ADDRESS, TLS, TOKENS];
        let throttr = GateFields::read(gates.get("throttr"), Self::THROTTR, &names, errors);
        let throttr_connections = MaxConnections::read(&throttr.settings, errors);
        let throttr_access = access.read_throttr(&throttr.settings, errors);
        let on_insert = throttr.setting("on_insert", |entry| {
            choice(entry, &[("fail", OnInsert::Fail), ("reset", OnInsert::Reset)], errors)
        });
        let max_ttl = throttr.settings.get("max_ttl");
        let max_ttl = max_ttl.map_or(Some(ThrottrSettings::DEFAULT.max_ttl), |entry| duration(entry, errors));
        let names = ["listen", INLINE, TOTAL, PER_ADDRESS, TLS, TOKENS];
        let resp = GateFields::read(gates.get("resp"), Self::RESP, &names, errors);
        let resp_connections = MaxConnections::read(&resp.settings, errors);
        let resp_access = access.read(&resp.settings, errors);
        let resp_inline = resp.setting(INLINE, |entry| InlineAccess::read(entry, errors));
        let smockron = gates.get("smockron").map_or(Some(None), |entry| smockron::read(entry, errors));
        let names = ["listen", TOTAL, PER_ADDRESS, TLS, TOKENS];
        let rls = GateFields::read(gates.get("rls"), Self::RLS, &names, errors);
        let rls_connections = MaxConnections::read(&rls.settings, errors);
        let rls_access = access.read(&rls.settings, errors);
        // Everything is read before the first `?`, so that one mistake does not hide the next.
        Some(Self {
            http: http.listen?,
            http_connections: http_connections?,
            http_access: http_access?,
            http_settings: http_settings?,
            admin: admin.listen?,
            admin_connections: admin_connections?,
            admin_access: admin_access?,
            admin_hosts: admin_hosts?,
            text: text.listen?,
            trusted_networks: trusted_networks?,
            text_hmac: text_hmac?,
            throttr: throttr.listen?,
            throttr_connections: throttr_connections?,
            throttr_access: throttr_access?,
            throttr_settings: ThrottrSettings { on_insert: on_insert?, max_ttl: max_ttl? },
            resp: resp.listen?,
            resp_connections: resp_connections?,
            resp_access: resp_access?,
            resp_inline: resp_inline?,
            smockron: smockron?,
            rls: rls.listen?,
            rls_connections: rls_connections?,
            rls_access: rls_access?,
        })
    }
}

/// The value of one gate: an address, or a mapping with the address in `listen` and the settings of the gate.
struct GateFields<'a> {
    /// The address, which is `Some(None)` for a gate that is off, and `None` after an error.
    listen: Option<Option<SocketAddr>>,
    settings: YamlFields<'a>,
}

impl<'a> GateFields<'a> {
    /// Reads a gate that can have the fields in `names`. A gate that the file does not name is off.
    fn read(
        entry: Option<&'a YamlEntry>,
        usual: SocketAddr,
        names: &[&'static str],
        errors: &mut ErrorCollector,
    ) -> Self {
        let Some(entry) = entry else { return Self { listen: Some(None), settings: YamlFields::default() } };
        let YamlValue::Map(entries) = &entry.value.value else {
            return Self { listen: read_address(entry, usual, errors), settings: YamlFields::default() };
        };
        let settings = YamlFields::read(entries, &entry.key.text, names, errors);
        let listen = settings.get("listen");
        let listen = listen.map_or(Some(Some(usual)), |entry| read_address(entry, usual, errors));
        Self { listen, settings }
    }

    /// Returns a setting: its default if the file does not have it, and `None` after an error.
    fn setting<T: Default>(
        &self,
        name: &'static str,
        read: impl FnOnce(&YamlEntry) -> Option<T>,
    ) -> Option<T> {
        self.settings.get(name).map_or_else(|| Some(T::default()), read)
    }
}

fn read_address(
    entry: &YamlEntry,
    usual: SocketAddr,
    errors: &mut ErrorCollector,
) -> Option<Option<SocketAddr>> {
    let text = scalar_text(&entry.value).filter(|text| !text.is_empty());
    let Some(text) = text else {
        return refuse(entry, &format!("must be an address and a port, such as {usual}, or off"), errors);
    };
    Gates::address(text, usual)
        .map_err(|error| errors.add(entry.value.at, format!("{} {error}", entry.key.quoted())))
        .ok()
}

/// Parses the address and the port at which something listens.
///
/// `:8080` is every interface: `[::]`, which is IPv6 and IPv4, or `0.0.0.0` on a system without IPv6. The host of
/// `localhost:8080` is `127.0.0.1`. Other host names are not looked up.
pub fn listen_address(text: &str) -> Option<SocketAddr> {
    let (host, port) = match text.split_once(':') {
        Some(("", port)) => (every_interface(), port),
        Some(("localhost", port)) => (Ipv4Addr::LOCALHOST.into(), port),
        _ => return text.parse().ok(),
    };
    port.parse().ok().map(|port| SocketAddr::new(host, port))
}

fn every_interface() -> IpAddr {
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Returns the address that was probably meant by a port alone, an address alone, or another word for off.
fn hint(text: &str, usual_port: u16) -> String {
    if let Ok(port) = text.trim_start_matches("*:").parse::<u16>() {
        return format!(" (did you mean \"127.0.0.1:{port}\", or \":{port}\" for every interface?)");
    }
    match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => format!(" (did you mean \"{}\"?)", SocketAddr::new(address, usual_port)),
        Err(_) if matches!(text, "false" | "no" | "none" | "null" | "~") => {
            " (did you mean \"off\"?)".to_owned()
        }
        Err(_) => String::new(),
    }
}
