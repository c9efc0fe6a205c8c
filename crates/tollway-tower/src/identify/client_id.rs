//! The id of a client, as bytes that are stored without an allocation if they are few.

use std::fmt::{self, Write};

/// The number of bytes that are stored without an allocation: the length of the longest IPv6 address as text.
const INLINE_MAX: usize = 46;

/// Identifies the client that a request is charged to. Up to 46 bytes are stored without an allocation.
#[derive(Clone)]
pub struct ClientId(Content);

#[derive(Clone)]
enum Content {
    Inline { bytes: [u8; INLINE_MAX], len: usize },
    Heap(Vec<u8>),
}

impl ClientId {
    const EMPTY: Self = Self(Content::Inline { bytes: [0; INLINE_MAX], len: 0 });

    /// Makes an id of text or bytes. Returns `None` if they are empty.
    pub fn new(bytes: impl AsRef<[u8]>) -> Option<Self> {
        let mut id = Self::EMPTY;
        id.append(bytes.as_ref());
        id.non_empty()
    }

    /// Makes an id of the text that `value` displays, such as a number or an address. Returns `None` if it is empty.
    pub fn from_display(value: impl fmt::Display) -> Option<Self> {
        let mut id = Self::EMPTY;
        write!(id, "{value}").ok()?;
        id.non_empty()
    }

    /// Makes an id of two parts, of which the first is not empty.
    pub(super) fn prefixed(prefix: &str, rest: &[u8]) -> Self {
        let mut id = Self::EMPTY;
        id.append(prefix.as_bytes());
        id.append(rest);
        id
    }

    fn non_empty(self) -> Option<Self> {
        (!self.as_ref().is_empty()).then_some(self)
    }

    fn append(&mut self, more: &[u8]) {
        match &mut self.0 {
            Content::Heap(bytes) => bytes.extend_from_slice(more),
            Content::Inline { bytes, len } if *len + more.len() <= INLINE_MAX => {
                bytes[*len..*len + more.len()].copy_from_slice(more);
                *len += more.len();
            }
            Content::Inline { bytes, len } => self.0 = Content::Heap([&bytes[..*len], more].concat()),
        }
    }
}

impl AsRef<[u8]> for ClientId {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Content::Inline { bytes, len } => &bytes[..*len],
            Content::Heap(bytes) => bytes,
        }
    }
}

impl Write for ClientId {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId(\"{}\")", self.as_ref().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_every_byte_whatever_its_length() {
        for len in [1, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1, 1_000] {
            let text = "x".repeat(len);
            let displayed = ClientId::from_display(format_args!("{text}{}", "y"));
            assert_eq!(ClientId::new(&text).unwrap().as_ref(), text.as_bytes());
            assert_eq!(displayed.unwrap().as_ref(), format!("{text}y").as_bytes());
        }
    }

    #[test]
    fn an_empty_id_is_none() {
        assert!(ClientId::new("").is_none() && ClientId::from_display("").is_none());
    }

    #[test]
    fn debug_shows_the_text() {
        assert_eq!(format!("{:?}", ClientId::new("al\"ice").unwrap()), r#"ClientId("al\"ice")"#);
    }
}
