//! Parses the JSON of a command.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollway_core::bill::CHARGES_MAX;
use tollway_core::{BillError, ChargeKind, InlineLimit, RuleRequest, Verb};

use super::inline_limit::{LimitField, LimitSeed};
use super::{ChargeRequest, ChargeRequests, MalformedRequest, missing_field};
use crate::http::json_object::{FieldPath, JsonObject, ObjectReader, truncate_name};
use crate::http::rule::RulesSeed;
use crate::json::StrSeed;

/// The charges and the rules of a bill.
type Parts<'a> = (ChargeRequests<'a>, Vec<RuleRequest<'a>>);

/// Parses a complete body.
pub(super) fn read(verb: Verb, body: &[u8]) -> Result<Parts<'_>, MalformedRequest> {
    if body.trim_ascii().is_empty() {
        let detail = r#"the body is empty: send {"limit":"NAME","id":"ID"}"#.to_owned();
        return Err(MalformedRequest { field: None, detail });
    }
    let path = FieldPath::default();
    ObjectReader(CommandFields::new(verb, false, &path)).read_body(body, &path)?.into_parts()
}

/// The fields of a JSON object that is one charge, or has the charges and the rules of a bill.
struct CommandFields<'a, 't> {
    verb: Verb,
    nested: bool,
    path: &'t FieldPath,
    limit: Option<LimitField<'a>>,
    id: Option<Cow<'a, str>>,
    cost: Option<u64>,
    kind: Option<ChargeKind>,
    charges: Option<Vec<ChargeRequest<'a>>>,
    rules: Option<Vec<RuleRequest<'a>>>,
}

impl<'a, 't> CommandFields<'a, 't> {
    fn new(verb: Verb, nested: bool, path: &'t FieldPath) -> Self {
        let (limit, id, cost, kind) = (None, None, None, None);
        Self { verb, nested, path, limit, id, cost, kind, charges: None, rules: None }
    }

    fn into_parts(mut self) -> Result<Parts<'a>, MalformedRequest> {
        let (charges, rules) = (self.charges.take(), self.rules.take().unwrap_or_default());
        let alone = self.limit.is_none() && self.id.is_none() && self.cost.is_none() && self.kind.is_none();
        let charges = match charges {
            None if alone && !rules.is_empty() => Vec::new(),
            None => return Ok((ChargeRequests::One(self.into_charge()?), rules)),
            Some(charges) => charges,
        };
        let detail = if !alone {
            "\"charges\" cannot be combined with other fields: put \"limit\", \"id\" and \"cost\" into each charge"
        } else if charges.is_empty() && rules.is_empty() {
            "\"charges\": a bill has at least one charge or rule"
        } else {
            return Ok((ChargeRequests::Many(charges), rules));
        };
        Err(MalformedRequest { field: Some("charges".to_owned()), detail: detail.to_owned() })
    }

    fn into_charge(self) -> Result<ChargeRequest<'a>, MalformedRequest> {
        let id =
            match self.id.ok_or_else(|| missing_field("id", "send who or what is limited as a string"))? {
                Cow::Borrowed(id) => Cow::Borrowed(id.as_bytes()),
                Cow::Owned(id) => Cow::Owned(id.into_bytes()),
            };
        let limit =
            self.limit.ok_or_else(|| missing_field("limit", "send the name of a limit as a string"))?;
        let (limit, inline) = match limit {
            LimitField::Name(name) => (name, None),
            LimitField::Inline(inline) => (Cow::Borrowed(InlineLimit::NAME), Some(inline)),
        };
        let cost = self.cost.unwrap_or(self.verb.default_cost());
        Ok(ChargeRequest { limit, id, cost, kind: self.kind.unwrap_or_default(), inline })
    }

    fn unknown<E: Error>(&self, name: &str) -> E {
        let known = match self.verb {
            Verb::Reset => "\"limit\" and \"id\"",
            Verb::Spend | Verb::Check | Verb::Refund => "\"limit\", \"id\", \"cost\" and \"kind\"",
        };
        let or_charges = match (self.nested, self.verb.has_rules()) {
            (true, _) => "",
            (false, false) => ", or \"charges\"",
            (false, true) => ", or \"charges\", and \"rules\"",
        };
        E::custom(format_args!(
            "unknown field \"{}\": a {} has {known}{or_charges}",
            truncate_name(name),
            self.verb.name()
        ))
    }
}

impl<'de> JsonObject<'de> for CommandFields<'de, '_> {
    const EXAMPLE: &'static str = r#"{"limit":"NAME","id":"ID"}"#;

    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        let Self { verb, nested, path, .. } = *self;
        match &*name {
            "limit" => path.read_once(map, &name, &mut self.limit, LimitSeed(path)),
            "id" => path.read_once(map, &name, &mut self.id, StrSeed),
            "cost" if verb.has_cost() => path.read_once(map, &name, &mut self.cost, CostSeed),
            "kind" if verb.has_kind() => path.read_once(map, &name, &mut self.kind, KindSeed),
            "charges" if !nested => path.read_once(map, &name, &mut self.charges, ChargesSeed { verb, path }),
            "rules" if !nested && verb.has_rules() => {
                path.read_once(map, &name, &mut self.rules, RulesSeed(path))
            }
            "rules" if !nested => path.in_field(&name, Err(A::Error::custom(BillError::RulesOf { verb }))),
            unknown => Err(self.unknown(unknown)),
        }
    }
}

pub(super) struct CostSeed;

impl<'de> DeserializeSeed<'de> for CostSeed {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl Visitor<'_> for CostSeed {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E>(self, cost: u64) -> Result<u64, E> {
        Ok(cost)
    }
}

struct KindSeed;

impl<'de> DeserializeSeed<'de> for KindSeed {
    type Value = ChargeKind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ChargeKind, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KindSeed {
    type Value = ChargeKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"spend\", \"spend_only\" or \"check_only\"")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ChargeKind, E> {
        let found = ChargeKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
    }
}

/// Deserializes the charges of a bill.
struct ChargesSeed<'t> {
    verb: Verb,
    path: &'t FieldPath,
}

impl<'de> DeserializeSeed<'de> for ChargesSeed<'_> {
    type Value = Vec<ChargeRequest<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChargesSeed<'_> {
    type Value = Vec<ChargeRequest<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {CHARGES_MAX} charges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut charges = Vec::new();
        while let Some(charge) = self.path.in_item(charges.len(), self.next(&mut seq, charges.len()))? {
            charges.push(charge);
        }
        Ok(charges)
    }
}

impl ChargesSeed<'_> {
    /// Reads the next charge. `before` is the number of charges that were read already.
    fn next<'de, A: SeqAccess<'de>>(
        &self,
        seq: &mut A,
        before: usize,
    ) -> Result<Option<ChargeRequest<'de>>, A::Error> {
        let reader = ObjectReader(CommandFields::new(self.verb, true, self.path));
        let Some(fields) = seq.next_element_seed(reader)? else { return Ok(None) };
        if before == CHARGES_MAX {
            return Err(A::Error::custom(format_args!("a bill has at most {CHARGES_MAX} charges")));
        }
        fields.into_charge().map(Some).map_err(|malformed| A::Error::custom(malformed.detail))
    }
}
