//! Overrides: one limit, but other numbers for some ids.
//!
//! ```yaml
//! overrides:
//!   NewOrdersPerAccount:12345678: { burst: 300, count: 600, period: 180m }
//! ```
//!
//! or, where several ids share their numbers,
//!
//! ```yaml
//! overrides:
//!   - NewOrdersPerAccount: { burst: 300, count: 600, period: 180m, ids: [12345678, { id: 87654321, comment: paid }] }
//! ```

use tollway_core::{Algorithm, IdError, Limit};

use super::algorithm::{AlgorithmFields, AlgorithmKind};
use super::errors::{Errors, Position};
use super::fields::{Fields, literal, mapping, refuse};
use super::limits::{LimitDraft, Limits, NUMBERS_EXAMPLE};
use super::suggest::nearest;
use super::yaml::{YamlEntry, YamlKey, YamlNode, YamlValue, shorten};

/// What can be said about an override, and, last, in the form that lists ids.
const LIST_FIELDS: [&str; 6] = ["burst", "count", "period", "strict", "algorithm", "ids"];
const FIELDS: [&str; 5] = ["burst", "count", "period", "strict", "algorithm"];

/// The same with ids, for the form that lists them.
const IDS_EXAMPLE: &str = "{burst: 20, count: 40, period: 1s, ids: [10.0.0.2]}";

impl Limits {
    /// Everything under `overrides:`, in either form.
    pub(super) fn overrides(&mut self, entry: &YamlEntry, errors: &mut Errors) {
        match &entry.value.value {
            YamlValue::Map(entries) => entries.iter().for_each(|entry| self.one_override(entry, errors)),
            YamlValue::List(items) => items.iter().for_each(|item| self.override_list_item(item, errors)),
            _ if entry.value.is_null() => {}
            _ => {
                let must_be = format!("must be a mapping, such as `Name:id: {NUMBERS_EXAMPLE}`, or a list");
                refuse::<()>(entry, &must_be, errors);
            }
        }
    }

    /// `Name:id: {burst, count, period}`.
    fn one_override(&mut self, entry: &YamlEntry, errors: &mut Errors) {
        let YamlKey { at, text } = &entry.key;
        let Some((name, id)) = text.split_once(':') else {
            let name = shorten(text);
            errors.add(*at, format!("`{name}` does not say whose: an override is `{name}:id`"));
            return;
        };
        let found = self.find(name, *at, errors);
        let Some(entries) = mapping(entry, NUMBERS_EXAMPLE, errors) else { return };
        let fields = Fields::read(entries, "an override", &FIELDS, errors);
        let algorithm = self.algorithm(found, &entry.key, &fields, errors);
        if let Some(index) = found {
            self.drafts[index].add_override(id, *at, algorithm, errors);
        }
    }

    /// An override at the top of a file. Without any limits in the file it brings its own.
    pub(super) fn bare_override(&mut self, entry: &YamlEntry, implied: bool, errors: &mut Errors) {
        if implied
            && let Some((name, _)) = entry.key.text.split_once(':')
            && !self.by_name.contains_key(name)
        {
            self.declare(&YamlKey { at: entry.key.at, text: name.to_owned() }, errors);
        }
        self.one_override(entry, errors);
    }

    /// `- Name: {burst, count, period, ids: [{id, comment}, …]}`.
    fn override_list_item(&mut self, item: &YamlNode, errors: &mut Errors) {
        let YamlValue::Map(entries) = &item.value else {
            if !matches!(item.value, YamlValue::Refused) {
                let found = item.quoted();
                errors.add(item.at, format!("an override must be like `Name: {IDS_EXAMPLE}`, not {found}"));
            }
            return;
        };
        for entry in entries {
            self.override_for_ids(entry, errors);
        }
    }

    fn override_for_ids(&mut self, entry: &YamlEntry, errors: &mut Errors) {
        let YamlKey { at, text } = &entry.key;
        let found = self.find(text, *at, errors);
        let Some(entries) = mapping(entry, IDS_EXAMPLE, errors) else { return };
        let fields = Fields::read(entries, "an override", &LIST_FIELDS, errors);
        let algorithm = self.algorithm(found, &entry.key, &fields, errors);
        let Some(ids) = fields.get("ids") else {
            errors.add(*at, format!("`{}` has no ids: an override says whose it is", shorten(text)));
            return;
        };
        for (id, at) in read_ids(ids, errors) {
            if let Some(index) = found {
                self.drafts[index].add_override(id, at, algorithm, errors);
            }
        }
    }

