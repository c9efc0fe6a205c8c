//! The keys of buckets in Redis: the namespace of the store, and the [name](crate::store::bucket_name) of the bucket.
//!
//! ```text
//! tollway:NewOrdersPerAccount:12345678
//! ```

use std::fmt::Write;

use tollway_core::{Domain, Limit};

use crate::store::bucket_name::{
    DIGEST, DOMAIN, ID_MAX, PAIR, RULE, TEXT, escape, push_hex, unescape, unescaped,
};

/// The number of slots of a Cluster.
const SLOTS: u16 = 16_384;

/// Makes the names of one store's buckets.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    prefix: Vec<u8>,
}

impl Namespace {
    pub(super) fn new(name: &str) -> Self {
        Self { prefix: format!("{name}:").into_bytes() }
    }

    /// Returns the key of an id, in its canonical spelling, under a limit.
    pub(super) fn of_id(&self, limit: &Limit, id: &[u8]) -> Vec<u8> {
        let mut key = self.of_limit(limit);
        push_id(id, &mut key);
        key
    }

    /// Returns the key of a key of the text protocol.
    pub(super) fn of_text(&self, text: &[u8]) -> Vec<u8> {
        let mut key = [&*self.prefix, TEXT].concat();
        push_id(text, &mut key);
        key
    }

    /// Returns the key of Throttr's pair: two lengths, and then as many bytes of consumer and of resource.
    pub(super) fn of_pair(&self, pair: &[u8]) -> Vec<u8> {
        let mut key = [&*self.prefix, PAIR].concat();
        let (consumer, resource) = match pair {
            [consumer, _, both @ ..] if usize::from(*consumer) <= both.len() => {
                both.split_at(usize::from(*consumer))
            }
            _ => (pair, &b""[..]),
        };
        escape(consumer, b"/", &mut key);
        key.push(b'/');
        escape(resource, b"/", &mut key);
        key
    }

    /// Returns the key of a rule's log. Its name can be printed and has no brace, so that it is not escaped again.
    pub(super) fn of_rule(&self, name: &str) -> Vec<u8> {
        let mut key = [&*self.prefix, RULE].concat();
        if name.len() <= ID_MAX {
            key.extend(name.bytes())
        } else {
            push_digest(name.as_bytes(), &mut key)
        }
        key
    }

    /// Returns the key of an identifier of a domain.
    pub(super) fn of_identifier(&self, domain: &Domain, identifier: &[u8]) -> Vec<u8> {
        let mut key = self.of_domain(domain);
        push_id(identifier, &mut key);
        key
    }

    /// Returns the identifier that a key of the domain was made from; `None` if the key has only its digest.
    pub(super) fn identifier(&self, domain: &Domain, key: &[u8]) -> Option<Vec<u8>> {
        let rest = key.strip_prefix(&*self.of_domain(domain))?;
        (!rest.starts_with(DIGEST)).then(|| unescape(rest))
    }

    /// Returns a pattern for `SCAN` that only the buckets of this domain match.
    pub(super) fn identifier_pattern(&self, domain: &Domain) -> Vec<u8> {
        pattern_of(self.of_domain(domain))
    }

    fn of_domain(&self, domain: &Domain) -> Vec<u8> {
        let mut key = [&*self.prefix, DOMAIN].concat();
        escape(domain.name().as_bytes(), b"/", &mut key);
        key.push(b'/');
        key
    }

    /// Returns a pattern for `SCAN` that only the buckets of this limit match, or all buckets.
    pub(super) fn pattern(&self, limit: Option<&Limit>) -> Vec<u8> {
        pattern_of(limit.map_or_else(|| self.prefix.clone(), |limit| self.of_limit(limit)))
    }
}

/// Returns a pattern that the keys with this prefix match.
fn pattern_of(prefix: Vec<u8>) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if b"*?[]\\^".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

impl Namespace {
    /// Returns the key of the bucket that has this name.
    #[cfg(feature = "journal")]
    pub(super) fn of_name(&self, name: &[u8]) -> Vec<u8> {
        [&*self.prefix, name].concat()
    }

