//! The queries and the bodies of `/v1/buckets`: `GET` exports a page of buckets, and `POST` imports one.
//!
//! ```text
//! GET /v1/buckets?from=0                 {"export":"VE9MTFdBWVgB…"}
//! POST /v1/buckets?dry_run=true          {"imported":3,"expired":1,"no_room":0,"unknown":0,"digests":0,"unnamed":0}
//! ```
//!
//! A page is a whole export, in Base64: bodies are JSON, because a web page cannot send that unasked.

use serde::Deserialize;

use super::command::MalformedRequest;
use super::query_string::{malformed_parameter, parse_parameters, parse_u64};
use super::server_response::{ResponseError, read_body, unexpected_body};

/// A query that asks for one page of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportQuery {
    /// The place at which the page begins: 0, or what the page before it said.
    pub from: u64,
}

impl ExportQuery {
    /// Parses a query string.
    pub fn from_query(query: &str) -> Result<Self, MalformedRequest> {
        let [from] = parse_parameters(query, ["from"])?;
        let wrong = || malformed_parameter("from", "send the number that the page before it has at its end");
        Ok(Self { from: from.map_or(Some(0), |digits| parse_u64(&digits)).ok_or_else(wrong)? })
    }

    /// Returns the query string of this query.
    pub fn to_query(self) -> String {
        format!("from={}", self.from)
    }
}

/// A query that comes with a page to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportQuery {
    /// True if nothing is changed.
    pub dry_run: bool,
    /// True if the clocks of the source and the server may differ by any time.
    pub any_clock: bool,
}

impl ImportQuery {
    /// Parses a query string.
    pub fn from_query(query: &str) -> Result<Self, MalformedRequest> {
        let [dry_run, any_clock] = parse_parameters(query, ["dry_run", "any_clock"])?;
        let flag = |name, value: Option<std::borrow::Cow<'_, [u8]>>| match value.as_deref() {
            None | Some(b"false") => Ok(false),
            Some(b"true") => Ok(true),
            Some(_) => Err(malformed_parameter(name, "send true or false")),
        };
        Ok(Self { dry_run: flag("dry_run", dry_run)?, any_clock: flag("any_clock", any_clock)? })
    }

    /// Returns the query string of this query.
    pub fn to_query(self) -> String {
        format!("dry_run={}&any_clock={}", self.dry_run, self.any_clock)
    }
}

/// A page of an export: the bytes of a file.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketsPage(pub Vec<u8>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageFields<'a> {
    export: &'a str,
}

impl BucketsPage {
    /// Appends the page as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"export":""#);
        put_base64(&self.0, out);
        out.extend_from_slice(br#""}"#);
    }

    /// Parses the body of a request.
    pub fn from_request(body: &[u8]) -> Result<Self, MalformedRequest> {
        let refused = |detail: String| MalformedRequest { field: Some("export".into()), detail };
        let PageFields { export } =
            serde_json::from_slice(body).map_err(|error| refused(error.to_string()))?;
        from_base64(export).map(Self).ok_or_else(|| refused("send \"export\" in Base64".to_owned()))
    }

    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        let PageFields { export } = read_body(status, body)?;
        from_base64(export).map(Self).ok_or_else(|| unexpected_body(status, "\"export\" is not Base64"))
    }
}

/// The number of buckets that an import has read, and what became of them.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct ImportCounts {
    /// The buckets that the server has now.
    pub imported: u64,
    /// The buckets that have expired.
    pub expired: u64,
    /// The buckets for which the server has no room.
    pub no_room: u64,
    /// The buckets of limits that the server does not have.
    pub unknown: u64,
    /// The buckets that are known by a digest only.
    pub digests: u64,
    /// The buckets that have no name.
    pub unnamed: u64,
}

impl ImportCounts {
    /// Returns the counts with these numbers, in the order of the fields.
    pub const fn new([imported, expired, no_room, unknown, digests, unnamed]: [u64; 6]) -> Self {
        Self { imported, expired, no_room, unknown, digests, unnamed }
    }

    /// Returns the numbers in the order of the fields.
    pub const fn numbers(&self) -> [u64; 6] {
        [self.imported, self.expired, self.no_room, self.unknown, self.digests, self.unnamed]
    }

    /// Appends the response body as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        let [imported, expired, no_room, unknown, digests, unnamed] = self.numbers();
        let json = format!(
            r#"{{"imported":{imported},"expired":{expired},"no_room":{no_room},"unknown":{unknown},"digests":{digests},"unnamed":{unnamed}}}"#
        );
        out.extend_from_slice(json.as_bytes());
    }

    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        read_body(status, body)
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends bytes in Base64: three of them are four digits, and `=` fills the last four.
fn put_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { digit } else { b'=' });
        }
    }
}

/// Returns the bytes of a text in Base64, or `None` if it is none.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (index, four) in text.chunks_exact(4).enumerate() {
        let digits = four.iter().position(|digit| *digit == b'=').unwrap_or(4);
        if (digits < 4 && index + 1 < groups)
            || digits < 2
            || four[digits..].iter().any(|digit| *digit != b'=')
        {
            return None;
        }
        let mut word = 0;
        for digit in &four[..digits] {
            word = word << 6 | value_of(*digit)?;
        }
        word <<= 6 * (4 - digits);
        bytes.extend_from_slice(&word.to_be_bytes()[1..digits]);
    }
    Some(bytes)
}

fn value_of(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe\x00", "//4A"),
        ] {
            let mut out = Vec::new();
            put_base64(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        for wrong in ["Z", "Zg", "Zg=", "====", "Z===", "Zg==Zg==", "Z=g=", "Zm9\n", "Zm9-"] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn queries_are_understood_and_written() {
        for from in [0, 7, u64::MAX] {
            let query = ExportQuery { from };
            assert_eq!(ExportQuery::from_query(&query.to_query()), Ok(query));
        }
        for (dry_run, any_clock) in [(true, false), (false, true)] {
            let query = ImportQuery { dry_run, any_clock };
            assert_eq!(ImportQuery::from_query(&query.to_query()), Ok(query));
        }
        assert_eq!(ExportQuery::from_query("from=x").unwrap_err().field.as_deref(), Some("from"));
        assert_eq!(ImportQuery::from_query("dry_run=1").unwrap_err().field.as_deref(), Some("dry_run"));
    }

    #[test]
    fn bodies_are_read_as_they_were_written() {
        let (page, mut out) = (BucketsPage(b"TOLLWAYX\x01".to_vec()), Vec::new());
        page.put_json(&mut out);
        assert_eq!(BucketsPage::from_json(200, &out).unwrap(), page);
        assert_eq!(BucketsPage::from_request(&out).unwrap(), page);
        let wrong = BucketsPage::from_request(br#"{"export":"?"}"#).unwrap_err();
        assert_eq!(wrong.detail, "send \"export\" in Base64");
        let counts = ImportCounts::new([1, 2, 3, 4, 5, 6]);
        let mut out = Vec::new();
        counts.put_json(&mut out);
        assert_eq!(ImportCounts::from_json(200, &out).unwrap(), counts);
    }
}
