//! The query and the response of `GET /v1/keys?limit=Login&count=2`, which lists buckets one page at a time.
//!
//! ```text
//! {"keys":["Login:alice","Login:bob"],"cursor":"98304"}
//! ```
//!
//! The next page starts at the cursor; the last page has none. A bucket that exists during the whole listing is on at
//! least one page, and may be on two.

use std::borrow::Cow;

use serde::Deserialize;

use super::command::MalformedRequest;
use super::query_string::{malformed_parameter, parse_parameters, parse_u64, percent_encode, text};
use super::server_response::{ResponseError, read_body, unexpected_body};
use crate::json::put_string;

/// A query that asks for one page of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysQuery<'a> {
    /// The limit whose keys are listed. `None` lists those of all limits.
    pub limit: Option<Cow<'a, str>>,
    /// The cursor that the previous page returned. 0 starts a listing.
    pub cursor: u64,
    /// The number of keys that is wanted. A page may have a few more or less.
    pub count: usize,
}

/// One page of the keys that a store holds.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeysPage {
    /// The readable keys of the buckets, such as `Login:alice`.
    pub keys: Vec<String>,
    /// The cursor at which the next page starts. `None` on the last page.
    pub cursor: Option<u64>,
}

impl KeysPage {
    /// Creates a page with these keys, and the cursor of the next page.
    pub const fn new(keys: Vec<String>, cursor: Option<u64>) -> Self {
        Self { keys, cursor }
    }
}

impl<'a> KeysQuery<'a> {
    /// The default number of keys that a page has.
    pub const COUNT: usize = 100;
    /// The greatest number of keys that can be asked for at once. Redis serves nobody else while it scans.
    pub const COUNT_MAX: usize = 1_000;

    /// Parses a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let [limit, cursor, count] = parse_parameters(query, ["limit", "cursor", "count"])?;
        let cursor = cursor.map_or(Ok(0), |digits| {
            parse_u64(&digits)
                .ok_or_else(|| malformed_parameter("cursor", "send the cursor of the previous page"))
        })?;
        let count = count.map_or(Some(Self::COUNT), |digits| {
            let count = parse_u64(&digits).and_then(|count| usize::try_from(count).ok());
            count.filter(|count| (1..=Self::COUNT_MAX).contains(count))
        });
        let range = format!("send a whole number from 1 to {}", Self::COUNT_MAX);
        Ok(Self {
            limit: limit.map(|limit| text("limit", limit)).transpose()?,
            cursor,
            count: count.ok_or_else(|| malformed_parameter("count", &range))?,
        })
    }

    /// Returns the query string of this query.
    pub fn to_query(&self) -> String {
        let limit = self.limit.as_ref().map(|limit| format!("limit={}&", percent_encode(limit.as_bytes())));
        format!("{}cursor={}&count={}", limit.unwrap_or_default(), self.cursor, self.count)
    }
}

impl KeysPage {
    /// Appends the response body as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"keys":["#);
        for (index, key) in self.keys.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            put_string(out, key);
        }
        out.extend_from_slice(br#"],"cursor":"#);
        match self.cursor {
            // A string, because it may be greater than the integers that a double can hold.
            Some(cursor) => put_string(out, &cursor.to_string()),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }

    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        let KeysPageFields { keys, cursor } = read_body(status, body)?;
        let number =
            |text: String| text.parse().map_err(|_| unexpected_body(status, "\"cursor\" is not a number"));
        Ok(Self { keys, cursor: cursor.map(number).transpose()? })
    }
}

#[derive(Deserialize)]
struct KeysPageFields {
    keys: Vec<String>,
    cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_understood_and_written() {
        for (query, limit, cursor, count) in [
            ("", None, 0, 100),
            ("limit=L", Some("L"), 0, 100),
            ("count=1000&cursor=18446744073709551615&limit=%4c", Some("L"), u64::MAX, 1000),
        ] {
            let asked = KeysQuery::from_query(query).unwrap();
            assert_eq!(
                (asked.limit.as_deref(), asked.cursor, asked.count),
                (limit, cursor, count),
                "{query}"
            );
            assert_eq!(KeysQuery::from_query(&asked.to_query()), Ok(asked.clone()), "{query}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, field) in [
            ("count=0", Some("count")),
            ("count=1001", Some("count")),
            ("count=", Some("count")),
            ("cursor=-1", Some("cursor")),
            ("cursor=18446744073709551616", Some("cursor")),
            ("limit=%ff", Some("limit")),
            ("limit=L&limit=L", Some("limit")),
            ("id=a", None),
        ] {
            assert_eq!(KeysQuery::from_query(query).unwrap_err().field.as_deref(), field, "{query}");
        }
    }

    #[test]
    fn pages_are_written_and_read_back() {
        for (keys, cursor, json) in [
            (vec![], None, r#"{"keys":[],"cursor":null}"#),
            (
                vec!["L:a", "L:\"\\x00é"],
                Some(u64::MAX),
                r#"{"keys":["L:a","L:\"\\x00é"],"cursor":"18446744073709551615"}"#,
            ),
        ] {
            let page = KeysPage { keys: keys.into_iter().map(str::to_owned).collect(), cursor };
            let mut out = Vec::new();
            page.put_json(&mut out);
            assert_eq!(String::from_utf8_lossy(&out), json);
            assert_eq!(KeysPage::from_json(200, &out).unwrap(), page);
        }
        assert!(KeysPage::from_json(200, br#"{"keys":[],"cursor":"x"}"#).is_err());
    }
}
