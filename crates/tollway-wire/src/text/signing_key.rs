//! The keys that sign messages of the text protocol, and the file in which they are kept.
//!
//! ```text
//! # name   secret, in hexadecimal digits
//! frontend 6c1f…
//! billing  09ab…
//! ```

use std::fmt;

use ring::hmac;
use thiserror::Error;

/// The number of keys that a file can have.
pub const KEYS_MAX: usize = 1000;
/// The longest name of a key, in bytes.
const NAME_MAX: usize = 32;
/// The shortest secret, in bytes: nobody can try all secrets of 128 bits.
const SECRET_MIN: usize = 16;
/// The longest secret, in bytes: HMAC-SHA256 would only hash a longer one.
const SECRET_MAX: usize = 64;

/// A key that signs messages and checks their signatures. Its secret is never printed.
#[derive(Clone)]
pub struct SigningKey {
    name: Box<str>,
    pub(super) secret: hmac::Key,
}

/// The reasons why a line is not a key. They do not quote the line, which may have a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SigningKeyError {
    /// The line does not have two words.
    #[error("a key is a name and a secret with a space in between")]
    Words,
    /// The name has other characters, or too many.
    #[error("the name of a key has 1 to {NAME_MAX} letters, digits, dots, hyphens and underscores")]
    Name,
    /// The secret is not hexadecimal, or has the wrong length.
    #[error("a secret has {} to {} hexadecimal digits; make one with: openssl rand -hex 32", 2 * SECRET_MIN, 2 * SECRET_MAX)]
    Secret,
}

/// The keys of a file, found by their names.
#[derive(Clone, Debug)]
pub struct SigningKeys(Box<[SigningKey]>);

/// The reasons why a text is not a file of keys. They do not quote the text, which may have secrets.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SigningKeysError {
    /// A line is not a key.
    #[error("line {line}: {source}")]
    Line {
        /// The number of the line; the first is 1.
        line: usize,
        /// The mistake in it.
        source: SigningKeyError,
    },
    /// Two keys have one name.
    #[error("line {line}: a key with this name is in an earlier line; rename or remove one")]
    Duplicate {
        /// The number of the second line; the first line of a file is 1.
        line: usize,
    },
    /// There is no key.
    #[error("there is no key in the file; add a line with a name and a secret")]
    Empty,
    /// There are too many keys.
    #[error("there are more than {KEYS_MAX} keys in the file")]
    TooMany,
}

impl SigningKey {
    /// Creates a key from its name and the bytes of its secret.
    pub fn new(name: &str, secret: &[u8]) -> Result<Self, SigningKeyError> {
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(in_name) {
            return Err(SigningKeyError::Name);
        }
        if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
            return Err(SigningKeyError::Secret);
        }
        Ok(Self { name: name.into(), secret: hmac::Key::new(hmac::HMAC_SHA256, secret) })
    }

    /// Parses a line of a file: a name and a secret.
    fn parse(line: &str) -> Result<Self, SigningKeyError> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(secret), None) = (words.next(), words.next(), words.next()) else {
            return Err(SigningKeyError::Words);
        };
        let mut bytes = [0; SECRET_MAX];
        let bytes = bytes.get_mut(..secret.len() / 2).ok_or(SigningKeyError::Secret)?;
        from_hex(secret.as_bytes(), bytes).ok_or(SigningKeyError::Secret)?;
        Self::new(name, bytes)
    }

    /// Returns the name of the key.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// The most bytes that a file should have: keys of the greatest length, each below a comment as long as itself.
    pub const FILE_MAX: usize = 2 * KEYS_MAX * (NAME_MAX + 2 * SECRET_MAX + 4);

    /// Parses a file: a key on each line. Empty lines, and lines that begin with `#`, are ignored.
    pub fn parse(text: &str) -> Result<Self, SigningKeysError> {
        let mut keys: Vec<SigningKey> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key =
                SigningKey::parse(line).map_err(|source| SigningKeysError::Line { line: number, source })?;
            if keys.len() == KEYS_MAX {
                return Err(SigningKeysError::TooMany);
            }
            // In the order of the names, which `find` needs.
            match keys.binary_search_by(|known| known.name.cmp(&key.name)) {
                Ok(_) => return Err(SigningKeysError::Duplicate { line: number }),
                Err(place) => keys.insert(place, key),
            }
        }
        if keys.is_empty() { Err(SigningKeysError::Empty) } else { Ok(Self(keys.into())) }
    }

    /// Returns the key of this name.
    pub fn find(&self, name: &[u8]) -> Option<&SigningKey> {
        let place = self.0.binary_search_by(|key| key.name.as_bytes().cmp(name)).ok()?;
        Some(&self.0[place])
    }

    /// Iterates over the keys, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SigningKey> {
        self.0.iter()
    }
}

/// Writes the bytes that hexadecimal digits stand for. Returns `None` if they are not such digits, two for each byte.
pub(super) fn from_hex(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    (pairs.len() == bytes.len()).then_some(())?;
    for ([high, low], byte) in pairs.iter().zip(bytes) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_names() {
        let secret = "0f".repeat(16);
        let text = format!("# keys\n\nweb {secret}\r\n  api-2\t{}  \n", "A0".repeat(64));
        let keys = SigningKeys::parse(&text).unwrap();
        assert_eq!(keys.iter().map(SigningKey::name).collect::<Vec<_>>(), ["api-2", "web"]);
        assert_eq!(keys.find(b"web").unwrap().name(), "web");
        for unknown in [&b""[..], b"we", b"webb", b"\xff"] {
            assert!(keys.find(unknown).is_none());
        }
    }

    #[test]
    fn mistakes_are_named_without_the_secret() {
        let secret = "5ec4e7".repeat(8);
        let line = |line, source| SigningKeysError::Line { line, source };
        for (text, expected) in [
            (String::new(), SigningKeysError::Empty),
            ("# web\n".to_owned(), SigningKeysError::Empty),
            (secret.clone(), line(1, SigningKeyError::Words)),
            (format!("web {secret} x"), line(1, SigningKeyError::Words)),
            (format!("\nw:b {secret}"), line(2, SigningKeyError::Name)),
            (format!("{} {secret}", "n".repeat(33)), line(1, SigningKeyError::Name)),
            (format!("web {secret}g0"), line(1, SigningKeyError::Secret)),
            (format!("web {secret}0"), line(1, SigningKeyError::Secret)),
            (format!("web {}", "0f".repeat(15)), line(1, SigningKeyError::Secret)),
            (format!("web {}", "0f".repeat(65)), line(1, SigningKeyError::Secret)),
            (format!("web {secret}\nweb {secret}"), SigningKeysError::Duplicate { line: 2 }),
        ] {
            let error = SigningKeys::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains("5ec4e7"), "{error}");
        }
        let many: String = (0..=KEYS_MAX).map(|number| format!("k{number} {secret}\n")).collect();
        assert_eq!(SigningKeys::parse(&many).unwrap_err(), SigningKeysError::TooMany);
    }

    #[test]
    fn a_secret_is_not_printed() {
        let keys = SigningKeys::parse(&format!("web {}", "5ec4e7".repeat(8))).unwrap();
        let printed = format!("{keys:?}").to_lowercase();
        assert!(
            printed.contains("web") && !printed.contains("5ec4e7") && !printed.contains("94, 196"),
            "{printed}"
        );
    }
}
