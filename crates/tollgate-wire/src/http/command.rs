//! What is asked, read from JSON.
//!
//! ```text
//! {"limit":"Login","id":"alice","cost":2}
//! {"charges":[{"limit":"Login","id":"alice"},{"limit":"All","id":"*","kind":"check_only"}]}
//! ```
//!
//! A field we do not know may be one that would have changed the answer, so it is an error and not ignored.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use thiserror::Error;
use tollgate_core::Kind;
use tollgate_core::bill::CHARGES_MAX;

use super::decimal::put_u64;

/// What to do with the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Take them if they fit.
    Spend,
    /// Say what a spend would answer, and take nothing.
    Check,
    /// Give them back.
    Refund,
    /// Forget their buckets.
    Reset,
}

impl Verb {
    /// The word for it, in paths, commands and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Check => "check",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }

    /// What a charge costs that does not say so.
    pub const fn default_cost(self) -> u64 {
        match self {
            Self::Spend | Self::Refund => 1,
            Self::Check | Self::Reset => 0,
        }
    }

    const fn has_cost(self) -> bool {
        !matches!(self, Self::Reset)
    }

    const fn has_kind(self) -> bool {
        matches!(self, Self::Spend | Self::Check)
    }
}

/// One request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// What to do.
    pub verb: Verb,
    asks: Asks<'a>,
}

/// What is asked of one bucket: a charge that no policy has seen yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The name of the limit.
    pub limit: Cow<'a, str>,
    /// The id, spelled as the caller does.
    pub id: Cow<'a, [u8]>,
    /// How much.
    pub cost: u64,
    /// Its part in the bill.
    pub kind: Kind,
}

/// One ask, as nearly always, or several. One needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks<'a> {
    /// One.
    One(Ask<'a>),
    /// At least one.
    Many(Vec<Ask<'a>>),
}

/// Why a body or a query string is no command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct Malformed {
    /// The field it is about, if it is about one: `cost`, or `charges[1].cost`.
    pub field: Option<String>,
    /// What is wrong, and what would be right.
    pub detail: String,
}

impl<'a> Command<'a> {
    /// A command about these charges.
    pub const fn new(verb: Verb, asks: Asks<'a>) -> Self {
        Self { verb, asks }
    }

    /// Reads the body of a `POST`.
    pub fn from_json(verb: Verb, body: &'a [u8]) -> Result<Self, Malformed> {
        let trail = Trail::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        let form = Form { verb, nested: false, trail: &trail };
        let fields = form.deserialize(&mut json).map_err(|error| trail.malformed(&error))?;
        json.end().map_err(|error| Malformed { field: None, detail: error.to_string() })?;
        Ok(Self { verb, asks: fields.into_asks(verb)? })
    }

    /// Appends the body that [`from_json`](Self::from_json) reads. Ids that are not UTF-8 have no JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        match &self.asks {
            Asks::One(ask) => ask.put_json(self.verb, out),
            Asks::Many(asks) => {
                out.extend_from_slice(br#"{"charges":["#);
                for (index, ask) in asks.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    ask.put_json(self.verb, out);
                }
                out.extend_from_slice(b"]}");
            }
        }
    }

    /// What is asked, at least one and at most [`CHARGES_MAX`].
    pub fn asks(&self) -> &[Ask<'a>] {
        match &self.asks {
            Asks::One(ask) => std::slice::from_ref(ask),
            Asks::Many(asks) => asks,
        }
    }
}

impl<'a> Ask<'a> {
    /// An ask with a vote that takes its cost.
    pub fn new(limit: &'a str, id: &'a str, cost: u64) -> Self {
        Self { limit: limit.into(), id: id.as_bytes().into(), cost, kind: Kind::Spend }
    }

