//! Reads the YAML configuration file into a [`Config`], and reports every mistake in it with its line.
//!
//! ```
//! use tollway::config::Config;
//!
//! let config = Config::parse("limits: { Login: { burst: 5, count: 5, period: 1m } }", "policy.yaml")?;
//! assert!(config.policy.limit("Login").is_some());
//!
//! let errors = Config::parse("limits:\n  Login: { brust: 5, count: 5, period: 1 }", "policy.yaml").unwrap_err();
//! assert_eq!(errors.to_string(), "\
//! policy.yaml:2:12: unknown field \"brust\" (did you mean \"burst\"?)
//! policy.yaml:2:40: period \"1\" has no unit (did you mean \"1s\"?)");
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```
//!
//! Reading never stops at the first mistake: the author of the file sees all of them at once, each with its position.

mod algorithm;
mod describe;
mod did_you_mean;
mod domains;
mod envoy;
mod errors;
mod fields;
mod file_watch;
mod gates;
mod journal;
mod keys;
mod limits;
mod otel;
mod overrides;
mod policy_text;
mod rules;
mod store;
mod watch;
mod yaml;

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollway_core::Policy;

#[cfg(feature = "journal")]
use crate::journal::JournalSettings;
use crate::patterns::Patterns;
use crate::store::memory::{MAX_BUCKETS, MemoryBounds};
use envoy::EnvoyDraft;
use errors::{ErrorCollector, Position};
use fields::{scalar_text, unknown_field, whole_number};
use gates::AccessReader;
use limits::LimitsDraft;
use rules::RulesDraft;
use yaml::{YamlEntry, YamlKey, YamlNode, YamlValue};

pub use describe::{algorithm_numbers, describe, describe_algorithm, domain_numbers};
pub use envoy::EnvoyFile;
pub use errors::{ConfigError, ConfigErrors, NamedFile};
pub use file_watch::{ContentWatch, FileWatch};
pub use gates::{
    GateAccess, GateAddressError, Gates, HostNames, HttpSettings, InlineAccess, MaxConnections, OnInsert,
    SmockronGate, TextHmac, ThrottrSettings, TlsSettings, TrustedNetworks, listen_address,
};
pub use otel::{OtelSettings, SampleShare};
pub use policy_text::{WrittenIds, policy_text};
pub use store::{StoreUrl, StoreUrlError};
pub use watch::{ShowIds, WatchSettings};

/// The names that a file can have at its top level.
const SECTIONS: [&str; 16] = [
    "limits",
    "overrides",
    "keys",
    "rewrite",
    "rules",
    "domains",
    "envoy",
    "store",
    "max_buckets",
    "max_client_buckets",
    "gates",
    "tokens",
    "audit",
    "otel",
    "watch",
    "show_ids",
];
/// The error for a file that would limit nothing, such as one that was cut off.
const NO_LIMITS: &str = "has no limits, keys, rules, domains or descriptors; add some, such as \
    \"limits: { demo: { rate: 5/10s } }\", or write \"limits: {}\" if there are none";
/// The fields that mark a mapping at the top level of a file as a limit or an override.
const NUMBERS: [&str; 4] = ["burst", "count", "period", "rate"];

/// Everything that a file configures: the policy, the store and the gates.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limits, rules, keys and domains that were configured.
    pub policy: Policy,
    /// The patterns of the policy's keys, as the file has them.
    pub patterns: Arc<Patterns>,
    /// The store that holds the buckets.
    pub store: StoreUrl,
    /// The settings of the journal that keeps the buckets of the memory store; without it they are not kept.
    #[cfg(feature = "journal")]
    pub journal: Option<JournalSettings>,
    /// The largest numbers of buckets that the memory store keeps.
    pub memory_bounds: MemoryBounds,
    /// The addresses at which the server listens.
    pub gates: Gates,
    /// The file to which the server appends a line for each reset, refund, override and reload.
    pub audit: Option<PathBuf>,
    /// The settings of spans for OpenTelemetry; without it there are none.
    pub otel: Option<OtelSettings>,
    /// The settings of what a server shows about ids.
    pub watch: WatchSettings,
    /// The files that settings name, such as certificates and tokens, in the order of the configuration.
    pub named_files: Vec<NamedFile>,
    /// Warnings about text that is valid, but probably does not mean what its author thinks.
    pub warnings: Vec<ConfigError>,
}

impl Config {
    /// The file that [`Config::default`] is made from.
    pub const DEFAULT_YAML: &str = include_str!("config/default.yaml");

    /// Parses the text of a file. Errors call it `source`. Settings that the text leaves out have their defaults, but a
    /// text without limits, keys, rules and domains is an error, and so is one that names another file.
    pub fn parse(text: &str, source: &str) -> Result<Self, ConfigErrors> {
        let mut errors = ErrorCollector::new(source);
        let document = yaml::parse(text, 0, &mut errors);
        let mut files = OtherFiles { directory: None, open: &mut read_bounded };
        let config = read(document.as_ref(), &mut files, &mut errors);
        errors.finish(config)
    }

    /// Reads and parses the file at `path`, and the files that it names.
    pub fn from_file(path: &Path) -> Result<Self, ConfigErrors> {
        Self::from_files(path, &mut read_bounded)
    }

    /// Reads and parses the file at `path`. All files are read with `open`.
    fn from_files(path: &Path, open: &mut OpenFile<'_>) -> Result<Self, ConfigErrors> {
        let source = path.display().to_string();
        let bytes = open(path)
            .map_err(|error| ConfigErrors::whole_file(&source, "cannot be read").caused_by(error))?;
        let mut errors = ErrorCollector::new(&source);
        let document = yaml::parse_bytes(&bytes, 0, &mut errors);
        let mut files = OtherFiles { directory: path.parent().map(Path::to_owned), open };
        let config = read(document.as_ref(), &mut files, &mut errors);
        errors.finish(config)
    }
}

/// Returns the bytes of the file at a path.
type OpenFile<'a> = dyn FnMut(&Path) -> io::Result<Vec<u8>> + 'a;

/// Reads the files that a configuration file names.
struct OtherFiles<'a> {
    /// The directory that their paths are relative to; `None` for a text that is not in a file.
    directory: Option<PathBuf>,
    open: &'a mut OpenFile<'a>,
}

impl OtherFiles<'_> {
    /// Returns the document in the file that `value` names. Errors in the file have its name.
    fn read(&mut self, key: &YamlKey, value: &YamlNode, errors: &mut ErrorCollector) -> Option<YamlNode> {
        let Some(directory) = &self.directory else {
            let (name, found) = (key.quoted(), value.quoted());
            let must_be = "must be a mapping or a list here; only a file can name another";
            errors.add(value.at, format!("{name} {must_be}, not {found}"));
            return None;
        };
        let path = directory.join(scalar_text(value).unwrap_or_default());
        let bytes = match (self.open)(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let file = path.display();
                errors.add(value.at, format!("{} cannot be read from {file}: {error}", key.text));
                return None;
            }
        };
        let file = errors.open_file(path.display().to_string());
        let document = yaml::parse_bytes(&bytes, file, errors).filter(|document| !document.is_null());
        if document.is_none() && errors.is_empty() {
            errors.add(
                Position::start_of(file),
                format!("the file is empty; remove \"{}\" if there are none", key.text),
            );
        }
        document
    }
}

/// The configuration that `tollway serve` uses without a file: [`Config::DEFAULT_YAML`], in memory, every gate at its
/// default address.
impl Default for Config {
    fn default() -> Self {
        Self::parse(Self::DEFAULT_YAML, "default.yaml").expect("a test reads the built-in file")
    }
}

/// Reads at most one byte more than a file may have: enough to refuse a file that is too long without reading all of
/// it.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(yaml::FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read(
    document: Option<&YamlNode>,
    files: &mut OtherFiles<'_>,
    errors: &mut ErrorCollector,
) -> Option<Config> {
    let (entries, list): (&[YamlEntry], &[YamlNode]) = match document.map(|node| (node, &node.value)) {
        Some((_, YamlValue::Map(entries))) => (entries, &[]),
        Some((_, YamlValue::List(items))) => (&[], items),
        Some((node, _)) if !node.is_null() => {
            // Its text is not repeated: a wrong path may lead to a file with a key or a token in it.
            let names = fields::join_words(&SECTIONS, "and");
            errors.add(node.at, format!("a file must be a mapping with {names}, not a single text"));
            return None;
        }
        // If the file is empty because it is not valid YAML, that has been reported.
        _ if errors.is_empty() => {
            errors.add(Position::START, format!("the file is empty: it {NO_LIMITS}"));
            return None;
        }
        _ => return None,
    };
    let section = |name: &str| entries.iter().find(|entry| entry.key.text == name);
    let store = section("store").map(|entry| StoreUrl::read(entry, errors));
    let memory = section("store").and_then(store::memory_settings);
    #[cfg(feature = "journal")]
    let journal =
        memory.map_or(Some(None), |entry| journal::read(entry, files.directory.as_deref(), errors).map(Some));
    #[cfg(not(feature = "journal"))]
    memory.into_iter().for_each(|entry| journal::refuse(entry, errors));
    let memory_bounds = read_memory_bounds(section("max_buckets"), section("max_client_buckets"), errors);
    let access = AccessReader::new(section("tokens"), files.directory.as_deref(), errors);
    let gates = Gates::read(section("gates"), &access, errors);
    let audit = section("audit").map_or(Some(None), |entry| access.file_or_off(entry, errors));
    let otel = section("otel").map_or(Some(None), |entry| OtelSettings::read(entry, errors).map(Some));
    let watch = WatchSettings::read(section("watch"), section("show_ids"), errors);
    let mut rules = RulesDraft::default();
    if let Some(entry) = section("rules") {
        rules.section(entry, errors);
    }
    let mut warnings = mem::take(&mut rules.warnings);
    let mut descriptors = EnvoyDraft::default();
    if let Some(entry) = section("envoy") {
        descriptors.section(entry, files, errors);
    }
    if let Some(entry) = entries.iter().find(|entry| envoy::DOMAIN_FIELDS.contains(&&*entry.key.text)) {
        descriptors.top_level(entries, entry.key.at, errors);
    }
    warnings.append(&mut descriptors.warnings);
    let (policy, patterns) = read_policy(entries, list, rules, descriptors, files, errors)?;
    Some(Config {
        policy,
        patterns,
        store: store.unwrap_or(Some(StoreUrl::default()))?,
        #[cfg(feature = "journal")]
        journal: journal?,
        memory_bounds: memory_bounds?,
        gates: gates?,
        audit: audit?,
        otel: otel?,
        watch: watch?,
        named_files: errors.take_named_files(),
        warnings,
    })
}

/// Reads the limits of the file (in sections and at the top level), its rules for keys and its named rules. A file that
/// has none of these is an error: it was probably cut off, and would limit nobody. `list` is the overrides of a file
/// that has nothing else.
fn read_policy(
    entries: &[YamlEntry],
    list: &[YamlNode],
    rules: RulesDraft,
    descriptors: EnvoyDraft,
    files: &mut OtherFiles<'_>,
    errors: &mut ErrorCollector,
) -> Option<(Policy, Arc<Patterns>)> {
    let mut limits = LimitsDraft::default();
    let mut overrides = Vec::new();
    let mut limits_nothing = list.is_empty();
    for entry in entries {
        match &*entry.key.text {
            "limits" => limits.section(entry, errors),
            "keys" | "rules" | "domains" | "envoy" | "domain" | "descriptors" => {}
            name if SECTIONS.contains(&name) => continue,
            name if name.contains(':') && matches!(entry.value.value, YamlValue::Map(_)) => {
                overrides.push(entry)
            }
            _ if has_numbers(&entry.value) => limits.limit(entry, errors),
            _ => {
                let is_of_domain =
                    entries.iter().any(|entry| envoy::DOMAIN_FIELDS.contains(&&*entry.key.text));
                let domain_fields: &[_] = if is_of_domain { &envoy::DOMAIN_FIELDS } else { &[] };
                unknown_field(entry, "a file", &[&SECTIONS[..], domain_fields].concat(), errors);
                continue;
            }
        }
        limits_nothing &= entry.value.is_null();
    }
    let implied = limits.is_empty();
    overrides.into_iter().for_each(|entry| limits.bare_override(entry, implied, errors));
    limits.bare_override_list(list, errors);
    let section = |name: &str| entries.iter().find(|entry| entry.key.text == name);
    if let Some(entry) = section("overrides") {
        limits.overrides(entry, files, errors);
    }
    let keys = keys::read(section("keys"), section("rewrite"), &limits, errors);
    let domains = section("domains").map(|entry| domains::read(entry, errors)).unwrap_or_default();
    // A mistake elsewhere may be the reason, such as a misspelt section.
    if limits_nothing && errors.is_empty() {
        errors.add(Position::START, format!("the file {NO_LIMITS}"));
    }
    let policy = limits.policy(errors);
    let (keys, patterns) = keys?;
    let policy = policy?.with_keys(keys).and_then(|policy| policy.with_rules(rules.rules));
    let policy = policy.and_then(|policy| policy.with_domains(domains));
    let policy = policy.and_then(|policy| policy.with_descriptors(descriptors.tree()));
    Some((policy.map_err(|error| errors.add(Position::START, error.to_string())).ok()?, patterns))
}

fn has_numbers(node: &YamlNode) -> bool {
    let YamlValue::Map(entries) = &node.value else { return false };
    entries.iter().any(|entry| NUMBERS.contains(&&*entry.key.text))
}

fn read_memory_bounds(
    max_buckets: Option<&YamlEntry>,
    max_client_buckets: Option<&YamlEntry>,
    errors: &mut ErrorCollector,
) -> Option<MemoryBounds> {
    let mut number = |entry| usize::try_from(whole_number(entry, 1..=usize::MAX as u64, errors)?).ok();
    let all = max_buckets.map_or(Some(MAX_BUCKETS), &mut number);
    let client_made = max_client_buckets.map(|entry| (number(entry), entry.value.at));
    let bounds = MemoryBounds::from(all?);
    let Some((client_made, at)) = client_made else { return Some(bounds) };
    let bounds = MemoryBounds { max_client_buckets: Some(client_made?), ..bounds };
    bounds.checked().map_err(|error| errors.add(at, error.to_string())).ok()
}
