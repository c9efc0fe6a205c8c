//! Identifies clients by their IP address, also behind proxies.
//!
//! ```
//! use tollway_tower::ByAddress;
//!
//! let by_address = ByAddress::peer().trust_proxies(["10.0.0.0/8".parse()?, "2001:db8:1::/48".parse()?]);
//! # Ok::<(), tollway_tower::ParseNetworkError>(())
//! ```
//!
//! The `X-Forwarded-For` header is read only if the peer is a trusted proxy: see [`client_address`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderName, HeaderValue};
use tollway_core::network::{client_address, mask};

use super::{ClientId, Identify, Network, RequestHead, Unidentified};

/// The header to which each proxy appends the address that connected to it.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The default prefix length for IPv6: a provider assigns at least a /64 to each customer.
const IPV6_PREFIX: u8 = 64;

/// The length of `255.255.255.255`.
const IPV4_TEXT_MAX: usize = 15;

/// Identifies a client by its IP address. All addresses of an IPv6 /64 count as one client.
///
/// An IPv4-mapped IPv6 address counts as the IPv4 address.
#[derive(Clone)]
pub struct ByAddress {
    peer: Arc<PeerFn>,
    proxies: Arc<[Network]>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

type PeerFn = dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync;

impl ByAddress {
    /// Reads the peer's address from the extension that the server added to the request.
    ///
    /// | server | extension | added by |
    /// |---|---|---|
    /// | hyper and others | [`SocketAddr`] | you: insert what `accept` returned |
    /// | axum, with feature `axum` | `ConnectInfo<SocketAddr>` | `into_make_service_with_connect_info` |
    /// | tonic, with feature `tonic` | `TcpConnectInfo` | tonic |
    pub fn peer() -> Self {
        Self::from_extensions(known_peer)
    }

    /// Reads the peer's address from an extension of another type, which depends on the server.
    pub fn from_extension<T: Send + Sync + 'static, P: Into<Option<SocketAddr>>>(
        peer: impl Fn(&T) -> P + Send + Sync + 'static,
    ) -> Self {
        Self::from_extensions(move |extensions| peer(extensions.get::<T>()?).into())
    }

    fn from_extensions(peer: impl Fn(&Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Arc::new(peer), proxies: Arc::new([]), ipv4_prefix: 32, ipv6_prefix: IPV6_PREFIX }
    }

    /// Trusts the `X-Forwarded-For` header of requests that come from these networks (default: none).
    pub fn trust_proxies(mut self, proxies: impl IntoIterator<Item = Network>) -> Self {
        self.proxies = proxies.into_iter().collect();
        self
    }

    /// Sets the number of leading bits that identify an IPv6 client (default: 64).
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// Sets the number of leading bits that identify an IPv4 client (default: 32).
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.ipv4_prefix = bits;
        self
    }

    /// Returns the full address of the client that sent the request.
    pub fn client_address(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        let peer = (self.peer)(head.extensions)?.ip();
        let lines = head.headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
        Some(client_address(peer, &self.proxies, lines))
    }

    /// Returns true if the peer that sent the request is a trusted proxy.
    pub fn is_from_proxy(&self, head: RequestHead<'_>) -> bool {
        let peer = (self.peer)(head.extensions);
        peer.is_some_and(|peer| self.proxies.iter().any(|network| network.contains(peer.ip())))
    }
}

impl fmt::Debug for ByAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByAddress")
            .field("proxies", &self.proxies)
            .field("ipv4_prefix", &self.ipv4_prefix)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}

impl Default for ByAddress {
    fn default() -> Self {
        Self::peer()
    }
}

impl Identify for ByAddress {
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified> {
        let client = self.client_address(head).ok_or(Unidentified::NoPeerAddress)?;
        let id = match mask(client, if client.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix }) {
            IpAddr::V4(address) => ipv4_id(address),
            IpAddr::V6(address) => ClientId::from_display(address),
        };
        id.ok_or(Unidentified::Missing)
    }
}

/// Returns the peer's address from the first extension of a known type.
fn known_peer(extensions: &Extensions) -> Option<SocketAddr> {
    if let Some(peer) = extensions.get::<SocketAddr>() {
        return Some(*peer);
    }
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(*peer);
        }
        // The tests of a service in axum have this one instead.
        if let Some(MockConnectInfo(peer)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(*peer);
        }
    }
    #[cfg(feature = "tonic")]
    if let Some(info) = extensions.get::<tonic::transport::server::TcpConnectInfo>() {
        return info.remote_addr();
    }
    None
}

/// Returns the id of an IPv4 address. `Display` would take longer than the rest of the layer.
fn ipv4_id(address: Ipv4Addr) -> Option<ClientId> {
    let (mut text, mut len) = ([b'.'; IPV4_TEXT_MAX], 0);
    for (index, octet) in address.octets().into_iter().enumerate() {
        len += usize::from(index > 0);
        for (least, digit) in [(100, octet / 100), (10, octet / 10 % 10), (0, octet % 10)] {
            if octet >= least {
                text[len] = b'0' + digit;
                len += 1;
            }
        }
    }
    ClientId::new(&text[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_id_equals_the_displayed_address() {
        let octets = [0_u8, 1, 9, 10, 11, 99, 100, 101, 199, 200, 255];
        for (a, b) in octets.into_iter().flat_map(|a| octets.map(|b| (a, b))) {
            for address in [[a, b, a, b], [b, b, b, a]].map(Ipv4Addr::from) {
                assert_eq!(ipv4_id(address).unwrap().as_ref(), address.to_string().as_bytes());
            }
        }
    }
}
