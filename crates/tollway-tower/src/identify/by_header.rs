//! Identifies clients by a header.

use http::HeaderName;

use super::{ByAddress, ClientId, Identify, RequestHead, Unidentified};

/// The longest value that identifies a client, in bytes. A longer one is no key, and would be stored for each client.
const VALUE_MAX: usize = 1_024;

/// Identifies a client by the value of a header, such as an API key.
///
/// Check the header before this layer: a client can send any value. A request that has the header twice is rejected,
/// because the service may take the other one.
#[derive(Clone, Debug)]
pub struct ByHeader(HeaderName);

/// Identifies a client by the value of a header, and a client that does not send it by its address.
///
/// The id is `header:NAME=VALUE`, or the address alone. So no value of the header is the id of an address.
#[derive(Clone, Debug)]
pub struct ByHeaderOrAddress {
    header: ByHeader,
    prefix: Box<str>,
    address: ByAddress,
}

impl ByHeader {
    /// Reads the header of this name.
    pub const fn new(name: HeaderName) -> Self {
        Self(name)
    }

    /// Identifies clients that do not send the header by their address.
    pub fn or_address(self, address: ByAddress) -> ByHeaderOrAddress {
        let prefix = format!("header:{}=", self.0).into();
        ByHeaderOrAddress { header: self, prefix, address }
    }

    fn value<'a>(&self, head: RequestHead<'a>) -> Result<&'a [u8], Unidentified> {
        let mut values = head.headers.get_all(&self.0).iter();
        let value = values.next().ok_or(Unidentified::Missing)?.as_bytes();
        match value.len() {
            _ if values.next().is_some() => Err(Unidentified::Ambiguous),
            0 => Err(Unidentified::Missing),
            1..=VALUE_MAX => Ok(value),
            _ => Err(Unidentified::Invalid),
        }
    }
}

impl Identify for ByHeader {
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified> {
        ClientId::new(self.value(head)?).ok_or(Unidentified::Missing)
    }
}

impl Identify for ByHeaderOrAddress {
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified> {
        match self.header.value(head) {
            Ok(value) => Ok(ClientId::prefixed(&self.prefix, value)),
            Err(Unidentified::Missing) => self.address.identify(head),
            Err(reason) => Err(reason),
        }
    }
}
