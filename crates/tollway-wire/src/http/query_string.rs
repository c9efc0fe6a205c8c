//! Parses and writes query strings.
//!
//! Values are percent-decoded. A `+` stays a plus and is not a space: proxies insert addresses, tokens and paths, not
//! forms.

use std::borrow::Cow;

use super::command::MalformedRequest;

/// Returns the values of the parameters with these names. Each may be given once or not at all.
pub(super) fn parse_parameters<'a, const N: usize>(
    query: &'a str,
    names: [&str; N],
) -> Result<[Option<Cow<'a, [u8]>>; N], MalformedRequest> {
    let mut values = [const { None }; N];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(unknown_parameter(name, &names));
        };
        if values[index].replace(percent_decode(name, value)?).is_some() {
            return Err(malformed_parameter(name, "given twice; give it once"));
        }
    }
    Ok(values)
}

pub(super) fn malformed_parameter(field: &str, detail: &str) -> MalformedRequest {
    MalformedRequest { field: Some(field.to_owned()), detail: format!("\"{field}\": {detail}") }
}

fn unknown_parameter(name: &str, names: &[&str]) -> MalformedRequest {
    let name: String = name.chars().take(64).collect();
    let (last, others) = names.split_last().unwrap_or((&"none", &[]));
    let detail = format!("unknown parameter \"{name}\"; send \"{}\" or \"{last}\"", others.join("\", \""));
    MalformedRequest { field: None, detail }
}

/// Converts the value of the parameter `name` to text.
pub(super) fn text<'a>(name: &str, bytes: Cow<'a, [u8]>) -> Result<Cow<'a, str>, MalformedRequest> {
    let text = match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.ok_or_else(|| malformed_parameter(name, "must be UTF-8"))
}

/// Parses a whole number of 64 bits. Signs are refused.
pub(super) fn parse_u64(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all_digits).and_then(|text| text.parse().ok())
}

/// Encodes bytes in the form that [`percent_decode`] reads.
pub(super) fn percent_encode(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(byte);
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if plain(byte) { text.push(char::from(*byte)) } else { text += &format!("%{byte:02X}") }
    }
    text
}

/// Replaces escapes such as `%41` by their bytes. Borrows the value if it has none.
pub(super) fn percent_decode<'a>(name: &str, value: &'a str) -> Result<Cow<'a, [u8]>, MalformedRequest> {
    if !value.contains('%') {
        return Ok(Cow::Borrowed(value.as_bytes()));
    }
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let escaped = after.split_at_checked(2).and_then(|(digits, after)| {
            let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
            Some((hex(digits[0])? * 16 + hex(digits[1])?, after))
        });
        let (byte, after) =
            escaped.ok_or_else(|| malformed_parameter(name, "a \"%\" must be followed by two hex digits"))?;
        decoded.push(byte);
        rest = after;
    }
    Ok(Cow::Owned(decoded))
}
