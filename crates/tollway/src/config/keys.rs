//! Reads the sections `keys` and `rewrite`: regular expressions that find the limit of a key.
//!
//! ```yaml
//! keys:
//!   - rewrite:
//!       - { match: 'ip=132\.185\.\d+\.\d+$', replace: 'cust=bbc' }
//!   - { match: '^ws ip=', limit: 22, period: 20s, strict: true }
//!   - { match: '^ws global$', limit: 2500, period: 10s, stats: true }
//!   - { match: '^search ', use: SearchesPerKey }
//!   - { match: '.*', answer: never }
//! ```
//!
//! The rewrites can also stand beside the rules, `keys: { rewrite: […], rules: […] }`, or at the top level of the file.
//! Below a rule they are refused: they would look as if they were applied after that rule.

use std::sync::Arc;

use tollway_core::algorithm::SmoothedRate;
use tollway_core::{KeyLimit, KeyRule, Keys};

use super::algorithm::RATE_MAX;
use super::errors::{ErrorCollector, Position};
use super::fields::{YamlFields, choice, decimal_number, duration, flag, refuse, scalar_text};
use super::limits::LimitsDraft;
use super::store::{read_on_full, read_on_store_failure};
use super::yaml::{YamlEntry, YamlNode, YamlValue};
use crate::patterns::{PATTERNS_SIZE_MAX, Pattern, Patterns, REWRITES_MAX, RULES_MAX, Rewrite};

/// The fields that a rule for keys can have.
const RULE_FIELDS: [&str; 10] = [
    "match",
    "limit",
    "period",
    "strict",
    "stats",
    "on_full",
    "on_store_failure",
    "local_share",
    "answer",
    "use",
];
/// The fields that define a rate. They do not go together with `answer` or `use`.
const RATE_FIELDS: [&str; 6] = ["limit", "period", "strict", "on_full", "on_store_failure", "local_share"];

const RULE_EXAMPLE: &str = "{match: '^ws ip=', limit: 22, period: 20s}";
const REWRITE_EXAMPLE: &str = "{match: 'ip=10\\.0\\..*', replace: 'cust=office'}";

/// Reads the rules for keys, and returns them with their patterns.
pub(super) fn read(
    section: Option<&YamlEntry>,
    rewrite: Option<&YamlEntry>,
    limits: &LimitsDraft,
    errors: &mut ErrorCollector,
) -> Option<(Keys, Arc<Patterns>)> {
    let mut draft = KeyRuleDraft {
        limits,
        rewrite_at: None,
        size: 0,
        rewrites: Vec::new(),
        patterns: Vec::new(),
        rules: Vec::new(),
    };
    if let Some(entry) = rewrite {
        draft.rewrites(entry, errors);
    }
    if let Some(entry) = section {
        draft.section(entry, errors);
    }
    if draft.rules.len() > RULES_MAX || draft.size > PATTERNS_SIZE_MAX {
        return None;
    }
    let at = section.or(rewrite).map_or(Position::START, |entry| entry.key.at);
    let patterns = Patterns::new(draft.rewrites, draft.patterns);
    let patterns = Arc::new(patterns.map_err(|error| errors.add(at, error.to_string())).ok()?);
    Some((Keys::new(Arc::clone(&patterns) as _, draft.rules), patterns))
}

/// The rules and rewrites that were read so far. Those with a mistake are left out: the mistake is reported, so the
/// file as a whole is refused anyway.
struct KeyRuleDraft<'a> {
    limits: &'a LimitsDraft,
    /// The position of the rewrites in the file, if there were any.
    rewrite_at: Option<Position>,
    /// The memory that the compiled patterns take, in bytes.
    size: usize,
    rewrites: Vec<Rewrite>,
    patterns: Vec<Pattern>,
    rules: Vec<KeyRule>,
}

