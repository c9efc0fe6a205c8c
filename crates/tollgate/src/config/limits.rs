//! Limits and their overrides.
//!
//! ```yaml
//! limits:
//!   NewOrdersPerAccount: { burst: 300, count: 300, period: 180m, id: regId }
//! overrides:
//!   NewOrdersPerAccount:12345678: { burst: 300, count: 600, period: 180m }
//! ```
//!
//! A limit that is wrong stays known by its name, so that its overrides are not wrong as well.

use std::collections::HashMap;

use tollgate_core::{Algorithm, IdFormat, Limit, OnFull, OnStoreFailure, Policy, PolicyError};

use super::errors::{Errors, Position};
use super::fields::{choice, fields, flag, literal, mapping, refuse, whole_number};
use super::numbers::{Kind, Numbers};
use super::suggest::did_you_mean;
use super::yaml::{Entry, Key, Node, Value, shorten};

/// What a limit or an override looks like, for those who wrote something else.
const NUMBERS_EXAMPLE: &str = "{burst: 20, count: 20, period: 1s}";

/// The limits read so far.
#[derive(Default)]
pub(super) struct Limits {
    drafts: Vec<Draft>,
    by_name: HashMap<String, usize>,
    numbers: HashMap<u64, usize>,
}

/// A limit on its way to become one.
struct Draft {
    name: String,
    at: Position,
    /// `None` if the name cannot be one.
    limit: Option<Limit>,
    /// `None` if it is not known what was meant.
    kind: Option<Kind>,
    strict: bool,
    /// Where each canonical id was overridden.
    overridden: HashMap<Vec<u8>, Position>,
}

impl Limits {
    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Everything under `limits:`.
    pub(super) fn section(&mut self, entry: &Entry, errors: &mut Errors) {
        if entry.value.is_null() {
            return;
        }
        let example = format!("`Name: {NUMBERS_EXAMPLE}`");
        for limit in mapping(entry, &example, errors).unwrap_or_default() {
            self.limit(limit, errors);
        }
    }

    /// One limit, `Name: {burst, count, period, …}`.
    pub(super) fn limit(&mut self, entry: &Entry, errors: &mut Errors) {
        let read = mapping(entry, NUMBERS_EXAMPLE, errors).map(|entries| {
            let [burst, count, period, strict, algorithm, id, number, stats, on_full, on_store_failure] =
                fields(
                    entries,
                    "a limit",
                    [
                        "burst",
                        "count",
                        "period",
                        "strict",
                        "algorithm",
                        "id",
                        "number",
                        "stats",
                        "on_full",
                        "on_store_failure",
                    ],
                    errors,
                );
            let numbers = Numbers { burst, count, period, strict };
            LimitFields { numbers, algorithm, id, number, stats, on_full, on_store_failure }
        });
        let Some(index) = self.declare(&entry.key, errors) else { return };
        let Some(fields) = read else {
            self.drafts[index].kind = None;
            return;
        };
        if let Some(number) = fields.number {
            self.number(index, number, errors);
        }
        self.drafts[index].fill(&entry.key, &fields, errors);
    }

    /// A limit of this name that says nothing yet, unless there is one.
    fn declare(&mut self, key: &Key, errors: &mut Errors) -> Option<usize> {
        if let Some(index) = self.by_name.get(&key.text) {
            let (name, earlier) = (shorten(&key.text), self.drafts[*index].at);
            errors.add(key.at, format!("there is a limit `{name}` already, at {earlier}"));
            return None;
        }
        let limit = Limit::new(&key.text).map_err(|error| errors.add(key.at, error.to_string())).ok();
        let index = self.drafts.len();
        self.by_name.insert(key.text.clone(), index);
        self.drafts.push(Draft {
            name: key.text.clone(),
            at: key.at,
            limit,
            kind: Some(Kind::default()),
            strict: false,
            overridden: HashMap::new(),
        });
        Some(index)
    }

    fn number(&mut self, index: usize, entry: &Entry, errors: &mut Errors) {
        let Some(number) = whole_number(entry, 0..=u64::MAX, errors) else { return };
        if let Some(earlier) = self.numbers.insert(number, index) {
            let Draft { name, at, .. } = &self.drafts[earlier];
            errors.add(entry.value.at, format!("number {number} is taken by `{name}`, at {at}"));
            return;
        }
        self.drafts[index].change(|limit| limit.with_number(number));
    }

    /// Everything under `overrides:`, in either form.
    pub(super) fn overrides(&mut self, entry: &Entry, errors: &mut Errors) {
        match &entry.value.value {
            Value::Map(entries) => entries.iter().for_each(|entry| self.one_override(entry, errors)),
            Value::List(items) => items.iter().for_each(|item| self.override_list_item(item, errors)),
            _ if entry.value.is_null() => {}
            _ => {
                let must_be = format!("must be a mapping, such as `Name:id: {NUMBERS_EXAMPLE}`, or a list");
                refuse::<()>(entry, &must_be, errors);
            }
        }
    }

