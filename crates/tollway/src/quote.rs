//! Shortens values for error messages, and removes passwords from them.

/// The most characters of a value that an error message repeats.
const QUOTE_MAX: usize = 60;

/// Returns at most [`QUOTE_MAX`] characters of `text`, on one line. The user and password of a URL are replaced by
/// `***`: a URL can end up in any field by mistake, and error messages end up in logs.
pub(crate) fn shorten(text: &str) -> String {
    let login = text.find("://").map(|at| at + 3).zip(text.rfind('@')).filter(|(start, end)| start <= end);
    match login {
        Some((start, end)) => {
            shortened(text[..start].chars().chain("***".chars()).chain(text[end..].chars()))
        }
        None => shortened(text.chars()),
    }
}

fn shortened(text: impl Iterator<Item = char>) -> String {
    let mut short = String::new();
    for (index, character) in text.enumerate() {
        if index == QUOTE_MAX {
            short.push('…');
            break;
        }
        if character.is_control() { short.extend(character.escape_default()) } else { short.push(character) }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_short_and_on_one_line_and_has_no_password() {
        let long = "x".repeat(100);
        for (text, quoted) in [
            ("", ""),
            ("alice@example.com", "alice@example.com"),
            ("two\nlines", "two\\nlines"),
            (&*long, &*format!("{}…", &long[..60])),
            ("redis://cache:6379", "redis://cache:6379"),
            ("redis://app:s3cret@cache", "redis://***@cache"),
            ("http://a:s3@cret@b/c@d", "http://***@d"),
            ("me@example.com://x", "me@example.com://x"),
            ("://@", "://***@"),
        ] {
            assert_eq!(shorten(text), quoted);
        }
    }
}