    fn put_json(&self, verb: Verb, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"limit":"#);
        put_string(out, &self.limit);
        out.extend_from_slice(br#","id":"#);
        put_string(out, &String::from_utf8_lossy(&self.id));
        if verb.has_cost() {
            out.extend_from_slice(br#","cost":"#);
            put_u64(out, self.cost);
        }
        if self.kind != Kind::Spend {
            out.extend_from_slice(br#","kind":"#);
            put_string(out, kind_name(self.kind));
        }
        out.push(b'}');
    }
}

/// Appends a JSON string.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("a string has JSON, and writing to memory cannot fail");
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Spend => "spend",
        Kind::SpendOnly => "spend_only",
        Kind::CheckOnly => "check_only",
    }
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

pub(super) fn missing(field: &str, what: &str) -> Malformed {
    Malformed { field: Some(field.to_owned()), detail: format!("`{field}` is missing: {what}") }
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

/// A string, borrowed unless it has escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn show(verb: Verb, body: &str) -> String {
        match Command::from_json(verb, body.as_bytes()) {
            Ok(command) => {
                let shown = command.asks().iter().map(|ask| {
                    let id = String::from_utf8_lossy(&ask.id);
                    format!("{}:{id} {} {:?}", ask.limit, ask.cost, ask.kind)
                });
                shown.collect::<Vec<_>>().join(", ")
            }
            Err(Malformed { field, detail }) => format!("{} | {detail}", field.as_deref().unwrap_or("-")),
        }
    }

    #[test]
    fn commands_are_understood() {
        for (verb, body, shown) in [
            (Verb::Spend, r#"{"limit":"L","id":"a"}"#, "L:a 1 Spend"),
            (Verb::Check, r#" {"id":"a" , "limit":"L"} "#, "L:a 0 Spend"),
            (Verb::Refund, r#"{"limit":"L","id":"a","cost":3}"#, "L:a 3 Spend"),
            (Verb::Reset, r#"{"limit":"L","id":"\u0041\n"}"#, "L:A\n 0 Spend"),
            (
                Verb::Spend,
                r#"{"limit":"L","id":"a","cost":18446744073709551615}"#,
                "L:a 18446744073709551615 Spend",
            ),
            (
                Verb::Spend,
                r#"{"charges":[{"limit":"A","id":"x","kind":"check_only"},{"limit":"B","id":"y","cost":2,"kind":"spend_only"}]}"#,
                "A:x 1 CheckOnly, B:y 2 SpendOnly",
            ),
        ] {
            assert_eq!(show(verb, body), shown, "{body}");
            let command = Command::from_json(verb, body.as_bytes()).unwrap();
            let mut again = Vec::new();
            command.put_json(&mut again);
            assert_eq!(Command::from_json(verb, &again).as_ref(), Ok(&command), "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let whole = "expected a whole number from 0 to 18446744073709551615 at line 1 column";
        for (verb, body, shown) in [
            (Verb::Spend, "", "- | the body is empty".to_owned()),
            (Verb::Spend, "x", "- | expected value".to_owned()),
            (Verb::Spend, "[]", "- | invalid type: sequence, expected an object such as".to_owned()),
            (Verb::Spend, "{}", "id | `id` is missing".to_owned()),
            (Verb::Spend, r#"{"id":"a"}"#, "limit | `limit` is missing".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":"a"}}"#, "- | trailing characters".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":7}"#, "id | `id`: invalid type: integer `7`, expected a string".to_owned()),
            (Verb::Spend, r#"{"limit":null,"id":"a"}"#, "limit | `limit`: invalid type: null".to_owned()),
            (Verb::Spend, r#"{"limit":"L","limit":"L"}"#, "limit | `limit`: given twice".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":"a","cots":1}"#, "- | unknown field `cots`: a spend has `limit`, `id` and `cost`".to_owned()),
            (Verb::Reset, r#"{"limit":"L","id":"a","cost":1}"#, "- | unknown field `cost`: a reset has".to_owned()),
            (Verb::Spend, r#"{"cost":-1}"#, format!("cost | `cost`: invalid type: integer `-1`, {whole}")),
            (Verb::Spend, r#"{"cost":1.5}"#, format!("cost | `cost`: invalid type: floating point `1.5`, {whole}")),
            (Verb::Spend, r#"{"cost":18446744073709551616}"#, "cost | `cost`: invalid type: floating point".to_owned()),
            (Verb::Spend, r#"{"cost":1e400}"#, "cost | `cost`: number out of range".to_owned()),
            (Verb::Spend, r#"{"cost":NaN}"#, "cost | `cost`: expected value".to_owned()),
            (Verb::Spend, r#"{"cost":"1"}"#, "cost | `cost`: invalid type: string \"1\"".to_owned()),
            (Verb::Spend, r#"{"charges":{}}"#, "charges | `charges`: invalid type: map, expected an array".to_owned()),
            (Verb::Spend, r#"{"charges":[]}"#, "charges | `charges`: a bill has at least one charge".to_owned()),
            (Verb::Spend, r#"{"charges":[{"limit":"A","id":"x"},{"limit":"B"}]}"#, "charges[1] | `charges[1]`: `id` is missing".to_owned()),
            (Verb::Spend, r#"{"charges":[{"limit":"A","id":"x","cost":[]}]}"#, "charges[0].cost | `charges[0].cost`: invalid type: sequence".to_owned()),
            (Verb::Spend, r#"{"charges":[{"kind":"both"}]}"#, "charges[0].kind | `charges[0].kind`: invalid value: string \"both\", expected `spend`, `spend_only` or `check_only`".to_owned()),
            (Verb::Spend, r#"{"charges":[{"charges":[]}]}"#, "charges[0] | `charges[0]`: unknown field `charges`".to_owned()),
            (Verb::Spend, r#"{"limit":"L","charges":[{"limit":"A","id":"x"}]}"#, "charges | `charges` stands alone".to_owned()),
        ] {
            assert!(show(verb, body).starts_with(&shown), "{body}: {}", show(verb, body));
        }
        let many = vec![r#"{"limit":"A","id":"x"}"#; CHARGES_MAX + 1].join(",");
        let shown = show(Verb::Spend, &format!(r#"{{"charges":[{many}]}}"#));
        assert!(shown.starts_with("charges[32] | `charges[32]`: a bill has at most 32 charges"), "{shown}");
        let deep = format!(r#"{{"charges":{}"#, "[".repeat(10_000));
        assert!(show(Verb::Spend, &deep).starts_with("charges[0] | "), "{}", show(Verb::Spend, &deep));
    }
}