    /// `Name:id: {burst, count, period}`.
    fn one_override(&mut self, entry: &Entry, errors: &mut Errors) {
        let Key { at, text } = &entry.key;
        let Some((name, id)) = text.split_once(':') else {
            let name = shorten(text);
            errors.add(*at, format!("`{name}` does not say whose: an override is `{name}:id`"));
            return;
        };
        let found = self.find(name, *at, errors);
        let Some(entries) = mapping(entry, NUMBERS_EXAMPLE, errors) else { return };
        let [burst, count, period, strict, algorithm] =
            fields(entries, "an override", ["burst", "count", "period", "strict", "algorithm"], errors);
        let numbers = Numbers { burst, count, period, strict };
        let algorithm = self.algorithm(found, &entry.key, numbers, algorithm, errors);
        if let Some(index) = found {
            self.drafts[index].add_override(id, *at, algorithm, errors);
        }
    }

    /// An override at the top of a file. Without any limits in the file it brings its own.
    pub(super) fn bare_override(&mut self, entry: &Entry, implied: bool, errors: &mut Errors) {
        if implied
            && let Some((name, _)) = entry.key.text.split_once(':')
            && !self.by_name.contains_key(name)
        {
            self.declare(&Key { at: entry.key.at, text: name.to_owned() }, errors);
        }
        self.one_override(entry, errors);
    }

    /// `- Name: {burst, count, period, ids: [{id, comment}, …]}`.
    fn override_list_item(&mut self, item: &Node, errors: &mut Errors) {
        let Value::Map(entries) = &item.value else {
            if !matches!(item.value, Value::Refused) {
                let example = "`- Name: {burst: 20, count: 40, period: 1s, ids: [10.0.0.2]}`";
                errors.add(item.at, format!("an override must be like {example}, not {}", item.quoted()));
            }
            return;
        };
        for entry in entries {
            self.override_for_ids(entry, errors);
        }
    }

    fn override_for_ids(&mut self, entry: &Entry, errors: &mut Errors) {
        let Key { at, text } = &entry.key;
        let found = self.find(text, *at, errors);
        let example = "{burst: 20, count: 40, period: 1s, ids: [10.0.0.2]}";
        let Some(entries) = mapping(entry, example, errors) else { return };
        let [burst, count, period, strict, algorithm, ids] = fields(
            entries,
            "an override",
            ["burst", "count", "period", "strict", "algorithm", "ids"],
            errors,
        );
        let numbers = Numbers { burst, count, period, strict };
        let algorithm = self.algorithm(found, &entry.key, numbers, algorithm, errors);
        let Some(ids) = ids else {
            errors.add(*at, format!("`{}` has no ids: an override says whose it is", shorten(text)));
            return;
        };
        for (id, at) in read_ids(ids, errors) {
            if let Some(index) = found {
                self.drafts[index].add_override(id, at, algorithm, errors);
            }
        }
    }

    fn find(&self, name: &str, at: Position, errors: &mut Errors) -> Option<usize> {
        let found = self.by_name.get(name).copied();
        if found.is_none() {
            // Not worth a suggestion that nobody sees.
            let names = self.drafts.iter().map(|draft| &*draft.name);
            let hint = if errors.is_full() { String::new() } else { did_you_mean(name, names) };
            errors.add(at, format!("there is no limit `{}`{hint}", shorten(name)));
        }
        found
    }

    fn algorithm(
        &self,
        found: Option<usize>,
        owner: &Key,
        numbers: Numbers<'_>,
        named: Option<&Entry>,
        errors: &mut Errors,
    ) -> Option<Algorithm> {
        let draft = found.map(|index| &self.drafts[index]);
        let kind = match named {
            Some(entry) => Kind::read(entry, errors),
            None => draft.and_then(|draft| draft.kind),
        };
        let strict = draft.is_some_and(|draft| draft.strict);
        numbers.algorithm(owner, kind?, strict, errors)
    }

    /// The policy. What is wrong with the whole is reported at the limit that comes later.
    pub(super) fn policy(self, errors: &mut Errors) -> Option<Policy> {
        let places: HashMap<_, _> = self.drafts.iter().map(|draft| (draft.name.clone(), draft.at)).collect();
        let limits = self.drafts.into_iter().map(|draft| draft.limit).collect::<Option<Vec<_>>>()?;
        match Policy::new(limits) {
            Ok(policy) => Some(policy),
            Err(error) => {
                if let PolicyError::SameName { name } | PolicyError::SameBuckets { other: name, .. } = &error
                    && let Some(at) = places.get(name)
                {
                    errors.add(*at, error.to_string());
                }
                None
            }
        }
    }
}

