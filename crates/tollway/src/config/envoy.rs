//! Reads the section `envoy`: the configuration files of Envoy's rate limit service, as they are.
//!
//! ```yaml
//! envoy: [shop.yaml, search.yaml]
//! ```
//!
//! A file has one domain. It can also stand in the list itself, or be the whole configuration:
//!
//! ```yaml
//! domain: shop
//! descriptors:
//!   - { key: account, rate_limit: { unit: minute, requests_per_unit: 30 } }
//! ```
//!
//! In a `rate_limit`, `unit` can be any duration, and `algorithm`, `burst`, `on_full`, `on_store_failure` and
//! `local_share` are as in a limit of ours.

use std::collections::HashMap;

use tollway_core::Limit;
use tollway_core::descriptor::{Descriptor, DescriptorLimit, DescriptorTree, RateUnit};

use super::OtherFiles;
use super::algorithm::{AlgorithmKind, InheritedFields};
use super::errors::{ConfigError, ConfigErrors, ErrorCollector, Position};
use super::fields::{YamlFields, duration, go_flag, mapping, refuse, scalar_text, whole_number};
use super::store::{read_on_full, read_on_store_failure};
use super::yaml::{self, YamlEntry, YamlKey, YamlNode, YamlValue, shorten};

const SECTION_FIELDS: [&str; 4] = ["configs", "merge_domains", "quota_mode", "shadow_mode"];
/// The names at the top level of a file.
pub(super) const DOMAIN_FIELDS: [&str; 2] = ["domain", "descriptors"];
const DESCRIPTOR_FIELDS: [&str; 9] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "share_threshold",
    "detailed_metric",
    "value_to_metric",
];
const RATE_LIMIT_FIELDS: [&str; 10] = [
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "algorithm",
    "burst",
    "on_full",
    "on_store_failure",
    "local_share",
];

const SECTION_EXAMPLE: &str = "a file, such as shop.yaml, or a list of files";
const DOMAIN_EXAMPLE: &str = "{domain: shop, descriptors: [{key: account}]}";
const DESCRIPTOR_EXAMPLE: &str = "{key: account, rate_limit: {unit: minute, requests_per_unit: 30}}";

/// A configuration file of Envoy's rate limit service, as it is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnvoyFile {
    /// The domain that the file is for.
    pub domain: String,
    /// The descriptors, in the order of the file.
    pub descriptors: Vec<Descriptor>,
    /// The line and the column of each descriptor, in the order of the file: each is before those below it.
    pub positions: Vec<(usize, usize)>,
    /// Warnings about fields that have no effect.
    pub warnings: Vec<ConfigError>,
}

impl EnvoyFile {
    /// Parses the text of a file. Errors call it `source`.
    pub fn parse(text: &str, source: &str) -> Result<Self, ConfigErrors> {
        let (mut errors, mut draft) = (ErrorCollector::new(source), EnvoyDraft::default());
        match yaml::parse(text, 0, &mut errors) {
            Some(YamlNode { value: YamlValue::Map(entries), at }) => draft.domain(&entries, at, &mut errors),
            Some(node) => {
                errors.add(node.at, format!("the file must be a mapping, such as {DOMAIN_EXAMPLE}"))
            }
            None if errors.is_empty() => {
                errors.add(Position::START, format!("the file is empty; it must be like {DOMAIN_EXAMPLE}"));
            }
            None => {}
        }
        let EnvoyDraft { mut descriptors, positions, warnings, .. } = draft;
        let file = descriptors.pop();
        errors.finish(file.map(|(domain, descriptors)| Self { domain, descriptors, positions, warnings }))
    }
}

/// The domains that were read so far.
#[derive(Default)]
pub(super) struct EnvoyDraft {
    tree: DescriptorTree,
    /// The descriptors of each domain, for the tree.
    descriptors: Vec<(String, Vec<Descriptor>)>,
    /// The line and the column of each descriptor.
    positions: Vec<(usize, usize)>,
    domains: HashMap<String, DomainDraft>,
    merges_domains: bool,
    pub(super) warnings: Vec<ConfigError>,
}

/// A domain with the positions of its name and of the descriptors at its top.
struct DomainDraft {
    at: Position,
    seen: HashMap<String, Position>,
}

/// A place in the tree: the domain, and the keys and values that lead there.
struct Path<'a> {
    domain: &'a str,
    entries: Vec<(&'a str, &'a str)>,
}

impl EnvoyDraft {
    pub(super) fn tree(mut self) -> DescriptorTree {
        for (domain, descriptors) in self.descriptors {
            self.tree.add_domain(&domain, descriptors);
        }
        self.tree
    }

