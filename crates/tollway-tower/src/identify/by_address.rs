//! By the client's address.
//!
//! ```
//! use std::net::SocketAddr;
//! use axum::extract::ConnectInfo;
//! use tollway_tower::ByAddress;
//!
//! let by_address = ByAddress::from_extension(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| *peer)
//!     .trust_proxies(["10.0.0.0/8".parse()?, "2001:db8:1::/48".parse()?]);
//! # Ok::<(), tollway_tower::ParseNetworkError>(())
//! ```
//!
//! Whoever connects may write what it likes into `X-Forwarded-For`. So nothing of it is read unless the peer is a proxy that
//! was declared, and then from the right: each proxy appends who connected to it, and the first address that is no declared
//! proxy's is the client's. What stands to the left of it is the client's own invention.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Extensions, HeaderName};

use super::network::mask;
use super::{ClientId, Identify, Network, RequestHead};

/// The header to which proxies append who connected to them.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What one customer of a provider has at least, and often not more.
const IPV6_PREFIX: u8 = 64;

/// `255.255.255.255`.
const IPV4_TEXT_MAX: usize = 15;

/// The client's address. An IPv6 client is its /64, because all of that is one client's; an IPv4 client that is connected over
/// IPv6 is its IPv4 address.
#[derive(Clone)]
pub struct ByAddress {
    peer: Arc<PeerOf>,
    proxies: Arc<[Network]>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

type PeerOf = dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync;

impl ByAddress {
    /// The peer's address is an extension of the request, a [`SocketAddr`].
    pub fn peer() -> Self {
        Self::from_extension(|peer: &SocketAddr| *peer)
    }

    /// The peer's address is in an extension of another type, which is what servers leave there.
    pub fn from_extension<T: Send + Sync + 'static, P: Into<Option<SocketAddr>>>(
        peer: impl Fn(&T) -> P + Send + Sync + 'static,
    ) -> Self {
        let peer = move |extensions: &Extensions| peer(extensions.get::<T>()?).into();
        Self { peer: Arc::new(peer), proxies: Arc::new([]), ipv4_prefix: 32, ipv6_prefix: IPV6_PREFIX }
    }

    /// What these proxies say in `X-Forwarded-For` is believed.
    pub fn trust_proxies(mut self, proxies: impl IntoIterator<Item = Network>) -> Self {
        self.proxies = proxies.into_iter().collect();
        self
    }

    /// So many bits of an IPv6 address tell clients apart: 64 unless told otherwise.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits;
        self
    }

    /// So many bits of an IPv4 address tell clients apart: all 32 unless told otherwise.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.ipv4_prefix = bits;
        self
    }

    /// The whole address of the client that sent this.
    pub fn client_address(&self, head: RequestHead<'_>) -> Option<IpAddr> {
        let peer = (self.peer)(head.extensions)?.ip().to_canonical();
        if !self.is_proxy(peer) {
            return Some(peer);
        }
        let mut client = peer;
        let lines = head.headers.get_all(FORWARDED_FOR).iter().rev();
        for entry in lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
            // The proxy that wrote this knows no better; then its clients are one, and it is theirs to answer for.
            let Some(address) = read(entry) else { break };
            client = address;
            if !self.is_proxy(address) {
                break;
            }
        }
        Some(client)
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }
}

impl Default for ByAddress {
    fn default() -> Self {
        Self::peer()
    }
}

impl Identify for ByAddress {
    fn identify(&self, head: RequestHead<'_>) -> Option<ClientId> {
        let client = self.client_address(head)?;
        match mask(client, if client.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix }) {
            IpAddr::V4(address) => spell(address),
            IpAddr::V6(address) => ClientId::new(address),
        }
    }
}

/// An IPv4 address as everybody writes it. The machinery of formatting takes longer than the rest of the layer.
fn spell(address: Ipv4Addr) -> Option<ClientId> {
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

/// An address as proxies write it: alone, in brackets, or with a port.
fn read(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    let address = bare.parse().ok().or_else(|| entry.parse().ok().map(|socket: SocketAddr| socket.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_spelled_as_everybody_does() {
        let octets = [0_u8, 1, 9, 10, 11, 99, 100, 101, 199, 200, 255];
        for (a, b) in octets.into_iter().flat_map(|a| octets.map(|b| (a, b))) {
            for address in [[a, b, a, b], [b, b, b, a]].map(Ipv4Addr::from) {
                assert_eq!(spell(address).unwrap().as_ref(), address.to_string().as_bytes());
            }
        }
    }
}
