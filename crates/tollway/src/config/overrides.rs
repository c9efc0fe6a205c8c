//! Reads the section `overrides`: other numbers of a limit for some ids.
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
//!
//! Either form can be a file of its own, which `overrides: FILE` names.

use tollway_core::descriptor::is_descriptor_limit;
use tollway_core::{Algorithm, IdError, Limit};

use super::OtherFiles;
use super::algorithm::{AlgorithmFields, AlgorithmKind};
use super::did_you_mean::nearest;
use super::errors::{ErrorCollector, Position};
use super::fields::{YamlFields, mapping, refuse, scalar_text};
use super::limits::{LimitDraft, LimitsDraft, NUMBERS_EXAMPLE};
use super::yaml::{YamlEntry, YamlKey, YamlNode, YamlValue, shorten};

/// The fields that an override can have in the form that lists ids, and those in the form `Name:id`.
const LIST_FIELDS: [&str; 8] = ["burst", "count", "period", "offset", "rate", "strict", "algorithm", "ids"];
const FIELDS: [&str; 7] = ["burst", "count", "period", "offset", "rate", "strict", "algorithm"];

/// The example of an override with a list of ids that error messages show.
const IDS_EXAMPLE: &str = "{burst: 20, count: 40, period: 1s, ids: [10.0.0.2]}";

impl LimitsDraft {
    /// Reads everything under `overrides:`: a mapping, a list, or the name of a file that has one of them.
    pub(super) fn overrides(
        &mut self,
        entry: &YamlEntry,
        files: &mut OtherFiles<'_>,
        errors: &mut ErrorCollector,
    ) {
        match &entry.value.value {
            _ if entry.value.is_null() => {}
            YamlValue::Scalar { .. } => {
                if let Some(document) = files.read(&entry.key, &entry.value, errors) {
                    self.override_file(&document, errors);
                }
            }
            _ => self.override_entries(&entry.value, errors),
        }
    }

    /// Reads a file of overrides, which may have them under `overrides:`, as the main file does.
    fn override_file(&mut self, document: &YamlNode, errors: &mut ErrorCollector) {
        match &document.value {
            YamlValue::Map(entries) => match &**entries {
                [YamlEntry { key, value }] if key.text == "overrides" => self.override_entries(value, errors),
                _ => self.override_entries(document, errors),
            },
            _ => self.override_entries(document, errors),
        }
    }

    fn override_entries(&mut self, node: &YamlNode, errors: &mut ErrorCollector) {
        match &node.value {
            YamlValue::Map(entries) => entries.iter().for_each(|entry| self.one_override(entry, errors)),
            YamlValue::List(items) => items.iter().for_each(|item| self.override_list_item(item, errors)),
            YamlValue::Refused => {}
            YamlValue::Scalar { .. } => {
                let must_be = format!("must be a mapping, such as \"Name:id: {NUMBERS_EXAMPLE}\", or a list");
                errors.add(node.at, format!("overrides {must_be}, not {}", node.quoted()));
            }
        }
    }

    /// Reads a file that is nothing but a list of overrides. Its limits have no numbers for other ids.
    pub(super) fn bare_override_list(&mut self, items: &[YamlNode], errors: &mut ErrorCollector) {
        for item in items {
            let entries: &[_] = if let YamlValue::Map(entries) = &item.value { entries } else { &[] };
            for YamlEntry { key, .. } in entries {
                if !self.by_name.contains_key(&key.text) && !is_descriptor_limit(&key.text) {
                    self.declare(key, errors);
                }
            }
            self.override_list_item(item, errors);
        }
    }

    /// Reads one override, `Name:id: {burst, count, period}`.
    fn one_override(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        let YamlKey { at, text } = &entry.key;
        let Some((name, id)) = text.split_once(':') else {
            let name = shorten(text);
            errors.add(*at, format!("override \"{name}\" has no id; write \"{name}:id\""));
            return;
        };
        let found = self.limit_of_override(name, *at, errors);
        let Some(entries) = mapping(entry, NUMBERS_EXAMPLE, errors) else { return };
        let fields = YamlFields::read(entries, "an override", &FIELDS, errors);
        let algorithm = self.algorithm(found, &entry.key, &fields, errors);
        if let Some(index) = found {
            self.drafts[index].add_override(id, *at, algorithm, errors);
        }
    }

    /// Reads an override at the top level of a file. If the file has no limits at all (`implied`), the override
    /// declares its limit, so that a file of overrides alone is valid.
    pub(super) fn bare_override(&mut self, entry: &YamlEntry, implied: bool, errors: &mut ErrorCollector) {
        if implied
            && let Some((name, _)) = entry.key.text.split_once(':')
            && !self.by_name.contains_key(name)
            && !is_descriptor_limit(name)
        {
            self.declare(&YamlKey { at: entry.key.at, text: name.to_owned() }, errors);
        }
        self.one_override(entry, errors);
    }

    /// Reads one item of the list, `- Name: {burst, count, period, ids: [{id, comment}, …]}`.
    fn override_list_item(&mut self, item: &YamlNode, errors: &mut ErrorCollector) {
        let YamlValue::Map(entries) = &item.value else {
            if !matches!(item.value, YamlValue::Refused) {
                let found = item.quoted();
                errors.add(
                    item.at,
                    format!("an override must be a mapping, such as \"Name: {IDS_EXAMPLE}\", not {found}"),
                );
            }
            return;
        };
        for entry in entries {
            self.override_for_ids(entry, errors);
        }
    }