impl KeyRuleDraft<'_> {
    /// Reads everything under `keys:`, which is a list of rules or a mapping.
    fn section(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        match &entry.value.value {
            YamlValue::List(items) => self.items(items, errors),
            YamlValue::Map(entries) => {
                let fields = YamlFields::read(entries, "keys", &["rewrite", "rules"], errors);
                if let Some(entry) = fields.get("rewrite") {
                    self.rewrites(entry, errors);
                }
                match fields.get("rules").map(|entry| (entry, &entry.value.value)) {
                    Some((_, YamlValue::List(items))) => {
                        items.iter().for_each(|item| self.rule(item, errors))
                    }
                    Some((entry, _)) if !entry.value.is_null() => refuse_list(entry, RULE_EXAMPLE, errors),
                    _ => {}
                }
            }
            _ if entry.value.is_null() => {}
            _ => refuse_list(entry, RULE_EXAMPLE, errors),
        }
        if self.rules.len() > RULES_MAX {
            errors.add(entry.key.at, format!("a file can have at most {RULES_MAX} rules for keys"));
        }
    }

    /// Reads a list of rules, which may start with `rewrite: […]`.
    fn items(&mut self, items: &[YamlNode], errors: &mut ErrorCollector) {
        for (index, item) in items.iter().enumerate() {
            let Some(entry) = rewrites_of(item) else {
                self.rule(item, errors);
                continue;
            };
            if items[..index].iter().any(|item| rewrites_of(item).is_none()) {
                let why = "above the rules, because keys are rewritten before they are matched";
                errors.add(entry.key.at, format!("rewrite is below a rule; move it {why}"));
            }
            if let YamlValue::Map(entries) = &item.value {
                YamlFields::read(entries, "this item", &["rewrite"], errors);
            }
            self.rewrites(entry, errors);
        }
    }

    /// Reads a list of rewrites, `rewrite: [{match, replace}, …]`.
    fn rewrites(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        if let Some(earlier) = self.rewrite_at.replace(entry.key.at) {
            let (earlier, belongs) = (errors.place(earlier), "keep one, above the rules of \"keys\"");
            errors.add(entry.key.at, format!("rewrite is given twice, first at {earlier}; {belongs}"));
        }
        match &entry.value.value {
            YamlValue::List(items) if items.len() > REWRITES_MAX => {
                errors.add(entry.key.at, format!("a file can have at most {REWRITES_MAX} rewrites"));
            }
            YamlValue::List(items) => items.iter().for_each(|item| self.rewrite(item, errors)),
            _ if entry.value.is_null() => {}
            _ => refuse_list(entry, REWRITE_EXAMPLE, errors),
        }
    }

    fn rewrite(&mut self, item: &YamlNode, errors: &mut ErrorCollector) {
        let Some(entries) = entries_of(item, "a rewrite", REWRITE_EXAMPLE, errors) else { return };
        let fields = YamlFields::read(entries, "a rewrite", &["match", "replace"], errors);
        let pattern = self.pattern(item, "a rewrite", &fields, errors);
        let Some(entry) = fields.get("replace") else {
            errors.add(item.at, format!("a rewrite needs \"replace\", as in {REWRITE_EXAMPLE}"));
            return;
        };
        let Some(replacement) = scalar_text(&entry.value).filter(|_| !entry.value.is_absent()) else {
            refuse::<()>(entry, "must be text, such as 'cust=$1'", errors);
            return;
        };
        let Some(pattern) = pattern else { return };
        match Rewrite::new(pattern, replacement) {
            Ok(rewrite) => self.rewrites.push(rewrite),
            Err(error) => errors.add(entry.value.at, format!("{} {error}", entry.key.quoted())),
        }
    }

    fn rule(&mut self, item: &YamlNode, errors: &mut ErrorCollector) {
        let Some(entries) = entries_of(item, "a rule", RULE_EXAMPLE, errors) else { return };
        let fields = YamlFields::read(entries, "a rule", &RULE_FIELDS, errors);
        let pattern = self.pattern(item, "a rule", &fields, errors);
        let stats = fields.get("stats").map_or(Some(false), |entry| flag(entry, errors));
        let limit = self.limit(item, &fields, errors);
        if let (Some(pattern), Some(stats), Some(limit)) = (pattern, stats, limit) {
            self.patterns.push(pattern);
            self.rules.push(KeyRule { limit, stats });
        }
    }

    /// Reads and compiles the pattern in `match`. Once all patterns together are too large, no more are compiled: the
    /// file is refused anyway, and compiling costs time and memory.
    fn pattern(
        &mut self,
        item: &YamlNode,
        whose: &str,
        fields: &YamlFields<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<Pattern> {
        let Some(entry) = fields.get("match") else {
            errors
                .add(item.at, format!("{whose} needs \"match\", a regular expression such as '^ws global$'"));
            return None;
        };
        let Some(text) = scalar_text(&entry.value).filter(|_| !entry.value.is_absent()) else {
            return refuse(entry, "must be a regular expression, such as '^ws global$'", errors);
        };
        if self.size > PATTERNS_SIZE_MAX || self.rules.len() > RULES_MAX || errors.is_full() {
            return None;
        }
        let pattern = Pattern::new(text);
        let pattern = pattern
            .map_err(|error| {
                errors.add(entry.value.at, format!("{} {}", entry.key.quoted(), error.on_one_line()))
            })
            .ok()?;
        self.size += pattern.size();
        if self.size > PATTERNS_SIZE_MAX {
            let most = PATTERNS_SIZE_MAX >> 20;
            errors
                .add(entry.value.at, format!("the patterns up to here take more than {most} MiB when compiled; use fewer or simpler ones"));
            return None;
        }
        Some(pattern)
    }

    /// Reads the limit of a rule: a rate, `answer: never` or `use: NAME`, exactly one of them.
    fn limit(
        &self,
        item: &YamlNode,
        fields: &YamlFields<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<KeyLimit> {
        const ONE_OF: &str = "\"limit\" and \"period\", or \"answer: never\", or \"use: NAME\"";
        let rate = fields.get("limit").or_else(|| fields.get("period"));
        let (answer, named) = (fields.get("answer"), fields.get("use"));
        let given = [rate, answer, named].into_iter().flatten();
        let Some(last) = given.clone().max_by_key(|entry| entry.key.at) else {
            errors.add(item.at, format!("a rule needs one of these: {ONE_OF}"));
            return None;
        };
        if given.count() > 1 {
            errors.add(last.key.at, format!("a rule can have only one of these: {ONE_OF}"));
        }
        if rate.is_some() {
            return own_rate(item, fields, errors);
        }
        for field in RATE_FIELDS.iter().filter_map(|field| fields.get(field)) {
            let message = format!("\"{}\" goes with \"limit\" and \"period\"", field.key.quoted());
            errors.add(field.key.at, format!("{message}, but this rule has \"{}\"", last.key.quoted()));
        }
        match (answer, named) {
            (Some(entry), _) => choice(entry, &[("never", KeyLimit::Never)], errors),
            (None, Some(entry)) => self.named_limit(entry, errors),
            (None, None) => None,
        }
    }

    fn named_limit(&self, entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<KeyLimit> {
        let Some(name) = scalar_text(&entry.value).filter(|name| !name.is_empty()) else {
            return refuse(entry, "must be the name of a limit", errors);
        };
        let limit = self.limits.find(name, entry.value.at, errors)?;
        Some(KeyLimit::Use { limit })
    }
}

/// Returns the rewrites in a list item, or `None` if the item is a rule.
fn rewrites_of(item: &YamlNode) -> Option<&YamlEntry> {
    let YamlValue::Map(entries) = &item.value else { return None };
    entries.iter().find(|entry| entry.key.text == "rewrite")
}

/// Reads a rate that is defined in the rule itself.
fn own_rate(item: &YamlNode, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<KeyLimit> {
    let [limit, period, strict, ..] = RATE_FIELDS.map(|field| fields.get(field));
    if limit.is_none() || period.is_none() {
        let (has, lacks) = if limit.is_some() { ("limit", "period") } else { ("period", "limit") };
        errors.add(item.at, format!("a rule with \"{has}\" needs \"{lacks}\" too, as in {RULE_EXAMPLE}"));
    }
    // All fields are read before the first `?`, so that one mistake does not hide the next.
    let rate = limit.and_then(|entry| decimal_number(entry, RATE_MAX, errors));
    let span = period.and_then(|entry| duration(entry, errors));
    let strict = strict.map_or(Some(false), |entry| flag(entry, errors));
    let on_full = read_on_full(fields, errors);
    let on_store_failure = read_on_store_failure(fields, "rule", errors);
    match SmoothedRate::new(rate?, span?.into(), strict?) {
        Ok(limit) => Some(KeyLimit::Rate { limit, on_full: on_full?, on_store_failure: on_store_failure? }),
        Err(error) => {
            errors.add(period.map_or(item.at, |entry| entry.value.at), error.to_string());
            None
        }
    }
}

fn entries_of<'a>(
    item: &'a YamlNode,
    what: &str,
    example: &str,
    errors: &mut ErrorCollector,
) -> Option<&'a [YamlEntry]> {
    match &item.value {
        YamlValue::Map(entries) => Some(entries),
        YamlValue::Refused => None,
        _ => {
            errors
                .add(item.at, format!("{what} must be a mapping, such as {example}, not {}", item.quoted()));
            None
        }
    }
}

fn refuse_list(entry: &YamlEntry, example: &str, errors: &mut ErrorCollector) {
    refuse::<()>(entry, &format!("must be a list, such as [{example}]"), errors);
}
