//! What a proxy charges before it lets a request through: `GET /v1/gate?limit=Login&id=10.0.0.1`.
//!
//! Values are percent-decoded, and a `+` is a plus: proxies paste addresses, tokens and paths, not forms.

use std::borrow::Cow;

use tollway_core::ChargeKind;

use tollway_core::Verb;

use super::command::{ChargeRequest, ChargeRequests, HttpCommand, MalformedRequest, missing};
use super::response_writer::HttpStatus;

/// A spend on behalf of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuery<'a> {
    /// What to spend.
    pub command: HttpCommand<'a>,
    /// The status that refuses.
    pub deny_status: DenyStatus,
}

/// A status that a proxy takes for a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyStatus {
    /// 401: nginx's `auth_request` passes it on.
    Unauthorized,
    /// 403: nginx's `auth_request` passes it on.
    Forbidden,
    /// 429: what it is.
    #[default]
    TooManyRequests,
    /// 503: what some proxies turn into a retry elsewhere.
    ServiceUnavailable,
}

impl DenyStatus {
    /// As a status.
    pub const fn status(self) -> HttpStatus {
        match self {
            Self::Unauthorized => HttpStatus::Unauthorized,
            Self::Forbidden => HttpStatus::Forbidden,
            Self::TooManyRequests => HttpStatus::TooManyRequests,
            Self::ServiceUnavailable => HttpStatus::ServiceUnavailable,
        }
    }

    fn from_code(code: &[u8]) -> Option<Self> {
        Some(match code {
            b"401" => Self::Unauthorized,
            b"403" => Self::Forbidden,
            b"429" => Self::TooManyRequests,
            b"503" => Self::ServiceUnavailable,
            _ => return None,
        })
    }
}

impl<'a> GateQuery<'a> {
    /// Reads a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let [limit, id, cost, deny_status] = parameters(query, ["limit", "id", "cost", "deny_status"])?;
        let limit = limit.ok_or_else(|| missing("limit", "the name of a limit"))?;
        let charge = ChargeRequest {
            limit: name(limit)?,
            id: id.ok_or_else(|| missing("id", "who or what is limited"))?,
            cost: cost.map_or(Ok(Verb::Spend.default_cost()), |cost| {
                let accepted = "a cost is a whole number from 0 to 18446744073709551615";
                whole(&cost).ok_or_else(|| malformed("cost", accepted))
            })?,
            kind: ChargeKind::Spend,
        };
        let deny_status = deny_status.map_or(Ok(DenyStatus::default()), |code| {
            let accepted = "a proxy takes 401, 403, 429 or 503 for a refusal; send one of them";
            DenyStatus::from_code(&code).ok_or_else(|| malformed("deny_status", accepted))
        })?;
        Ok(Self { command: HttpCommand::new(Verb::Spend, ChargeRequests::One(charge)), deny_status })
    }
}

/// The values of these names, each given once or not at all.
pub(super) fn parameters<'a, const N: usize>(
    query: &'a str,
    names: [&str; N],
) -> Result<[Option<Cow<'a, [u8]>>; N], MalformedRequest> {
    let mut values = [const { None }; N];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(unknown_parameter(name, &names));
        };
        if values[index].replace(decode(name, value)?).is_some() {
            return Err(malformed(name, "given twice; give it once"));
        }
    }
    Ok(values)
}

pub(super) fn malformed(field: &str, detail: &str) -> MalformedRequest {
    MalformedRequest { field: Some(field.to_owned()), detail: format!("`{field}`: {detail}") }
}

fn unknown_parameter(name: &str, names: &[&str]) -> MalformedRequest {
    let name: String = name.chars().take(64).collect();
    let (last, others) = names.split_last().unwrap_or((&"none", &[]));
    let detail = format!("unknown parameter `{name}`: there are `{}` and `{last}`", others.join("`, `"));
    MalformedRequest { field: None, detail }
}

/// The name of a limit.
pub(super) fn name(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, MalformedRequest> {
    let text = match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.ok_or_else(|| malformed("limit", "a name is UTF-8"))
}

/// A whole number of 64 bits.
pub(super) fn whole(digits: &[u8]) -> Option<u64> {
    let all_digits = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| all_digits).and_then(|text| text.parse().ok())
}

/// The text that [`decode`] makes these bytes of.
pub(super) fn encode(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(byte);
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if plain(byte) { text.push(char::from(*byte)) } else { text += &format!("%{byte:02X}") }
    }
    text
}

/// Takes `%41` for `A`. Borrows where nothing is escaped.
fn decode<'a>(name: &str, value: &'a str) -> Result<Cow<'a, [u8]>, MalformedRequest> {
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
        let (byte, after) = escaped.ok_or_else(|| malformed(name, "a `%` is followed by two hex digits"))?;
        decoded.push(byte);
        rest = after;
    }
    Ok(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_understood() {
        for (query, limit, id, cost, status) in [
            ("limit=L&id=a", "L", &b"a"[..], 1, 429),
            ("id=10.0.0.1&limit=L&cost=0&deny_status=403", "L", b"10.0.0.1", 0, 403),
            ("limit=L&&id=%41%2b+%ff", "L", b"A++\xff", 1, 429),
            ("limit=%4c&id=", "L", b"", 1, 429),
        ] {
            let gate = GateQuery::from_query(query).unwrap();
            let charge = &gate.command.charges()[0];
            assert_eq!((&*charge.limit, &*charge.id, charge.cost), (limit, id, cost), "{query}");
            assert_eq!(gate.deny_status.status().code(), status, "{query}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, field) in [
            ("", Some("limit")),
            ("limit=L", Some("id")),
            ("limit=L&id=a&id=a", Some("id")),
            ("limit=%ff&id=a", Some("limit")),
            ("limit=L&id=%4", Some("id")),
            ("limit=L&id=%zz", Some("id")),
            ("limit=L&id=a&cost=-1", Some("cost")),
            ("limit=L&id=a&cost=", Some("cost")),
            ("limit=L&id=a&cost=+1", Some("cost")),
            ("limit=L&id=a&cost=18446744073709551616", Some("cost")),
            ("limit=L&id=a&deny_status=200", Some("deny_status")),
            ("limit=L&id=a&deny=403", None),
        ] {
            assert_eq!(GateQuery::from_query(query).unwrap_err().field.as_deref(), field, "{query}");
        }
    }
}
