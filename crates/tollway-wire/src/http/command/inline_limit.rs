//! The numbers of an inline limit, which a request has in the place of a limit's name.
//!
//! ```text
//! {"burst":5,"count":10,"period":"1m"}      five at once, ten a minute
//! {"count":10,"period":60}                  the burst is the count; a period without a unit is seconds
//! ```

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tollway_core::algorithm::{NumbersError, TokenBucket};
use tollway_core::{InlineTokenBucket, Nanos};

use super::json::CostSeed;
use crate::decimal::put_u64;
use crate::http::json_object::{FieldPath, JsonObject, ObjectReader, truncate_name};
use crate::json::put_string;

/// A limit in JSON: its name, or its numbers.
pub(super) enum LimitField<'a> {
    Name(Cow<'a, str>),
    Inline(Box<InlineTokenBucket>),
}

/// Deserializes a limit.
pub(super) struct LimitSeed<'t>(pub(super) &'t FieldPath);

impl<'de> DeserializeSeed<'de> for LimitSeed<'_> {
    type Value = LimitField<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LimitSeed<'_> {
    type Value = LimitField<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string, or an object such as {}", InlineLimitFields::EXAMPLE)
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(LimitField::Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(LimitField::Name(Cow::Owned(name.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let fields = InlineLimitFields { path: self.0, burst: None, count: None, period: None };
        ObjectReader(fields)
            .visit_map(map)?
            .into_token_bucket()
            .map(|inline| LimitField::Inline(Box::new(inline)))
    }
}

/// The fields of an inline limit.
struct InlineLimitFields<'t> {
    path: &'t FieldPath,
    burst: Option<u64>,
    count: Option<u64>,
    period: Option<Duration>,
}

impl InlineLimitFields<'_> {
    fn into_token_bucket<E: Error>(self) -> Result<InlineTokenBucket, E> {
        let count = self.count.ok_or_else(|| E::custom("\"count\" is missing; send a whole number"))?;
        let period = self.period.ok_or_else(|| E::custom("\"period\" is missing; send a duration"))?;
        let limit = TokenBucket::new(self.burst.unwrap_or(count), count, period);
        let limit = limit.map_err(|error| match error {
            // The burst is the count, and nobody has sent one.
            NumbersError::Zero { field: "burst" } if self.burst.is_none() => {
                NumbersError::Zero { field: "count" }
            }
            error => error,
        });
        let limit = match limit {
            Err(error) => self.path.in_field(field_of(&error), Err(E::custom(error)))?,
            Ok(limit) => limit,
        };
        Ok(InlineTokenBucket::new(limit))
    }
}

/// Returns the field that an error is about, with whose name its text begins.
fn field_of(error: &NumbersError) -> &'static str {
    match error {
        NumbersError::Zero { field } => field,
        NumbersError::TooSlow { .. } => "burst",
        NumbersError::PeriodTooLong { .. } => "period",
        // The other errors of a token bucket are about the count.
        _ => "count",
    }
}

impl<'de> JsonObject<'de> for InlineLimitFields<'_> {
    const EXAMPLE: &'static str = r#"{"burst":5,"count":10,"period":"1m"}"#;

    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        match &*name {
            "burst" => self.path.read_once(map, &name, &mut self.burst, CostSeed),
            "count" => self.path.read_once(map, &name, &mut self.count, CostSeed),
            "period" => self.path.read_once(map, &name, &mut self.period, PeriodSeed),
            unknown => Err(A::Error::custom(format_args!(
                "unknown field \"{}\": an inline limit has \"burst\", \"count\" and \"period\"",
                truncate_name(unknown)
            ))),
        }
    }
}

/// Deserializes a period: text with units, or whole seconds.
struct PeriodSeed;

impl<'de> DeserializeSeed<'de> for PeriodSeed {
    type Value = Duration;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for PeriodSeed {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"1m30s\", or whole seconds")
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        text.parse().map(Nanos::as_duration).map_err(E::custom)
    }
}

/// Appends the numbers in the form that [`LimitSeed`] reads.
pub(super) fn put(limit: &TokenBucket, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"burst":"#);
    put_u64(out, limit.burst());
    out.extend_from_slice(br#","count":"#);
    put_u64(out, limit.count());
    out.extend_from_slice(br#","period":"#);
    put_string(out, &limit.period().to_string());
    out.push(b'}');
}
