//! Reads the section `limits`, and builds the policy from its limits.
//!
//! ```yaml
//! limits:
//!   NewOrdersPerAccount: { burst: 300, count: 300, period: 180m, id: regId }
//! ```
//!
//! A limit with a mistake keeps its name in the draft, so that its overrides are not reported as well.

use std::collections::HashMap;

use tollway_core::{IdFormat, Ipv6Prefix, Limit, LimitError, Policy, PolicyError, RateSpec};

use super::algorithm::{AlgorithmFields, AlgorithmKind, InheritedFields};
use super::errors::{ErrorCollector, Position};
use super::fields::{YamlFields, choice, mapping, scalar_text, whole_number};
use super::store::{read_after_crash, read_on_full, read_on_store_failure};
use super::yaml::{YamlEntry, YamlKey, shorten};

/// The example of a limit or an override that error messages show.
pub(super) const NUMBERS_EXAMPLE: &str = "{burst: 20, count: 20, period: 1s}";

/// The fields that a limit can have.
const FIELDS: [&str; 14] = [
    "burst",
    "count",
    "period",
    "offset",
    "rate",
    "strict",
    "algorithm",
    "id",
    "ipv6_prefix",
    "number",
    "on_full",
    "on_store_failure",
    "local_share",
    "after_crash",
];

/// The limits that were read so far.
#[derive(Default)]
pub(super) struct LimitsDraft {
    pub(super) drafts: Vec<LimitDraft>,
    pub(super) by_name: HashMap<String, usize>,
    numbers: HashMap<u64, usize>,
}

/// A limit that is being read, and may still turn out to be wrong.
pub(super) struct LimitDraft {
    pub(super) name: String,
    at: Position,
    /// The limit; `None` if its name is not valid.
    pub(super) limit: Option<Limit>,
    /// The algorithm; `None` if the field `algorithm` is not valid.
    pub(super) kind: Option<AlgorithmKind>,
    pub(super) inherited: InheritedFields,
    /// The position of the override of each canonical id.
    pub(super) overridden: HashMap<Vec<u8>, Position>,
}

impl LimitsDraft {
    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Reads everything under `limits:`.
    pub(super) fn section(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        if entry.value.is_null() {
            return;
        }
        let example = format!("\"Name: {NUMBERS_EXAMPLE}\"");
        for limit in mapping(entry, &example, errors).unwrap_or_default() {
            self.limit(limit, errors);
        }
    }

    /// Reads one limit, `Name: {burst, count, period, …}`.
    pub(super) fn limit(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        let Some(index) = self.declare(&entry.key, errors) else { return };
        // Somebody who writes `Searches: 100/h` learns the form that is nearest to it.
        let rate = scalar_text(&entry.value).and_then(|text| text.parse::<RateSpec>().ok());
        let example = rate.map_or_else(|| NUMBERS_EXAMPLE.to_owned(), |rate| format!("{{rate: {rate}}}"));
        let Some(entries) = mapping(entry, &example, errors) else {
            self.drafts[index].kind = None;
            return;
        };
        let fields = YamlFields::read(entries, "a limit", &FIELDS, errors);
        if let Some(number) = fields.get("number") {
            self.number(index, number, errors);
        }
        self.drafts[index].fill(&entry.key, &fields, errors);
    }

    /// Adds an empty limit with this name and returns its index; a second limit with the same name is reported.
    pub(super) fn declare(&mut self, key: &YamlKey, errors: &mut ErrorCollector) -> Option<usize> {
        if let Some(index) = self.by_name.get(&key.text) {
            let (name, earlier) = (key.quoted(), errors.place(self.drafts[*index].at));
            errors.add(key.at, format!("limit \"{name}\" is given twice, first at {earlier}"));
            return None;
        }
        let limit = Limit::new(&key.text);
        if limit.is_err() {
            errors.add(key.at, LimitError::Name { name: key.quoted() }.to_string());
        }
        let index = self.drafts.len();
        self.by_name.insert(key.text.clone(), index);
        self.drafts.push(LimitDraft {
            name: key.text.clone(),
            at: key.at,
            limit: limit.ok(),
            kind: Some(AlgorithmKind::default()),
            inherited: InheritedFields::default(),
            overridden: HashMap::new(),
        });
        Some(index)
    }