    fn override_for_ids(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        let YamlKey { at, text } = &entry.key;
        let found = self.limit_of_override(text, *at, errors);
        let Some(entries) = mapping(entry, IDS_EXAMPLE, errors) else { return };
        let fields = YamlFields::read(entries, "an override", &LIST_FIELDS, errors);
        let algorithm = self.algorithm(found, &entry.key, &fields, errors);
        let Some(ids) = fields.get("ids") else {
            errors.add(
                *at,
                format!("override \"{}\" has no ids; add them, such as ids: [10.0.0.2]", shorten(text)),
            );
            return;
        };
        for (id, at) in read_ids(ids, errors) {
            if let Some(index) = found {
                self.drafts[index].add_override(id, at, algorithm, errors);
            }
        }
    }

    /// Returns the index of the limit that an override is for, or reports at `at` why there can be none.
    fn limit_of_override(&self, name: &str, at: Position, errors: &mut ErrorCollector) -> Option<usize> {
        if is_descriptor_limit(name) {
            let name = shorten(name);
            let message = format!(
                "limit \"{name}\" is that of a descriptor, which has no overrides; for other numbers of one value, add \
                 a descriptor with its key and this \"value\""
            );
            errors.add(at, message);
            return None;
        }
        self.find(name, at, errors)
    }

    /// Returns the index of the limit with this name, or reports at `at` that there is none.
    pub(super) fn find(&self, name: &str, at: Position, errors: &mut ErrorCollector) -> Option<usize> {
        let found = self.by_name.get(name).copied();
        if found.is_none() {
            // Once errors are only counted, nobody sees a suggestion, and finding one compares up to a thousand names.
            let candidates = if errors.is_full() { &[] } else { &*self.drafts };
            let names = candidates.iter().filter_map(|draft| draft.limit.as_ref()).map(Limit::name);
            let hint = match nearest(name, names) {
                Some(meant) => format!(" (did you mean \"{meant}\"?)"),
                None => "; add it to \"limits\"".to_owned(),
            };
            errors.add(at, format!("limit \"{}\" does not exist{hint}", shorten(name)));
        }
        found
    }

    fn algorithm(
        &self,
        found: Option<usize>,
        owner: &YamlKey,
        fields: &YamlFields<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<Algorithm> {
        let draft = found.map(|index| &self.drafts[index]);
        let kind = match fields.get("algorithm") {
            Some(entry) => AlgorithmKind::read(entry, errors),
            None => draft.and_then(|draft| draft.kind),
        };
        let inherited = draft.map(|draft| draft.inherited).unwrap_or_default();
        AlgorithmFields::of(fields).algorithm(owner, kind?, inherited, errors)
    }
}

impl LimitDraft {
    /// Adds an override for one id. `algorithm` is `None` if it had a mistake; the id is checked nevertheless.
    fn add_override(
        &mut self,
        id: &str,
        at: Position,
        algorithm: Option<Algorithm>,
        errors: &mut ErrorCollector,
    ) {
        let Some(limit) = &mut self.limit else { return };
        let canonical = match limit.ids().canonical_override(id.as_bytes()) {
            Ok(canonical) => canonical,
            Err(error) => {
                return errors.add(at, format!("limit \"{}\": {}", self.name, shorten_id(error, id)));
            }
        };
        if let Some(earlier) = self.overridden.get(&*canonical) {
            let (id, earlier) = (shorten(&String::from_utf8_lossy(&canonical)), errors.place(*earlier));
            let message =
                format!("limit \"{}\" has two overrides for id \"{id}\", the first at {earlier}", self.name);
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

/// Shortens the id in an error, so that the message fits on a line.
fn shorten_id(error: IdError, id: &str) -> IdError {
    match error {
        IdError::Format { format, .. } => IdError::Format { id: shorten(id), format },
        error => error,
    }
}

/// Reads a list of ids, each a plain text or `{id, comment}`.
fn read_ids<'a>(entry: &'a YamlEntry, errors: &mut ErrorCollector) -> Vec<(&'a str, Position)> {
    let must_be = "must be a list of ids, such as [10.0.0.2]";
    let YamlValue::List(items) = &entry.value.value else {
        refuse::<()>(entry, must_be, errors);
        return Vec::new();
    };
    if items.is_empty() {
        errors.add(entry.value.at, "ids is empty; add at least one id");
    }
    items.iter().filter_map(|item| read_id(item, errors)).collect()
}

fn read_id<'a>(item: &'a YamlNode, errors: &mut ErrorCollector) -> Option<(&'a str, Position)> {
    let must_be = "must be text or a number, or {id, comment}";
    match &item.value {
        YamlValue::Scalar { text, .. } => Some((text, item.at)),
        YamlValue::Map(entries) => {
            let fields = YamlFields::read(entries, "an id", &["id", "comment"], errors);
            if let Some(comment) = fields.get("comment")
                && scalar_text(&comment.value).is_none()
            {
                refuse::<()>(comment, "must be text", errors);
            }
            let Some(id) = fields.get("id") else {
                errors.add(item.at, "\"id\" is missing; an id is text, a number, or {id, comment}");
                return None;
            };
            match scalar_text(&id.value) {
                Some(text) => Some((text, id.value_at())),
                None => refuse(id, "must be text or a number", errors),
            }
        }
        YamlValue::List(_) => {
            errors.add(item.at, format!("an id {must_be}, not {}", item.quoted()));
            None
        }
        YamlValue::Refused => None,
    }
}
