//! Signs requests and replies of the text protocol with HMAC-SHA256, and checks their signatures.
//!
//! ```text
//! -> 7 over_limit ws global            the request, and a second line: the name of the key,
//!    signed web 1784000000123 3f0c…    the Unix time in milliseconds, the MAC
//! <- 7 ok N 2034.3 2500.0 10
//!    signed 91ab…
//! ```
//!
//! The signature is a second line because a server that knows no signatures ignores a request of two lines. On the
//! first line it would be taken for a part of the key. The MAC of a request covers every byte before the space in front
//! of it. The MAC of a reply also covers that of its request, so a reply fits no other request.

use ring::hmac;

use super::DATAGRAM_MAX;
use super::signing_key::{SigningKey, from_hex};
use crate::decimal::put_u64;

/// The number of bytes that a MAC has.
const MAC_LEN: usize = 32;
/// The word that begins a signature.
const SIGNED: &[u8] = b"signed ";
/// The text that the MAC of a reply begins with. No request begins with it, so no MAC is good for both.
const REPLY_LABEL: &[u8] = b"reply ";
/// The number of bytes that a signature adds to a reply.
pub const REPLY_SIGNATURE_LEN: usize = 1 + SIGNED.len() + 2 * MAC_LEN;

/// The MAC of a signed request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac([u8; MAC_LEN]);

/// A request whose signature has been split off and not been checked.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// The request without its signature.
    pub request: &'a [u8],
    /// The name of the key that is said to have signed it.
    pub key_name: &'a [u8],
    /// The time at which it is said to have been signed, in milliseconds since 1970.
    pub signed_at: u64,
    /// The bytes that the MAC covers.
    covered: &'a [u8],
    mac: Mac,
}

impl<'a> SignedRequest<'a> {
    /// Splits a datagram into the request and its signature. Returns `None` if it has no signature, or is too long: the
    /// signature of a datagram that was cut is not there.
    pub fn split(datagram: &'a [u8]) -> Option<Self> {
        let end = datagram.iter().rposition(|byte| *byte == b'\n')?;
        let mut words = datagram[end + 1..].strip_prefix(SIGNED)?.split(|byte| *byte == b' ');
        let (Some(key_name), Some(millis), Some(mac), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return None;
        };
        (datagram.len() <= DATAGRAM_MAX).then_some(Self {
            request: &datagram[..end],
            key_name,
            signed_at: parse_millis(millis)?,
            covered: &datagram[..datagram.len() - mac.len() - 1],
            mac: Mac::parse(mac)?,
        })
    }

    /// Returns the MAC if `key` made it. Comparing takes the same time whatever the MAC is.
    pub fn verify(&self, key: &SigningKey) -> Option<Mac> {
        hmac::verify(&key.secret, self.covered, &self.mac.0).ok()?;
        Some(self.mac)
    }
}

impl SigningKey {
    /// Appends a signature to a request. `millis` is the time, in milliseconds since 1970.
    ///
    /// A server answers a signed request once: give each an id of its own. Together they must have at most
    /// [`DATAGRAM_MAX`] bytes, or a server ignores them.
    pub fn sign_request(&self, millis: u64, datagram: &mut Vec<u8>) -> Mac {
        datagram.push(b'\n');
        datagram.extend_from_slice(SIGNED);
        datagram.extend_from_slice(self.name().as_bytes());
        datagram.push(b' ');
        put_u64(datagram, millis);
        let mac = Mac::of_tag(&hmac::sign(&self.secret, datagram));
        datagram.push(b' ');
        datagram.extend_from_slice(&mac.digits());
        mac
    }

    /// Appends a signature to the reply that begins at `start`, which is cut so that both fit into a datagram.
    pub fn sign_reply(&self, request: &Mac, start: usize, out: &mut Vec<u8>) {
        out.truncate(start + DATAGRAM_MAX - REPLY_SIGNATURE_LEN);
        let mut context = hmac::Context::with_key(&self.secret);
        let parts = [REPLY_LABEL, &request.digits(), b"\n", &out[start..]];
        parts.into_iter().for_each(|part| context.update(part));
        let mac = Mac::of_tag(&context.sign());
        out.push(b'\n');
        out.extend_from_slice(SIGNED);
        out.extend_from_slice(&mac.digits());
    }

    /// Returns a reply without its signature, if this key signed it as the reply to `request`.
    pub fn verify_reply<'a>(&self, request: &Mac, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (reply, signature) =
            datagram.split_at_checked(datagram.len().checked_sub(REPLY_SIGNATURE_LEN)?)?;
        let mac = Mac::parse(signature.strip_prefix(b"\n")?.strip_prefix(SIGNED)?)?;
        // One slice, because `ring` compares in constant time only what it computes in the same call.
        let covered = [REPLY_LABEL, &request.digits(), b"\n", reply].concat();
        hmac::verify(&self.secret, &covered, &mac.0).ok()?;
        Some(reply)
    }
}

impl Mac {
    /// Returns the first half as a number. Two MACs have the same one as seldom as two random numbers of 128 bits.
    pub const fn number(&self) -> u128 {
        let (halves, _) = self.0.as_chunks::<{ MAC_LEN / 2 }>();
        u128::from_be_bytes(halves[0])
    }

    fn of_tag(tag: &hmac::Tag) -> Self {
        Self(tag.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        let mut mac = [0; MAC_LEN];
        from_hex(digits, &mut mac)?;
        Some(Self(mac))
    }

    /// Returns the hexadecimal digits that stand for it.
    fn digits(&self) -> [u8; 2 * MAC_LEN] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 2 * MAC_LEN];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        }
        digits
    }
}