    fn number(&mut self, index: usize, entry: &YamlEntry, errors: &mut ErrorCollector) {
        let Some(number) = whole_number(entry, 0..=u64::MAX, errors) else { return };
        if let Some(earlier) = self.numbers.insert(number, index) {
            let (name, at) = (shorten(&self.drafts[earlier].name), errors.place(self.drafts[earlier].at));
            errors
                .add(entry.value.at, format!("number {number} is already used by limit \"{name}\", at {at}"));
            return;
        }
        self.drafts[index].change(|limit| limit.with_number(number));
    }

    /// Builds the policy. A conflict between two limits is reported at the later one.
    pub(super) fn policy(self, errors: &mut ErrorCollector) -> Option<Policy> {
        let places: HashMap<_, _> = self.drafts.iter().map(|draft| (draft.name.clone(), draft.at)).collect();
        let limits = self.drafts.into_iter().map(|draft| draft.limit).collect::<Option<Vec<_>>>()?;
        let report = |error: PolicyError| {
            let later = match &error {
                PolicyError::SameName { name } | PolicyError::SameBuckets { other: name, .. } => {
                    places.get(name)
                }
                _ => None,
            };
            errors.add(later.copied().unwrap_or(Position::START), error.to_string());
        };
        Policy::new(limits).map_err(report).ok()
    }
}

/// Reads `id`, and the `ipv6_prefix` that can go with `id: ip`. Returns `None` if either is wrong.
fn read_id_format(fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<IdFormat> {
    let format = fields.get("id");
    let format = format.map_or(Some(IdFormat::Any), |entry| choice(entry, &IdFormat::NAMES, errors));
    let Some(entry) = fields.get("ipv6_prefix") else { return format };
    if !matches!(format, None | Some(IdFormat::Ip(_))) {
        errors.add(entry.key.at, "ipv6_prefix needs \"id: ip\", which this limit does not have");
    }
    let bits = whole_number(entry, 1..=128, errors)?;
    format.and(Ipv6Prefix::new(u8::try_from(bits).ok()?)).map(IdFormat::Ip)
}

impl LimitDraft {
    fn change(&mut self, change: impl FnOnce(Limit) -> Limit) {
        self.limit = self.limit.take().map(change);
    }

    fn fill(&mut self, key: &YamlKey, fields: &YamlFields<'_>, errors: &mut ErrorCollector) {
        if let Some(format) = read_id_format(fields, errors) {
            self.change(|limit| limit.with_ids(format));
        }
        if let Some(answer) = read_on_full(fields, errors) {
            self.change(|limit| limit.with_on_full(answer));
        }
        if let Some(answer) = read_on_store_failure(fields, "limit", errors) {
            self.change(|limit| limit.with_on_store_failure(answer));
        }
        if let Some(entry) = fields.get("algorithm") {
            self.kind = AlgorithmKind::read(entry, errors);
        }
        if let Some(after_crash) = read_after_crash(fields, self.kind, errors) {
            self.change(|limit| limit.with_after_crash(after_crash));
        }
        self.fill_numbers(key, &AlgorithmFields::of(fields), errors);
    }

    fn fill_numbers(&mut self, key: &YamlKey, numbers: &AlgorithmFields<'_>, errors: &mut ErrorCollector) {
        let Some(kind) = self.kind else { return };
        if numbers.any_given() {
            if let Some(algorithm) = numbers.algorithm(key, kind, InheritedFields::default(), errors) {
                self.inherited = InheritedFields::of(&algorithm);
                self.change(|limit| limit.with_default(algorithm));
            }
            return;
        }
        numbers.report_unsupported(kind, errors);
        self.inherited = numbers.inherited(InheritedFields::default(), errors).unwrap_or_default();
    }
}
