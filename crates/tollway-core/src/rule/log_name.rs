//! The name of a log, made for one request: most are short, and need no memory.

use std::fmt;
use std::ops::Deref;

/// Printable ASCII, whatever was put into it.
#[derive(Clone)]
pub struct LogName<'a>(Text<'a>);

#[derive(Clone)]
enum Text<'a> {
    Whole(&'a str),
    Short { bytes: [u8; SHORT_MAX], len: u8 },
    Long(Vec<u8>),
}

/// A namespace, a key, a selector and an address. With what else a name is made of it takes a cache line and a bit.
const SHORT_MAX: usize = 78;

impl<'a> LogName<'a> {
    /// Makes a name from text that is used as it is.
    pub(super) const fn whole(name: &'a str) -> Self {
        Self(Text::Whole(name))
    }

    /// Makes a name that starts with this.
    pub(super) fn starting(stem: &str) -> Self {
        let mut name = Self(Text::Short { bytes: [0; SHORT_MAX], len: 0 });
        name.push(stem.as_bytes());
        name
    }

    /// Appends a part. Escapes what separates parts, and what Redis Cluster would read as a hash tag.
    pub(super) fn escape(&mut self, part: &[u8]) {
        for run in part.chunk_by(|one, other| is_plain(*one) == is_plain(*other)) {
            match is_plain(run[0]) {
                true => self.push(run),
                false => run.iter().for_each(|byte| self.push(&escaped(*byte))),
            }
        }
    }

    /// Appends text that separates parts, or that is escaped already.
    pub(super) fn push(&mut self, text: &[u8]) {
        match &mut self.0 {
            Text::Long(bytes) => bytes.extend_from_slice(text),
            Text::Short { bytes, len } if usize::from(*len) + text.len() <= SHORT_MAX => {
                let end = usize::from(*len) + text.len();
                bytes[usize::from(*len)..end].copy_from_slice(text);
                *len = u8::try_from(end).expect("SHORT_MAX fits in one");
            }
            _ => self.0 = Text::Long([self.as_bytes(), text].concat()),
        }
    }

    /// Returns the name as bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Whole(name) => name.as_bytes(),
            Text::Short { bytes, len } => &bytes[..usize::from(*len)],
            Text::Long(bytes) => bytes,
        }
    }
}

impl Deref for LogName<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self.0 {
            Text::Whole(name) => name,
            _ => str::from_utf8(self.as_bytes()).expect("what is put into a name is ASCII"),
        }
    }
}

impl PartialEq<str> for LogName<'_> {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl fmt::Debug for LogName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

const fn is_plain(byte: u8) -> bool {
    (byte == b' ' || byte.is_ascii_graphic()) && !matches!(byte, b':' | b'%' | b'{' | b'}')
}

fn escaped(byte: u8) -> [u8; 3] {
    let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
    [b'%', digit(byte >> 4), digit(byte & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_whole_however_long_it_gets() {
        // Two of them are four characters, after the two that it starts with: 38 are as many as fit.
        for len in [0, 1, 20, 37, 38, 39, 40, 1_000] {
            let (mut name, mut expected) = (LogName::starting("a:"), "a:".to_owned());
            for byte in "x%".bytes().cycle().take(len) {
                name.escape(&[byte]);
                expected += if byte == b'x' { "x" } else { "%25" };
            }
            assert_eq!(*name, *expected);
            assert_eq!(name.as_bytes(), expected.as_bytes());
            let needs_memory = matches!(name.0, Text::Long(_));
            assert_eq!(needs_memory, expected.len() > SHORT_MAX, "{len}");
        }
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_escaped() {
        let mut name = LogName::starting("");
        name.escape("a b:c%{d}\n\0ü".as_bytes());
        assert_eq!(*name, *"a b%3Ac%25%7Bd%7D%0A%00%C3%BC");
        assert!(name == *"a b%3Ac%25%7Bd%7D%0A%00%C3%BC" && name != *"a b");
        assert_eq!(format!("{:?}", LogName::whole("a b")), "\"a b\"");
    }
}
