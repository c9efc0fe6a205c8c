//! Patterns in which `*` stands for any text, also for none.

use std::fmt;

/// A pattern, split at its stars.
#[derive(Clone, Debug)]
pub(super) struct Wildcard {
    first: Box<str>,
    /// The texts between two stars, without empty ones.
    middle: Vec<Box<str>>,
    last: Box<str>,
}

impl Wildcard {
    /// Parses a text that has at least one star.
    pub(super) fn new(text: &str) -> Self {
        let (first, rest) = text.split_once('*').unwrap_or((text, ""));
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(Into::into).collect();
        Self { first: first.into(), middle, last: last.into() }
    }

    /// Returns true if the pattern matches the whole value.
    pub(super) fn matches(&self, value: &str) -> bool {
        let rest = value.strip_prefix(&*self.first).and_then(|rest| rest.strip_suffix(&*self.last));
        let Some(mut rest) = rest else { return false };
        // The earliest place of each part leaves the most for those after it.
        self.middle.iter().all(|part| match rest.find(&**part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

/// Writes the pattern. Stars that follow one another are one.
impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first)?;
        self.middle.iter().try_for_each(|part| write!(f, "*{part}"))?;
        write!(f, "*{}", self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says the same by trying every length for every star.
    fn naive(pattern: &[u8], value: &[u8]) -> bool {
        match pattern {
            [] => value.is_empty(),
            [b'*', rest @ ..] => (0..=value.len()).any(|skipped| naive(rest, &value[skipped..])),
            [byte, rest @ ..] => value.first() == Some(byte) && naive(rest, &value[1..]),
        }
    }

    /// Every text of up to `length` characters of this alphabet.
    fn texts(alphabet: &str, length: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        let mut from = 0;
        for _ in 0..length {
            let until = texts.len();
            for index in from..until {
                let longer =
                    alphabet.chars().map(|next| format!("{}{next}", texts[index])).collect::<Vec<_>>();
                texts.extend(longer);
            }
            from = until;
        }
        texts
    }

    #[test]
    fn every_short_pattern_matches_what_a_naive_one_does() {
        let values = texts("ab", 5);
        for pattern in texts("ab*", 5).iter().filter(|pattern| pattern.contains('*')) {
            let wildcard = Wildcard::new(pattern);
            for value in &values {
                let expected = naive(pattern.as_bytes(), value.as_bytes());
                assert_eq!(wildcard.matches(value), expected, "{pattern} {value}");
            }
        }
    }
}