    /// The place of the limit of this name, or an error at `at`.
    pub(super) fn find(&self, name: &str, at: Position, errors: &mut Errors) -> Option<usize> {
        let found = self.by_name.get(name).copied();
        if found.is_none() {
            // Once errors are only counted, nobody would see a suggestion, and it takes its time.
            let candidates = if errors.is_full() { &[] } else { &*self.drafts };
            let names = candidates.iter().filter_map(|draft| draft.limit.as_ref()).map(Limit::name);
            let hint = match nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "it would be declared under `limits`".to_owned(),
            };
            errors.add(at, format!("there is no limit `{}`; {hint}", shorten(name)));
        }
        found
    }

    fn algorithm(
        &self,
        found: Option<usize>,
        owner: &YamlKey,
        fields: &Fields<'_>,
        errors: &mut Errors,
    ) -> Option<Algorithm> {
        let draft = found.map(|index| &self.drafts[index]);
        let kind = match fields.get("algorithm") {
            Some(entry) => AlgorithmKind::read(entry, errors),
            None => draft.and_then(|draft| draft.kind),
        };
        let strict = draft.is_some_and(|draft| draft.strict);
        AlgorithmFields::of(fields).algorithm(owner, kind?, strict, errors)
    }
}

impl LimitDraft {
    /// `algorithm` is `None` if it was wrong; the id is then looked at all the same.
    fn add_override(&mut self, id: &str, at: Position, algorithm: Option<Algorithm>, errors: &mut Errors) {
        let Some(limit) = &mut self.limit else { return };
        let canonical = match limit.ids().canonical(id.as_bytes()) {
            Ok(canonical) => canonical,
            Err(error) => return errors.add(at, format!("`{}`: {}", self.name, brief(error, id))),
        };
        if let Some(earlier) = self.overridden.get(&*canonical) {
            let id = shorten(&String::from_utf8_lossy(&canonical));
            let message = format!("`{}` has an override for `{id}` already, at {earlier}", self.name);
            return errors.add(at, message);
        }
        self.overridden.insert(canonical.into_owned(), at);
        if let Some(algorithm) = algorithm
            && let Err(error) = limit.add_override(id.as_bytes(), algorithm)
        {
            errors.add(at, error.to_string());
        }
    }
}

/// The error with no more of the id than fits on a line.
fn brief(error: IdError, id: &str) -> IdError {
    match error {
        IdError::Format { format, .. } => IdError::Format { id: shorten(id), format },
        error => error,
    }
}

/// The ids of a list form, each a plain text or `{id, comment}`.
fn read_ids<'a>(entry: &'a YamlEntry, errors: &mut Errors) -> Vec<(&'a str, Position)> {
    let must_be = "must be a list of ids, such as [10.0.0.2]";
    let YamlValue::List(items) = &entry.value.value else {
        refuse::<()>(entry, must_be, errors);
        return Vec::new();
    };
    if items.is_empty() {
        errors.add(entry.value.at, "ids is empty: an override says whose it is");
    }
    items.iter().filter_map(|item| read_id(item, errors)).collect()
}

fn read_id<'a>(item: &'a YamlNode, errors: &mut Errors) -> Option<(&'a str, Position)> {
    let must_be = "must be a text or a number, or {id, comment}";
    match &item.value {
        YamlValue::Scalar { text, .. } => Some((text, item.at)),
        YamlValue::Map(entries) => {
            let fields = Fields::read(entries, "an id", &["id", "comment"], errors);
            if let Some(comment) = fields.get("comment")
                && literal(&comment.value).is_none()
            {
                refuse::<()>(comment, "must be a text", errors);
            }
            let Some(id) = fields.get("id") else {
                errors.add(item.at, "there is no `id` here: an id is a text, a number, or {id, comment}");
                return None;
            };
            match literal(&id.value) {
                Some(text) => Some((text, id.value_at())),
                None => refuse(id, "must be a text or a number", errors),
            }
        }
        YamlValue::List(_) => {
            errors.add(item.at, format!("an id {must_be}, not {}", item.quoted()));
            None
        }
        YamlValue::Refused => None,
    }
}
