//! Reading JSON objects field by field, with the name of the field in hand when something is wrong with it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::command::MalformedRequest;
use crate::json::StrSeed;

/// How much of a name that somebody else made up is repeated.
const NAME_MAX: usize = 64;

/// What an object is read into, by [`ObjectReader`].
pub(super) trait JsonObject<'de>: Sized {
    /// Such an object, for whoever sent something else.
    const EXAMPLE: &'static str;

    /// Reads the value of the field of this name.
    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error>;
}

/// An object to fill in.
pub(super) struct ObjectReader<T>(pub(super) T);

impl<'de, T: JsonObject<'de>> ObjectReader<T> {
    /// Reads a whole body. Whatever is wrong happened where `path` says.
    pub(super) fn read_body(self, body: &'de [u8], path: &FieldPath) -> Result<T, MalformedRequest> {
        let mut json = serde_json::Deserializer::from_slice(body);
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

/// Where something went wrong: written from the inside out on the way back, so that what goes well costs nothing.
#[derive(Default)]
pub(super) struct FieldPath(RefCell<String>);

impl FieldPath {
    /// What is wrong, if anything, is so in the field of this name.
    pub(super) fn in_field<T, E>(&self, name: &str, read: Result<T, E>) -> Result<T, E> {
        read.inspect_err(|_| self.prepend(format_args!(".{}", truncate_name(name))))
    }

    /// What is wrong, if anything, is so in the item at this place of an array.
    pub(super) fn in_item<T, E>(&self, index: usize, read: Result<T, E>) -> Result<T, E> {
        read.inspect_err(|_| self.prepend(format_args!("[{index}]")))
    }

    fn prepend(&self, place: fmt::Arguments<'_>) {
        let inside = self.0.take();
        self.0.replace(format!("{place}{inside}"));
    }

    /// Reads a field that may be given once.
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
                MalformedRequest { field: Some(field.to_owned()), detail: format!("`{field}`: {error}") }
            }
        }
    }
}

pub(super) fn duplicate_field<E: Error>() -> E {
    E::custom("given twice; give it once")
}

/// As much of a name as fits into an error.
pub(super) fn truncate_name(name: &str) -> &str {
    name.char_indices().nth(NAME_MAX).map_or(name, |(end, _)| &name[..end])
}
