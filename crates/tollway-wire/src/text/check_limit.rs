//! The argument of `check_limit`, which checks a user agent, an address and a global key in one request:
//! `check_limit {"origin":"ws","ua":"Mozilla","ip":"192.0.2.1"}`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{StrSeed, put_string};

/// The values that the three keys are made of. The keys are tried in order, until one is over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckLimit<'a> {
    /// The prefix that the keys share. The default is `unspecified`.
    pub origin: Cow<'a, str>,
    /// The user agent of the client. It is empty by default.
    pub ua: Cow<'a, str>,
    /// The address of the client. It is empty by default.
    pub ip: Cow<'a, str>,
}

/// One of the keys that a `check_limit` tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKey {
    /// `ORIGIN ua=UA`.
    Ua,
    /// `ORIGIN ip=IP`.
    Ip,
    /// `ORIGIN global`.
    Global,
}

impl CheckKey {
    /// All keys, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Ua, Self::Ip, Self::Global];
}

const DEFAULT_ORIGIN: &str = "unspecified";

impl<'a> CheckLimit<'a> {
    /// Parses the argument of the command. Unknown fields are ignored: other servers may define them.
    pub(super) fn from_json(json: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub(super) fn put_json(&self, out: &mut Vec<u8>) {
        for (open, value) in
            [(r#"{"origin":"#, &self.origin), (r#","ua":"#, &self.ua), (r#","ip":"#, &self.ip)]
        {
            out.extend_from_slice(open.as_bytes());
            put_string(out, value);
        }
        out.push(b'}');
    }

    /// Appends one of the three keys.
    pub fn put_key(&self, which: CheckKey, out: &mut Vec<u8>) {
        let (kind, value) = match which {
            CheckKey::Ua => (" ua=", &*self.ua),
            CheckKey::Ip => (" ip=", &*self.ip),
            CheckKey::Global => (" global", ""),
        };
        for part in [&*self.origin, kind, value] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for CheckLimit<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CheckLimitVisitor)
    }
}

struct CheckLimitVisitor;

impl<'de> Visitor<'de> for CheckLimitVisitor {
    type Value = CheckLimit<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"origin":"ws","ua":"Mozilla","ip":"192.0.2.1"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CheckLimit<'de>, A::Error> {
        let (mut origin, mut ua, mut ip) = (None, None, None);
        while let Some(name) = map.next_key_seed(StrSeed)? {
            match &*name {
                "origin" => origin = map.next_value::<ValueText<'de>>()?.0,
                "ua" => ua = map.next_value::<ValueText<'de>>()?.0,
                "ip" => ip = map.next_value::<ValueText<'de>>()?.0,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(CheckLimit {
            origin: origin.unwrap_or(Cow::Borrowed(DEFAULT_ORIGIN)),
            ua: ua.unwrap_or_default(),
            ip: ip.unwrap_or_default(),
        })
    }
}

/// A value as the text that it has in a key: a string, or a number, `true` or `false` as it is written. `null` is none.
struct ValueText<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for ValueText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text of a number is its own: parsed, `1.0` would be another key, and a long number not the same.
        let json = <&RawValue>::deserialize(deserializer)?.get();
        match json.as_bytes()[0] {
            b'"' => {
                let mut string = serde_json::Deserializer::from_str(json);
                let text = StrSeed.deserialize(&mut string).map_err(D::Error::custom)?;
                Ok(Self(Some(text)))
            }
            b'[' | b'{' => Err(D::Error::custom("expected a string, a number or a boolean")),
            b'n' => Ok(Self(None)),
            _ => Ok(Self(Some(Cow::Borrowed(json)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(json: &str) -> Option<[String; 3]> {
        let check = CheckLimit::from_json(json.as_bytes())?;
        Some(CheckKey::ALL.map(|which| {
            let mut key = Vec::new();
            check.put_key(which, &mut key);
            String::from_utf8(key).unwrap()
        }))
    }

    #[test]
    fn three_keys_are_made_of_what_is_given() {
        for (json, expected) in [
            (
                r#"{"origin":"ws","ua":"Mozilla/5.0 (X11)","ip":"192.0.2.1"}"#,
                ["ws ua=Mozilla/5.0 (X11)", "ws ip=192.0.2.1", "ws global"],
            ),
            ("{}", ["unspecified ua=", "unspecified ip=", "unspecified global"]),
            (" { } ", ["unspecified ua=", "unspecified ip=", "unspecified global"]),
            (r#"{"origin":null,"ua":null}"#, ["unspecified ua=", "unspecified ip=", "unspecified global"]),
            (r#"{"origin":""}"#, [" ua=", " ip=", " global"]),
            (
                r#"{"ip":"a","other":[{"ip":7}],"ip":"b"}"#,
                ["unspecified ua=", "unspecified ip=b", "unspecified global"],
            ),
            (r#"{"origin":0,"ua":5,"ip":true}"#, ["0 ua=5", "0 ip=true", "0 global"]),
            (
                r#"{"ua": -1.50e3 ,"ip":123456789012345678901234567890}"#,
                [
                    "unspecified ua=-1.50e3",
                    "unspecified ip=123456789012345678901234567890",
                    "unspecified global",
                ],
            ),
            (r#"{"ua":false}"#, ["unspecified ua=false", "unspecified ip=", "unspecified global"]),
            (r#"{"ip":"a","ip":null}"#, ["unspecified ua=", "unspecified ip=", "unspecified global"]),
            (
                r#"{"u\u0061":"\"\n\u00e9"}"#,
                ["unspecified ua=\"\né", "unspecified ip=", "unspecified global"],
            ),
        ] {
            assert_eq!(keys(json), Some(expected.map(str::to_owned)), "{json}");
        }
    }

    #[test]
    fn what_is_no_object_of_values_is_silence() {
        for json in [
            "",
            "x",
            "null",
            "[]",
            r#"["ws","ua","ip"]"#,
            r#""ws""#,
            "{",
            "{}}",
            "{} {}",
            r#"{"ip":tru}"#,
            r#"{"ip":07}"#,
            r#"{"ip":["a"]}"#,
            r#"{"ip":{}}"#,
            r#"{"ip":"a}"#,
            r#"{"ip":"\ud800"}"#,
            r#"{"ip":"a",}"#,
            r#"{ip:"a"}"#,
            r#"{"other":}"#,
        ] {
            assert_eq!(keys(json), None, "{json}");
        }
        assert_eq!(CheckLimit::from_json(b"{\"ip\":\"\xff\"}"), None);
    }
}