    /// Returns the name of the bucket that has this key.
    #[cfg(feature = "journal")]
    pub(super) fn name<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.strip_prefix(&*self.prefix)
    }

    /// Returns a key as people read it: without the namespace, and unescaped where that can be printed.
    pub(super) fn readable(&self, key: &[u8]) -> String {
        let mut rest = key.strip_prefix(&*self.prefix).unwrap_or(key);
        let mut readable = String::with_capacity(rest.len());
        while let Some((byte, after)) = unescaped(rest) {
            if byte == b' ' || byte.is_ascii_graphic() {
                readable.push(char::from(byte));
            } else {
                // A `String` takes whatever is written to it.
                let _ = write!(readable, "%{byte:02X}");
            }
            rest = after;
        }
        readable
    }

    fn of_limit(&self, limit: &Limit) -> Vec<u8> {
        let mut key = self.prefix.clone();
        match limit.number() {
            Some(number) => key.extend(number.to_string().bytes()),
            None => key.extend(limit.name().bytes()),
        }
        key.push(b':');
        key
    }
}

/// Returns the slot of a key, as a Cluster computes it: from the text in the first braces, if there is any.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let len = key[open..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[open..open + len])
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// Appends an id to a key, or its digest if it is long.
fn push_id(id: &[u8], key: &mut Vec<u8>) {
    if id.len() <= ID_MAX { escape(id, b"", key) } else { push_digest(id, key) }
}

fn push_digest(bytes: &[u8], key: &mut Vec<u8>) {
    key.extend(DIGEST);
    for byte in ring::digest::digest(&ring::digest::SHA256, bytes).as_ref() {
        push_hex(*byte, key);
    }
}

