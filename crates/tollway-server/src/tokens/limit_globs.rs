//! The limits that a token is for, as patterns of their names: `shop-*,login`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The longest list of patterns, in bytes.
const GLOBS_MAX: usize = 256;
/// The longest name that can match. Matching takes time in proportion to both lengths, and clients choose the name.
const NAME_MAX: usize = 1024;

/// Patterns of names of limits and rules. `*` stands for any characters, and `?` for one byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitGlobs(Box<[Box<str>]>);

/// A text that is no list of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "limits are patterns of names, separated by commas, such as shop-*,login, of at most {GLOBS_MAX} bytes"
)]
#[non_exhaustive]
pub struct LimitGlobsError;

impl LimitGlobs {
    /// Returns whether one of the patterns matches the whole name.
    pub fn match_name(&self, name: &str) -> bool {
        name.len() <= NAME_MAX && self.0.iter().any(|glob| matches(glob.as_bytes(), name.as_bytes()))
    }
}

impl FromStr for LimitGlobs {
    type Err = LimitGlobsError;

    fn from_str(text: &str) -> Result<Self, LimitGlobsError> {
        let is_valid =
            |glob: &str| !glob.is_empty() && !glob.contains(|c: char| c.is_whitespace() || c.is_control());
        if text.len() > GLOBS_MAX || !text.split(',').all(is_valid) {
            return Err(LimitGlobsError);
        }
        Ok(Self(text.split(',').map(Box::from).collect()))
    }
}

/// Writes the patterns, as a token file has them.
impl fmt::Display for LimitGlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Returns whether a pattern matches the whole name. If what follows the last star does not fit, the star takes one
/// byte more; an earlier star need never take more, so the time is at most the product of both lengths.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut last_star = None;
    while in_name < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                last_star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                (at, in_name) = (star + 1, taken + 1);
            }
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (globs, name, expected) in [
            ("login", "login", true),
            ("login", "Login", false),
            ("login", "logins", false),
            ("shop-*,login", "shop-cart", true),
            ("shop-*,login", "shop-", true),
            ("shop-*,login", "login", true),
            ("shop-*,login", "eshop-cart", false),
            ("*", "", true),
            ("*", "anything/at all", true),
            ("?", "", false),
            ("?", "a", true),
            ("?", "ab", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abcb", false),
            ("a*ab", "aaab", true),
            ("*a", "aaaa", true),
            ("a**", "a", true),
            ("inline/*", "inline/throttle", true),
        ] {
            let globs: LimitGlobs = globs.parse().unwrap();
            assert_eq!(globs.match_name(name), expected, "{globs} {name}");
        }
        assert!(!"*".parse::<LimitGlobs>().unwrap().match_name(&"a".repeat(NAME_MAX + 1)));
    }

    #[test]
    fn a_list_has_no_empty_pattern() {
        for wrong in ["", ",", "a,", ",a", "a,,b", "a b", "a\u{7}", &"a".repeat(GLOBS_MAX + 1)] {
            assert_eq!(wrong.parse::<LimitGlobs>(), Err(LimitGlobsError), "{wrong}");
        }
    }
}