    /// Reads a domain whose fields are at the top level of a file, beside our sections.
    pub(super) fn top_level(&mut self, entries: &[YamlEntry], at: Position, errors: &mut ErrorCollector) {
        let fields = DOMAIN_FIELDS.map(|name| entries.iter().find(|entry| entry.key.text == name));
        self.domain_fields(fields, at, errors);
    }

    /// Reads everything under `envoy:`.
    pub(super) fn section(
        &mut self,
        entry: &YamlEntry,
        files: &mut OtherFiles<'_>,
        errors: &mut ErrorCollector,
    ) {
        match &entry.value.value {
            YamlValue::Map(entries)
                if !entries.iter().any(|entry| DOMAIN_FIELDS.contains(&&*entry.key.text)) =>
            {
                let fields = YamlFields::read(entries, "envoy", &SECTION_FIELDS, errors);
                let mut is_set =
                    |name| fields.get(name).and_then(|entry| go_flag(entry, errors)) == Some(true);
                self.merges_domains = is_set("merge_domains");
                (self.tree.quota_mode, self.tree.shadow_mode) = (is_set("quota_mode"), is_set("shadow_mode"));
                match fields.get("configs") {
                    Some(configs) => self.configs(configs, files, errors),
                    None => errors
                        .add(entry.key.at, "envoy has no configs; add them, such as configs: [shop.yaml]"),
                }
            }
            _ => self.configs(entry, files, errors),
        }
    }

    /// Reads one configuration, or a list of them.
    fn configs(&mut self, entry: &YamlEntry, files: &mut OtherFiles<'_>, errors: &mut ErrorCollector) {
        match &entry.value.value {
            YamlValue::List(items) => {
                items.iter().for_each(|item| self.config(&entry.key, item, files, errors))
            }
            _ => self.config(&entry.key, &entry.value, files, errors),
        }
    }

    fn config(
        &mut self,
        key: &YamlKey,
        node: &YamlNode,
        files: &mut OtherFiles<'_>,
        errors: &mut ErrorCollector,
    ) {
        match &node.value {
            YamlValue::Map(entries) => self.domain(entries, node.at, errors),
            YamlValue::Scalar { .. } if !node.is_null() => {
                let Some(document) = files.read(key, node, errors) else { return };
                match &document.value {
                    YamlValue::Map(entries) => self.domain(entries, document.at, errors),
                    _ => {
                        let found = document.quoted();
                        errors.add(
                            document.at,
                            format!("the file must be a mapping, such as {DOMAIN_EXAMPLE}, not {found}"),
                        );
                    }
                }
            }
            YamlValue::Refused => {}
            _ => errors
                .add(node.at, format!("{} must be {SECTION_EXAMPLE}, not {}", key.quoted(), node.quoted())),
        }
    }

    /// Reads a domain, the mapping `{domain, descriptors}`.
    fn domain(&mut self, entries: &[YamlEntry], at: Position, errors: &mut ErrorCollector) {
        let fields =
            YamlFields::read(entries, "a file of Envoy's rate limit service", &DOMAIN_FIELDS, errors);
        self.domain_fields(DOMAIN_FIELDS.map(|name| fields.get(name)), at, errors);
    }

    fn domain_fields(
        &mut self,
        [domain, descriptors]: [Option<&YamlEntry>; 2],
        at: Position,
        errors: &mut ErrorCollector,
    ) {
        let Some(entry) = domain else {
            errors.add(at, "the domain is missing; add one, such as domain: shop");
            return;
        };
        let Some(name) = text(entry, errors) else { return };
        let (mut seen, mut is_twice) = (HashMap::new(), false);
        if let Some(earlier) = self.domains.remove(name) {
            if self.merges_domains {
                seen = earlier.seen;
            } else {
                is_twice = true;
                let (name, place) = (shorten(name), errors.place(earlier.at));
                let twice = format!("domain \"{name}\" is given twice, first at {place}");
                errors.add(entry.value.at, format!("{twice}; set merge_domains: true to merge them"));
            }
        }
        let mut path = Path { domain: name, entries: Vec::new() };
        let descriptors = descriptors
            .map(|entry| self.descriptors(entry, &mut path, &mut seen, errors))
            .unwrap_or_default();
        // A mistake elsewhere may be the reason.
        if !descriptors.iter().any(has_limit) && errors.is_empty() {
            let message = format!(
                "domain \"{}\" has no rate_limit, so it would limit nobody; the file was probably cut off. Add \
                 descriptors, such as [{DESCRIPTOR_EXAMPLE}], or remove the domain",
                shorten(name)
            );
            errors.add(entry.value.at, message);
        }
        // The limits of both would have the same names, which would be a second error about the same mistake.
        if !is_twice {
            self.descriptors.push((name.to_owned(), descriptors));
        }
        self.domains.insert(name.to_owned(), DomainDraft { at: entry.value.at, seen });
    }