/// Returns the CRC that Redis computes slots from: polynomial 0x1021, initial value 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let (mut crc, mut bit) = (index << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_core::{KeyedRule, RuleLimit};

    use super::*;

    fn namespace() -> Namespace {
        Namespace::new("tollway")
    }

    /// The parts that a bucket is named after.
    #[derive(Clone, Debug, PartialEq)]
    enum Name {
        Id(String, Option<u64>, Vec<u8>),
        Text(Vec<u8>),
        Pair(Vec<u8>, Vec<u8>),
        /// A namespace, a key and perhaps the value of a selector.
        Rule([String; 2], Option<Vec<u8>>),
    }

    impl Name {
        fn key(&self) -> Vec<u8> {
            match self {
                Self::Id(limit, number, id) => {
                    let limit = Limit::new(limit).unwrap();
                    let limit = number.iter().fold(limit, |limit: Limit, number| limit.with_number(*number));
                    namespace().of_id(&limit, id)
                }
                Self::Text(text) => namespace().of_text(text),
                Self::Pair(consumer, resource) => namespace().of_pair(&pair(consumer, resource)),
                Self::Rule([own, key], value) => {
                    let rule = if value.is_some() { "user:1/s" } else { "1/s" };
                    let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), own, key);
                    let bill = rule.bill(|_| Ok::<_, ()>(value.as_ref())).unwrap();
                    namespace().of_rule(bill.identifiers()[0].as_ref().unwrap())
                }
            }
        }

        /// A number stands for the name, whatever the name is.
        fn same_bucket(&self, other: &Self) -> bool {
            match (self, other) {
                (Self::Id(_, Some(number), id), Self::Id(_, Some(other), other_id)) => {
                    (number, id) == (other, other_id)
                }
                _ => self == other,
            }
        }
    }

    fn pair(consumer: &[u8], resource: &[u8]) -> Vec<u8> {
        let len = |part: &[u8]| u8::try_from(part.len()).unwrap();
        [&[len(consumer), len(resource)], consumer, resource].concat()
    }

    /// Few different bytes, so that names nearly meet.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![proptest::sample::select(&b":/%{}27ABa \\*\n\xff"[..]), any::<u8>()];
        proptest::collection::vec(byte, 0..6)
    }

    fn name() -> impl Strategy<Value = Name> {
        let limit = prop_oneof![Just("text"), Just("throttr"), Just("rule"), Just("A")];
        let text = || bytes().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let value = bytes().prop_filter("an empty value is none", |value| !value.is_empty());
        prop_oneof![
            (limit, proptest::option::of(0..3_u64), bytes()).prop_map(|(limit, number, id)| Name::Id(
                limit.to_owned(),
                number,
                id
            )),
            bytes().prop_map(Name::Text),
            (bytes(), bytes()).prop_map(|(consumer, resource)| Name::Pair(consumer, resource)),
            ([text(), text()], proptest::option::of(value))
                .prop_map(|(names, value)| Name::Rule(names, value)),
        ]
    }

    proptest! {
        #[test]
        fn no_two_buckets_share_a_key(one in name(), other in name()) {
            prop_assert_eq!(one.key() == other.key(), one.same_bucket(&other));
        }

        #[test]
        fn a_key_can_be_printed_and_has_no_brace(name in name()) {
            let key = name.key();
            let plain = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'{' && *byte != b'}';
            prop_assert!(key.iter().all(plain));
            prop_assert_eq!(slot(&key), crc16(&key) % SLOTS);
        }

        #[test]
        fn what_can_be_printed_reads_as_itself(id in "[ -~]{1,9}") {
            let limit = Limit::new("Login").unwrap();
            let key = namespace().of_id(&limit, id.as_bytes());
            prop_assert_eq!(namespace().readable(&key), format!("Login:{id}"));
        }
    }

    #[test]
    fn keys_are_what_the_page_says() {
        let limit = Limit::new("NewOrdersPerAccount").unwrap();
        let of_id = |id: &[u8]| String::from_utf8(namespace().of_id(&limit, id)).unwrap();
        assert_eq!(of_id(b"12345678"), "tollway:NewOrdersPerAccount:12345678");
        assert_eq!(of_id(b"2001:db8::1"), "tollway:NewOrdersPerAccount:2001:db8::1");
        assert_eq!(of_id(b"{a}100%\n\xff"), "tollway:NewOrdersPerAccount:%7Ba%7D100%25%0A%FF");
        assert_eq!(namespace().of_id(&limit.with_number(3), b"1"), b"tollway:3:1");
        assert_eq!(namespace().of_text(b"ws ip=10.0.0.1"), b"tollway:text/ws ip=10.0.0.1");
        assert_eq!(namespace().of_pair(&pair(b"al/ice", b"up")), b"tollway:throttr/al%2Fice/up");
        let log = Name::Rule(["shop".to_owned(), "upload".to_owned()], Some(b"vova".to_vec())).key();
        assert_eq!(log, b"tollway:rule/shop:upload:user:vova");
        assert_eq!(namespace().readable(&log), "rule/shop:upload:user:vova");
    }

    #[test]
    fn a_long_id_is_its_digest() {
        let limit = Limit::new("Login").unwrap();
        let key = |length| namespace().of_id(&limit, &vec![b'a'; length]);
        assert_eq!(key(ID_MAX).len(), "tollway:Login:".len() + ID_MAX);
        let long = namespace().of_id(&limit, &vec![b'a'; 60_000]);
        let expected = format!("tollway:Login:%sha256:{}", hex_of(&vec![b'a'; 60_000]));
        assert_eq!(String::from_utf8(long.clone()).unwrap(), expected);
        assert_ne!(key(ID_MAX + 1), key(ID_MAX + 2));
        assert_eq!(key(ID_MAX + 1).len(), "tollway:Login:%sha256:".len() + 64);
        assert!(namespace().readable(&long).starts_with("Login:%sha256:"));
        // Nobody shares the bucket of a long id by sending its digest.
        let forged = format!("%sha256:{}", hex_of(&vec![b'a'; 60_000]));
        assert_ne!(namespace().of_id(&limit, forged.as_bytes()), long);
        let log = namespace().of_rule(&"v".repeat(ID_MAX + 1));
        assert!(log.starts_with(b"tollway:rule/%sha256:"));
    }

    fn hex_of(bytes: &[u8]) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        for (key, expected) in [
            ("", 0),
            ("123456789", 0x31c3),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("user1000", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("{bar", 4_015),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_pattern_matches_its_namespace_only() {
        let limit = Limit::new("A").unwrap();
        assert_eq!(Namespace::new("a*b").pattern(Some(&limit)), b"a\\*b:A:*");
        assert_eq!(namespace().pattern(None), b"tollway:*");
    }
}
