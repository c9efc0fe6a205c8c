//! Reading a command's JSON, with the names of fields in hand when something is wrong with one.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollgate_core::bill::CHARGES_MAX;
use tollgate_core::{Kind, Verb};

use super::{Ask, Asks, Malformed, kind_name, missing};
use crate::json::Text;

/// Reads a whole body.
pub(super) fn read(verb: Verb, body: &[u8]) -> Result<Asks<'_>, Malformed> {
    let trail = Trail::default();
    let mut json = serde_json::Deserializer::from_slice(body);
    let form = Form { verb, nested: false, trail: &trail };
    let fields = form.deserialize(&mut json).map_err(|error| trail.malformed(&error))?;
    json.end().map_err(|error| Malformed { field: None, detail: error.to_string() })?;
    fields.into_asks(verb)
}

/// Which field is being read, for whoever has to explain what went wrong with it.
#[derive(Default)]
struct Trail {
    charge: Cell<Option<usize>>,
    field: Cell<Option<&'static str>>,
}

impl Trail {
    fn malformed(&self, error: &serde_json::Error) -> Malformed {
        if error.is_eof() && error.column() == 0 {
            let detail = r#"the body is empty: send {"limit":"NAME","id":"ID"}"#.to_owned();
            return Malformed { field: None, detail };
        }
        let field = match (self.charge.get(), self.field.get()) {
            (Some(charge), Some(field)) => Some(format!("charges[{charge}].{field}")),
            (Some(charge), None) => Some(format!("charges[{charge}]")),
            (None, field) => field.map(str::to_owned),
        };
        let detail = match &field {
            Some(field) => format!("`{field}`: {error}"),
            None => error.to_string(),
        };
        Malformed { field, detail }
    }
}

/// Reads one object.
#[derive(Clone, Copy)]
struct Form<'t> {
    verb: Verb,
    nested: bool,
    trail: &'t Trail,
}

/// What an object said.
#[derive(Default)]
struct Fields<'a> {
    limit: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    cost: Option<u64>,
    kind: Option<Kind>,
    charges: Option<Vec<Ask<'a>>>,
}

impl<'a> Fields<'a> {
    fn into_asks(self, verb: Verb) -> Result<Asks<'a>, Malformed> {
        let Some(charges) = self.charges else { return self.into_ask(verb).map(Asks::One) };
        let alone = self.limit.is_none() && self.id.is_none() && self.cost.is_none();
        if alone {
            return Ok(Asks::Many(charges));
        }
        let detail = "`charges` stands alone: put `limit`, `id` and `cost` into each charge".to_owned();
        Err(Malformed { field: Some("charges".to_owned()), detail })
    }

    fn into_ask(self, verb: Verb) -> Result<Ask<'a>, Malformed> {
        let id = match self.id.ok_or_else(|| missing("id", "who or what is limited, a string"))? {
            Cow::Borrowed(id) => Cow::Borrowed(id.as_bytes()),
            Cow::Owned(id) => Cow::Owned(id.into_bytes()),
        };
        Ok(Ask {
            limit: self.limit.ok_or_else(|| missing("limit", "the name of a limit, a string"))?,
            id,
            cost: self.cost.unwrap_or(verb.default_cost()),
            kind: self.kind.unwrap_or_default(),
        })
    }
}

impl<'de> DeserializeSeed<'de> for Form<'_> {
    type Value = Fields<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Form<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"limit":"NAME","id":"ID"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "limit" => self.read(&mut map, "limit", &mut fields.limit, Text)?,
                "id" => self.read(&mut map, "id", &mut fields.id, Text)?,
                "cost" if self.verb.has_cost() => self.read(&mut map, "cost", &mut fields.cost, Cost)?,
                "kind" if self.nested && self.verb.has_kind() => {
                    self.read(&mut map, "kind", &mut fields.kind, KindName)?;
                }
                "charges" if !self.nested => {
                    let charges = Charges(self.verb, self.trail);
                    self.read(&mut map, "charges", &mut fields.charges, charges)?;
                }
                unknown => return Err(self.unknown(unknown)),
            }
        }
        Ok(fields)
    }
}

impl Form<'_> {
    fn read<'de, A: MapAccess<'de>, S: DeserializeSeed<'de>>(
        &self,
        map: &mut A,
        name: &'static str,
        slot: &mut Option<S::Value>,
        seed: S,
    ) -> Result<(), A::Error> {
        self.trail.field.set(Some(name));
        if slot.is_some() {
            return Err(A::Error::custom("given twice; give it once"));
        }
        *slot = Some(map.next_value_seed(seed)?);
        self.trail.field.set(None);
        Ok(())
    }

    fn unknown<E: Error>(&self, name: &str) -> E {
        let known = match (self.nested, self.verb) {
            (false, Verb::Reset) => "`limit` and `id`, or `charges`",
            (false, _) => "`limit`, `id` and `cost`, or `charges`",
            (true, Verb::Reset) => "`limit` and `id`",
            (true, Verb::Refund) => "`limit`, `id` and `cost`",
            (true, Verb::Spend | Verb::Check) => "`limit`, `id`, `cost` and `kind`",
        };
        let name: String = name.chars().take(64).collect();
        E::custom(format_args!("unknown field `{name}`: a {} has {known}", self.verb.name()))
    }
}

struct Cost;

impl<'de> DeserializeSeed<'de> for Cost {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl Visitor<'_> for Cost {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u64::MAX)
    }

    fn visit_u64<E>(self, cost: u64) -> Result<u64, E> {
        Ok(cost)
    }
}

struct KindName;

impl<'de> DeserializeSeed<'de> for KindName {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KindName {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`spend`, `spend_only` or `check_only`")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Kind, E> {
        let kinds = [Kind::Spend, Kind::SpendOnly, Kind::CheckOnly];
        let found = kinds.into_iter().find(|kind| kind_name(*kind) == name);
        found.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
    }
}

/// The charges of a bill.
struct Charges<'t>(Verb, &'t Trail);

impl<'de> DeserializeSeed<'de> for Charges<'_> {
    type Value = Vec<Ask<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Charges<'_> {
    type Value = Vec<Ask<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of 1 to {CHARGES_MAX} charges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Self(verb, trail) = self;
        let mut asks = Vec::new();
        loop {
            trail.charge.set(Some(asks.len()));
            trail.field.set(None);
            let Some(fields) = seq.next_element_seed(Form { verb, nested: true, trail })? else { break };
            if asks.len() == CHARGES_MAX {
                return Err(A::Error::custom(format_args!("a bill has at most {CHARGES_MAX} charges")));
            }
            let ask = fields.into_ask(verb).map_err(|malformed| A::Error::custom(malformed.detail))?;
            asks.push(ask);
        }
        trail.charge.set(None);
        trail.field.set(Some("charges"));
        if asks.is_empty() { Err(A::Error::custom("a bill has at least one charge")) } else { Ok(asks) }
    }
}
