//! The name of a bucket, as keys of Redis and exports have it: a person can read it, and no two buckets share one.
//!
//! ```text
//! NewOrdersPerAccount:12345678     an id under a limit, or under the number that stands for its name
//! text/ws ip=10.0.0.1              a key of the text protocol, as rewritten
//! throttr/alice/uploads            a consumer and a resource
//! smockron/web/10.0.0.1            an identifier of a domain
//! rule/shop:upload:user:vova       the log of a rule, in a namespace, under a key, of a selector's value
//! Login:%sha256:9F86D081…          an id of more than 512 bytes: its digest
//! ```
//!
//! A limit's name has neither `:` nor `/` in it, so the first of them tells the kind; only the limits of Envoy's
//! descriptors and inline limits begin with `envoy/` and `inline/`. Bytes that a terminal would not show, `%` itself
//! and braces are written `%7B`: a brace would let the sender of an id choose the slot of a Cluster, and so aim at one
//! node. No escaped byte begins with `%s`, so an id cannot have the name of a digest.

/// The text before the digest of a long id.
pub(crate) const DIGEST: &[u8] = b"%sha256:";

/// The longest id that is in a name as it is. Redis keeps every key in memory, and a client chooses the id.
pub(crate) const ID_MAX: usize = 512;

pub(crate) const TEXT: &[u8] = b"text/";
pub(crate) const PAIR: &[u8] = b"throttr/";
pub(crate) const DOMAIN: &[u8] = b"smockron/";
pub(crate) const RULE: &[u8] = b"rule/";

/// The parts that a name is made of.
#[cfg(feature = "journal")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BucketName<'a> {
    /// An id under a limit, which is named by its name or by its number.
    Id { limit: &'a str, id: Vec<u8> },
    /// A key of the text protocol.
    Text(Vec<u8>),
    /// Throttr's pair: two lengths, and then the bytes of the consumer and of the resource.
    Pair(Vec<u8>),
    /// An identifier of a domain.
    Identifier { domain: Vec<u8>, identifier: Vec<u8> },
    /// The log of a rule.
    Rule(&'a str),
    /// A bucket whose id is known by its digest alone.
    Digest,
}

#[cfg(feature = "journal")]
impl<'a> BucketName<'a> {
    /// Parses a name, or returns `None` if no bucket has it.
    pub(crate) fn parse(name: &'a [u8]) -> Option<Self> {
        let is_digest = |id: &[u8]| id.starts_with(DIGEST);
        if let Some(key) = name.strip_prefix(TEXT) {
            return Some(if is_digest(key) { Self::Digest } else { Self::Text(unescape(key)) });
        }
        if let Some(pair) = name.strip_prefix(PAIR) {
            let slash = pair.iter().position(|byte| *byte == b'/')?;
            let (consumer, resource) = (unescape(&pair[..slash]), unescape(&pair[slash + 1..]));
            let lengths = [u8::try_from(consumer.len()).ok()?, u8::try_from(resource.len()).ok()?];
            return Some(Self::Pair([&lengths[..], &consumer, &resource].concat()));
        }
        if let Some(rest) = name.strip_prefix(DOMAIN) {
            let slash = rest.iter().position(|byte| *byte == b'/')?;
            let (domain, identifier) = (unescape(&rest[..slash]), &rest[slash + 1..]);
            let known = || Self::Identifier { domain, identifier: unescape(identifier) };
            return Some(if is_digest(identifier) { Self::Digest } else { known() });
        }
        if let Some(log) = name.strip_prefix(RULE) {
            let log = str::from_utf8(log).ok()?;
            return Some(if is_digest(log.as_bytes()) { Self::Digest } else { Self::Rule(log) });
        }
        let colon = name.iter().position(|byte| *byte == b':')?;
        let (limit, id) = (str::from_utf8(&name[..colon]).ok()?, &name[colon + 1..]);
        Some(if is_digest(id) { Self::Digest } else { Self::Id { limit, id: unescape(id) } })
    }

    /// Returns the name as a store writes it, or `None` if only a digest is written.
    pub(crate) fn canonical(&self) -> Option<Vec<u8>> {
        let (mut name, id, separators): (_, &[u8], &[u8]) = match self {
            Self::Id { limit, id } => ([limit.as_bytes(), b":"].concat(), id, b""),
            Self::Text(key) => (TEXT.to_vec(), key, b""),
            Self::Identifier { domain, identifier } => {
                let mut name = DOMAIN.to_vec();
                escape(domain, b"/", &mut name);
                name.push(b'/');
                (name, identifier, b"")
            }
            Self::Pair(pair) => {
                let (consumer, resource) = pair.get(2..)?.split_at_checked(usize::from(*pair.first()?))?;
                let mut name = PAIR.to_vec();
                escape(consumer, b"/", &mut name);
                name.push(b'/');
                (name, resource, b"/")
            }
            Self::Rule(log) => return (log.len() <= ID_MAX).then(|| [RULE, log.as_bytes()].concat()),
            Self::Digest => return None,
        };
        if id.len() > ID_MAX {
            return None;
        }
        escape(id, separators, &mut name);
        Some(name)
    }
}

/// Appends bytes, and escapes those that cannot be printed, and `separators`.
pub(crate) fn escape(bytes: &[u8], separators: &[u8], name: &mut Vec<u8>) {
    for byte in bytes {
        let plain = *byte == b' ' || byte.is_ascii_graphic();
        if plain && !b"%{}".contains(byte) && !separators.contains(byte) {
            name.push(*byte);
        } else {
            name.push(b'%');
            push_hex(*byte, name);
        }
    }
}

/// Returns the bytes that [`escape`] has written.
pub(crate) fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((byte, after)) = unescaped(text) {
        bytes.push(byte);
        text = after;
    }
    bytes
}