/// Parses a time of digits alone, which is less than `str::parse` accepts.
fn parse_millis(digits: &[u8]) -> Option<u64> {
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SigningKey {
        SigningKey::new(name, &[7; 32]).unwrap()
    }

    fn signed(request: &[u8]) -> (Vec<u8>, Mac) {
        let mut datagram = request.to_vec();
        let mac = key("web").sign_request(1_784_000_000_123, &mut datagram);
        (datagram, mac)
    }

    /// Computed by Python: `hmac.new(bytes([7] * 32), text, "sha256").hexdigest()`.
    #[test]
    fn signatures_are_those_of_other_programs() {
        let (request, mac) = signed(b"7 over_limit ws global");
        let expected = "7 over_limit ws global\nsigned web 1784000000123 fa5654c379e939e7590306c058a47a956435a63cee1c7e614c1751545db0f362";
        assert_eq!(String::from_utf8_lossy(&request), expected);
        let mut reply = b"before it7 ok N 2034.3 2500.0 10".to_vec();
        key("web").sign_reply(&mac, 9, &mut reply);
        let expected = "before it7 ok N 2034.3 2500.0 10\nsigned 395d769d1fa2bb5c9f66afedd65b29b5d1acbc754d1973c29576fb61ac98b6a0";
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }

    #[test]
    fn a_server_without_signatures_ignores_signed_requests() {
        for request in
            [&b"7 over_limit ws global"[..], b"over_limit k\n", b"ping", b"7 get_size", b"get_stats k"]
        {
            let (datagram, _) = signed(request);
            assert_eq!(crate::text::decode(&datagram), None, "{}", datagram.escape_ascii());
            let split = SignedRequest::split(&datagram).unwrap();
            assert_eq!(
                (split.request, split.key_name, split.signed_at),
                (request, &b"web"[..], 1_784_000_000_123)
            );
            assert!(split.verify(&key("web")).is_some());
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (datagram, mac) = signed(b"7 over_limit ws global");
        for index in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[index] ^= 1;
            let verified = SignedRequest::split(&changed).and_then(|split| split.verify(&key("web")));
            assert_eq!(verified, None, "{}", changed.escape_ascii());
        }
        assert!(
            SignedRequest::split(&datagram)
                .unwrap()
                .verify(&SigningKey::new("web", &[8; 32]).unwrap())
                .is_none()
        );
        let mut reply = b"7 ok N 1.0 2.0 3".to_vec();
        key("web").sign_reply(&mac, 0, &mut reply);
        assert_eq!(key("web").verify_reply(&mac, &reply), Some(&b"7 ok N 1.0 2.0 3"[..]));
        for index in 0..reply.len() {
            let mut changed = reply.clone();
            changed[index] ^= 1;
            assert_eq!(key("web").verify_reply(&mac, &changed), None, "{}", changed.escape_ascii());
        }
        let (_, other) = signed(b"8 over_limit ws global");
        assert_eq!(key("web").verify_reply(&other, &reply), None, "a reply fits one request only");
        // The MAC of a request is not one of a reply, and the other way round.
        assert_eq!(key("web").verify_reply(&mac, &datagram), None);
        assert!(SignedRequest::split(&reply).is_none());
    }

    #[test]
    fn what_has_no_signature_is_not_split() {
        let mac = "0f".repeat(32);
        for (datagram, is_signed) in [
            (format!("ping\nsigned web 1 {mac}"), true),
            (format!("\nsigned  1 {mac}"), true),
            ("ping".to_owned(), false),
            ("ping\n".to_owned(), false),
            (format!("ping signed web 1 {mac}"), false),
            (format!("ping\nSigned web 1 {mac}"), false),
            (format!("ping\nsigned web 1 {mac} "), false),
            (format!("ping\nsigned web 1 {mac}\n"), false),
            (format!("ping\nsigned web 1 {mac}0f"), false),
            (format!("ping\nsigned web 1 {}", &mac[1..]), false),
            (format!("ping\nsigned web 1 x{}", &mac[1..]), false),
            (format!("ping\nsigned web  {mac}"), false),
            (format!("ping\nsigned web -1 {mac}"), false),
            (format!("ping\nsigned web +1 {mac}"), false),
            (format!("ping\nsigned web 18446744073709551616 {mac}"), false),
            (format!("ping\nsigned web {mac}"), false),
        ] {
            assert_eq!(SignedRequest::split(datagram.as_bytes()).is_some(), is_signed, "{datagram}");
        }
    }

    #[test]
    fn both_fit_into_a_datagram() {
        let overhead = signed(b"").0.len();
        for (size, fits) in [(DATAGRAM_MAX - overhead, true), (DATAGRAM_MAX - overhead + 1, false)] {
            let (datagram, _) = signed(&vec![b'k'; size]);
            assert_eq!(SignedRequest::split(&datagram).is_some(), fits, "{size}");
        }
        let (_, mac) = signed(b"ping");
        let mut reply = vec![b'r'; DATAGRAM_MAX + 5];
        key("web").sign_reply(&mac, 5, &mut reply);
        assert_eq!(reply.len(), DATAGRAM_MAX + 5);
        let cut = key("web").verify_reply(&mac, &reply[5..]).unwrap();
        assert_eq!(cut.len(), DATAGRAM_MAX - REPLY_SIGNATURE_LEN);
    }
}