    /// Reads a list of descriptors. `seen` has those that are at the same place already.
    fn descriptors<'a>(
        &mut self,
        entry: &'a YamlEntry,
        path: &mut Path<'a>,
        seen: &mut HashMap<String, Position>,
        errors: &mut ErrorCollector,
    ) -> Vec<Descriptor> {
        let YamlValue::List(items) = &entry.value.value else {
            if !entry.value.is_null() {
                refuse::<()>(entry, &format!("must be a list, such as [{DESCRIPTOR_EXAMPLE}]"), errors);
            }
            return Vec::new();
        };
        items.iter().filter_map(|item| self.descriptor(item, path, seen, errors)).collect()
    }

    fn descriptor<'a>(
        &mut self,
        node: &'a YamlNode,
        path: &mut Path<'a>,
        seen: &mut HashMap<String, Position>,
        errors: &mut ErrorCollector,
    ) -> Option<Descriptor> {
        let YamlValue::Map(entries) = &node.value else {
            let found = node.quoted();
            errors.add(
                node.at,
                format!("a descriptor must be a mapping, such as {DESCRIPTOR_EXAMPLE}, not {found}"),
            );
            return None;
        };
        let fields = YamlFields::read(entries, "a descriptor", &DESCRIPTOR_FIELDS, errors);
        let Some(key) = fields.get("key") else {
            errors.add(node.at, format!("the descriptor has no key; a descriptor is {DESCRIPTOR_EXAMPLE}"));
            return None;
        };
        let key = text(key, errors)?;
        let value = match fields.get("value") {
            Some(entry) if !entry.value.is_null() => {
                scalar_text(&entry.value).or_else(|| refuse(entry, "must be a text", errors))?
            }
            _ => "",
        };
        // The service that these files are for joins them the same way, and refuses what it cannot tell apart.
        let joined = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        if let Some(earlier) = seen.get(&joined) {
            let place = errors.place(*earlier);
            errors.add(
                node.at,
                format!("descriptor \"{}\" is given twice, first at {place}", shorten(&joined)),
            );
            return None;
        }
        seen.insert(joined, node.at);
        self.positions.push((node.at.line, node.at.column));
        path.entries.push((key, value));
        let descriptor = self.filled(Descriptor::new(key, value), &fields, path, errors);
        path.entries.pop();
        Some(descriptor)
    }

    fn filled<'a>(
        &mut self,
        mut descriptor: Descriptor,
        fields: &YamlFields<'a>,
        path: &mut Path<'a>,
        errors: &mut ErrorCollector,
    ) -> Descriptor {
        let mut is_set = |name| fields.get(name).and_then(|entry| go_flag(entry, errors)) == Some(true);
        let (shadow_mode, quota_mode) = (is_set("shadow_mode"), is_set("quota_mode"));
        descriptor.shares_threshold = is_set("share_threshold");
        descriptor.detailed_metric = is_set("detailed_metric");
        descriptor.value_to_metric = is_set("value_to_metric");
        if let Some(entry) = fields.get("share_threshold").filter(|_| descriptor.shares_threshold)
            && !descriptor.value.contains('*')
        {
            errors.add(
                entry.key.at,
                "share_threshold needs a value with a \"*\", which this descriptor does not have",
            );
        }
        if let Some(entry) = fields.get("rate_limit").filter(|entry| !entry.value.is_null())
            && let Some((shown, limit)) = self.rate_limit(entry, path, errors)
        {
            descriptor.shown = Some(DescriptorLimit { shadow_mode, quota_mode, ..shown });
            descriptor.limit = limit;
        }
        if let Some(entry) = fields.get("descriptors") {
            descriptor.descriptors = self.descriptors(entry, path, &mut HashMap::new(), errors);
        }
        descriptor
    }

    /// Reads `rate_limit: {unit, requests_per_unit, …}`.
    fn rate_limit(
        &mut self,
        entry: &YamlEntry,
        path: &Path<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<(DescriptorLimit, Option<Limit>)> {
        let entries = mapping(entry, "{unit: minute, requests_per_unit: 30}", errors)?;
        let fields = YamlFields::read(entries, "a rate_limit", &RATE_LIMIT_FIELDS, errors);
        let name = fields.get("name").filter(|entry| !entry.value.is_null());
        let name = name.map_or(Some(""), |entry| text(entry, errors));
        let replaces =
            fields.get("replaces").map_or(Some(Vec::new()), |entry| read_replaces(entry, name?, errors));
        let on_full = read_on_full(&fields, errors);
        let on_store_failure = read_on_store_failure(&fields, "rate_limit", errors);
        let unlimited = fields.get("unlimited").map_or(Some(false), |entry| go_flag(entry, errors));
        let shown = DescriptorLimit { name: name?.into(), replaces: replaces?, ..DescriptorLimit::default() };
        if unlimited? {
            if let Some(entry) = fields.get("unit") {
                errors.add(entry.key.at, "a limit that is unlimited has no unit; remove one of them");
            }
            return Some((shown, None));
        }
        let Some(unit) = fields.get("unit") else {
            errors.add(entry.key.at, "rate_limit has no unit; add one, such as unit: minute");
            return None;
        };
        let unit = read_unit(unit, errors);
        let kind = fields.get("algorithm");
        let kind = kind.map_or(Some(AlgorithmKind::FixedWindow), |entry| AlgorithmKind::read(entry, errors));
        let burst = fields.get("burst").map(|entry| whole_number(entry, 1..=u64::MAX, errors));
        let requests = match fields.get("requests_per_unit") {
            Some(entry) => whole_number(entry, 0..=u64::from(u32::MAX), errors),
            None => {
                let message = "rate_limit has no requests_per_unit, so no request is allowed";
                self.warnings.push(errors.warning(entry.key.at, message.to_owned()));
                Some(0)
            }
        };
        let (unit, requests, kind, burst) =
            (unit?, requests?, kind?, burst.map_or(Some(None), |burst| burst.map(Some))?);
        let shown = DescriptorLimit { rate: Some((u32::try_from(requests).ok()?, unit)), ..shown };
        if requests == 0 {
            return Some((shown, None));
        }
        if let Some(entry) = fields.get("burst").filter(|_| kind != AlgorithmKind::TokenBucket) {
            errors
                .add(entry.key.at, "burst needs \"algorithm: token_bucket\", which this limit does not have");
        }
        let numbers =
            kind.with_numbers(burst.unwrap_or(requests), requests, unit.span(), InheritedFields::default());
        let numbers = numbers.map_err(|error| errors.add(entry.key.at, error.to_string())).ok()?;
        let limit = Limit::of_descriptor(path.domain, &path.entries)
            .with_default(numbers)
            .with_on_full(on_full?)
            .with_on_store_failure(on_store_failure?);
        Some((shown, Some(limit)))
    }
}