/// What was said about one limit.
struct LimitFields<'a> {
    numbers: Numbers<'a>,
    algorithm: Option<&'a Entry>,
    id: Option<&'a Entry>,
    number: Option<&'a Entry>,
    stats: Option<&'a Entry>,
    on_full: Option<&'a Entry>,
    on_store_failure: Option<&'a Entry>,
}

impl Draft {
    fn change(&mut self, change: impl FnOnce(Limit) -> Limit) {
        self.limit = self.limit.take().map(change);
    }

    fn fill(&mut self, key: &Key, fields: &LimitFields<'_>, errors: &mut Errors) {
        let formats = IdFormat::ALL.map(|format| (format.name(), format));
        if let Some(format) = fields.id.and_then(|entry| choice(entry, &formats, errors)) {
            self.change(|limit| limit.with_ids(format));
        }
        if let Some(stats) = fields.stats.and_then(|entry| flag(entry, errors)) {
            self.change(|limit| limit.with_stats(stats));
        }
        let answers = [("deny", OnFull::Deny), ("allow", OnFull::Allow)];
        if let Some(answer) = fields.on_full.and_then(|entry| choice(entry, &answers, errors)) {
            self.change(|limit| limit.with_on_full(answer));
        }
        let answers = [
            ("allow", OnStoreFailure::Allow),
            ("deny", OnStoreFailure::Deny),
            ("local", OnStoreFailure::Local),
        ];
        if let Some(answer) = fields.on_store_failure.and_then(|entry| choice(entry, &answers, errors)) {
            self.change(|limit| limit.with_on_store_failure(answer));
        }
        if let Some(entry) = fields.algorithm {
            self.kind = Kind::read(entry, errors);
        }
        self.fill_numbers(key, &fields.numbers, errors);
    }

    fn fill_numbers(&mut self, key: &Key, numbers: &Numbers<'_>, errors: &mut Errors) {
        let Some(kind) = self.kind else { return };
        if numbers.given() {
            let algorithm = numbers.algorithm(key, kind, false, errors);
            if let Some(algorithm) = algorithm {
                self.change(|limit| limit.with_default(algorithm));
            }
            self.strict = matches!(algorithm, Some(Algorithm::SmoothedRate(limit)) if limit.strict());
            return;
        }
        numbers.refuse_others(kind, errors);
        self.strict = numbers.strict.and_then(|entry| flag(entry, errors)).unwrap_or_default();
    }

    /// `algorithm` is `None` if it was wrong; the id is then looked at all the same.
    fn add_override(&mut self, id: &str, at: Position, algorithm: Option<Algorithm>, errors: &mut Errors) {
        let Some(limit) = &mut self.limit else { return };
        let canonical = match limit.ids().canonical(id.as_bytes()) {
            Ok(canonical) => canonical,
            Err(error) => return errors.add(at, format!("`{}`: {error}", self.name)),
        };
        if let Some(earlier) = self.overridden.get(&*canonical) {
            let id = shorten(&String::from_utf8_lossy(&canonical));
            return errors
                .add(at, format!("`{}` has an override for `{id}` already, at {earlier}", self.name));
        }
        self.overridden.insert(canonical.into_owned(), at);
        if let Some(algorithm) = algorithm
            && let Err(error) = limit.add_override(id.as_bytes(), algorithm)
        {
            errors.add(at, error.to_string());
        }
    }
}

/// The ids of a list form, each a plain text or `{id, comment}`.
fn read_ids<'a>(entry: &'a Entry, errors: &mut Errors) -> Vec<(&'a str, Position)> {
    let must_be = "must be a list of ids, such as [10.0.0.2]";
    let Value::List(items) = &entry.value.value else {
        refuse::<()>(entry, must_be, errors);
        return Vec::new();
    };
    if items.is_empty() {
        errors.add(entry.value.at, "ids is empty: an override says whose it is");
    }
    items.iter().filter_map(|item| read_id(item, errors)).collect()
}

fn read_id<'a>(item: &'a Node, errors: &mut Errors) -> Option<(&'a str, Position)> {
    let must_be = "must be a text or a number, or {id, comment}";
    match &item.value {
        Value::Scalar { text, .. } => Some((text, item.at)),
        Value::Map(entries) => {
            let [id, comment] = fields(entries, "an id", ["id", "comment"], errors);
            if let Some(comment) = comment
                && literal(&comment.value).is_none()
            {
                refuse::<()>(comment, "must be a text", errors);
            }
            let Some(id) = id else {
                errors.add(item.at, "there is no `id` here: an id is a text, a number, or {id, comment}");
                return None;
            };
            match literal(&id.value) {
                Some(text) => Some((text, id.value_at())),
                None => refuse(id, "must be a text or a number", errors),
            }
        }
        Value::List(_) => {
            errors.add(item.at, format!("an id {must_be}, not {}", item.quoted()));
            None
        }
        Value::Refused => None,
    }
}
