//! Reads JSON objects field by field, and names the field that is wrong in errors.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::command::MalformedRequest;
use crate::json::StrSeed;

/// The number of characters of an unknown name that an error repeats.
const NAME_MAX: usize = 64;

/// A type that [`ObjectReader`] can read from a JSON object.
pub(super) trait JsonObject<'de>: Sized {
    /// An example of such an object, which is shown in errors.
    const EXAMPLE: &'static str;

    /// Reads the value of the field with this name.
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error>;
}

/// Deserializes a JSON object into `T`, field by field.
pub(super) struct ObjectReader<T>(pub(super) T);

impl<'de, T: JsonObject<'de>> ObjectReader<T> {
    /// Parses a complete body. `path` must be the one that the fields of `T` use, so that errors name the field.
    pub(super) fn read_body(self, body: &'de [u8], path: &FieldPath) -> Result<T, MalformedRequest> {
        // Checked once for the whole body: from bytes, every string would be checked by itself.
        let text = str::from_utf8(body).map_err(|error| MalformedRequest {
            field: None,
            detail: format!("the body is not UTF-8: {error}"),
        })?;
        let mut json = serde_json::Deserializer::from_str(text);
        let read = self.deserialize(&mut json).and_then(|object| json.end().map(|()| object));
        read.map_err(|error| path.malformed(&error))
    }
}

impl<'de, T: JsonObject<'de>> DeserializeSeed<'de> for ObjectReader<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: JsonObject<'de>> Visitor<'de> for ObjectReader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object such as {}", T::EXAMPLE)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
        while let Some(name) = map.next_key_seed(StrSeed)? {
            self.0.read(name, &mut map)?;
        }
        Ok(self.0)
    }
}

/// The path of the field that is wrong, such as `charges[1].cost`.
///
/// It is built from the inside out while an error returns, so a body without errors costs nothing.
#[derive(Default)]
pub(super) struct FieldPath(RefCell<String>);

impl FieldPath {
    /// Adds the name of a field to the path if `read` is an error.
    pub(super) fn in_field<T, E>(&self, name: &str, read: Result<T, E>) -> Result<T, E> {
        read.inspect_err(|_| self.prepend(format_args!(".{}", truncate_name(name))))
    }

    /// Adds the index of an array's item to the path if `read` is an error.
    pub(super) fn in_item<T, E>(&self, index: usize, read: Result<T, E>) -> Result<T, E> {
        read.inspect_err(|_| self.prepend(format_args!("[{index}]")))
    }

    fn prepend(&self, place: fmt::Arguments<'_>) {
        let inside = self.0.take();
        self.0.replace(format!("{place}{inside}"));
    }

    /// Reads a field that may occur at most once.
    pub(super) fn read_once<'de, A: MapAccess<'de>, S: DeserializeSeed<'de>>(
        &self,
        map: &mut A,
        name: &str,
        slot: &mut Option<S::Value>,
        seed: S,
    ) -> Result<(), A::Error> {
        let read = if slot.is_some() { Err(duplicate_field()) } else { map.next_value_seed(seed) };
        *slot = Some(self.in_field(name, read)?);
        Ok(())
    }

    fn malformed(&self, error: &serde_json::Error) -> MalformedRequest {
        let path = self.0.take();
        match path.strip_prefix('.').unwrap_or(&path) {
            "" => MalformedRequest { field: None, detail: error.to_string() },
            field => {
                MalformedRequest { field: Some(field.to_owned()), detail: format!("\"{field}\": {error}") }
            }
        }
    }
}

pub(super) fn duplicate_field<E: Error>() -> E {
    E::custom("given twice; give it once")
}

/// Cuts a name to the length that errors repeat.
pub(super) fn truncate_name(name: &str) -> &str {
    name.char_indices().nth(NAME_MAX).map_or(name, |(end, _)| &name[..end])
}