/// Returns the byte that [`escape`] has written first, and the rest.
pub(crate) fn unescaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = text.split_first()?;
    Some(match (first, after) {
        (b'%', [high, low, rest @ ..]) => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => (high << 4 | low, rest),
            _ => (*first, after),
        },
        _ => (*first, after),
    })
}

/// Appends the two digits of a byte.
pub(crate) fn push_hex(byte: u8, name: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    name.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn digit(hexadecimal: u8) -> Option<u8> {
    match hexadecimal {
        b'0'..=b'9' => Some(hexadecimal - b'0'),
        b'A'..=b'F' => Some(hexadecimal - b'A' + 10),
        _ => None,
    }
}

#[cfg(all(test, feature = "journal"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_to_what_it_was_made_of() {
        for name in [
            "NewOrders:2001:db8::1",
            "3:alice",
            "Login:%7Ba%7D100%25%0A%FF",
            "text/ws ip=10.0.0.1",
            "throttr/al%2Fice/up",
            "smockron/web/10.0.0.1",
            "rule/shop:upload:user:vova",
            "inline/throttle:k",
            "envoy/shop/route=login:a",
        ] {
            let parsed = BucketName::parse(name.as_bytes()).unwrap();
            assert_eq!(parsed.canonical().as_deref(), Some(name.as_bytes()), "{parsed:?}");
        }
        let spelled = BucketName::parse("Login:caf\u{e9}".as_bytes()).unwrap();
        assert_eq!(spelled.canonical().as_deref(), Some(&b"Login:caf%C3%A9"[..]));
        for (name, expected) in [
            (&b"Login:%sha256:9F86"[..], Some(BucketName::Digest)),
            (b"rule/%sha256:9F86", Some(BucketName::Digest)),
            (b"Login", None),
            (b"throttr/alone", None),
            (b"", None),
        ] {
            assert_eq!(BucketName::parse(name), expected);
        }
        assert_eq!(BucketName::Text(vec![b'a'; ID_MAX + 1]).canonical(), None);
    }
}