/// Returns whether a descriptor, or one below it, has a `rate_limit`, which may be `unlimited`.
fn has_limit(descriptor: &Descriptor) -> bool {
    descriptor.shown.is_some() || descriptor.descriptors.iter().any(has_limit)
}

/// Reads a text that must not be empty.
fn text<'a>(entry: &'a YamlEntry, errors: &mut ErrorCollector) -> Option<&'a str> {
    let text = scalar_text(&entry.value).filter(|text| !text.is_empty() && !entry.value.is_null());
    text.or_else(|| refuse(entry, "must be a text", errors))
}

/// Reads the name of a unit in any case, or a duration.
fn read_unit(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<RateUnit> {
    let text = scalar_text(&entry.value).unwrap_or_default();
    if let Some(unit) = RateUnit::named(text) {
        return Some(unit);
    }
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return refuse(
            entry,
            "must be second, minute, hour, day, week, month, year or a duration such as 30s",
            errors,
        );
    }
    duration(entry, errors).map(RateUnit::Span)
}

/// Reads `[{name: old}, …]`.
fn read_replaces(entry: &YamlEntry, own: &str, errors: &mut ErrorCollector) -> Option<Vec<Box<str>>> {
    let YamlValue::List(items) = &entry.value.value else {
        return refuse(entry, "must be a list, such as [{name: old}]", errors);
    };
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        let YamlValue::Map(entries) = &item.value else {
            errors.add(
                item.at,
                format!(
                    "an item of replaces must be a mapping, such as {{name: old}}, not {}",
                    item.quoted()
                ),
            );
            continue;
        };
        let fields = YamlFields::read(entries, "an item of replaces", &["name"], errors);
        match fields.get("name") {
            None => errors.add(item.at, "an item of replaces has no name; it is {name: old}"),
            Some(entry) => match text(entry, errors) {
                Some(name) if name == own => {
                    errors.add(entry.value.at, format!("limit \"{}\" cannot replace itself", shorten(name)))
                }
                Some(name) => names.push(name.into()),
                None => {}
            },
        }
    }
    Some(names)
}
