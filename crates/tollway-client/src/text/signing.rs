//! Signs requests and checks replies, for clients that have a key.

#[cfg(feature = "hmac")]
use std::sync::Arc;
#[cfg(feature = "hmac")]
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(feature = "hmac")]
use tollway_wire::text::{DATAGRAM_MAX, Mac, SigningKey};

use crate::InvalidRequest;

/// Signs the requests of a client that has a key, and leaves those of others as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestSigner {
    #[cfg(feature = "hmac")]
    key: Option<Arc<SigningKey>>,
}

/// Checks the signature of the reply to one request, if the request was signed.
#[derive(Debug)]
pub(super) struct ReplyCheck {
    #[cfg(feature = "hmac")]
    request: Option<(Arc<SigningKey>, Mac)>,
}

#[cfg(feature = "hmac")]
impl RequestSigner {
    pub(super) fn new(key: SigningKey) -> Self {
        Self { key: Some(Arc::new(key)) }
    }

    /// Signs a datagram, and returns it with the check for its reply.
    pub(super) fn sign(&self, mut datagram: Vec<u8>) -> Result<(Vec<u8>, ReplyCheck), InvalidRequest> {
        let Some(key) = &self.key else { return Ok((datagram, ReplyCheck { request: None })) };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let mac = key.sign_request(millis, &mut datagram);
        if datagram.len() > DATAGRAM_MAX {
            return Err(InvalidRequest::Text);
        }
        Ok((datagram, ReplyCheck { request: Some((Arc::clone(key), mac)) }))
    }
}

#[cfg(not(feature = "hmac"))]
impl RequestSigner {
    pub(super) fn sign(&self, datagram: Vec<u8>) -> Result<(Vec<u8>, ReplyCheck), InvalidRequest> {
        Ok((datagram, ReplyCheck {}))
    }
}

impl ReplyCheck {
    /// Returns the reply in a datagram, or `None` if its signature is missing or wrong.
    #[cfg(feature = "hmac")]
    pub(super) fn reply<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        self.request.as_ref().map_or(Some(datagram), |(key, request)| key.verify_reply(request, datagram))
    }

    /// Returns the reply in a datagram.
    #[cfg(not(feature = "hmac"))]
    pub(super) fn reply<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        Some(datagram)
    }
}
