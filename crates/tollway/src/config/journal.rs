//! Reads the settings of the memory store, which can keep its buckets in a journal.
//!
//! ```yaml
//! store:
//!   memory: { dir: /var/lib/tollway, sync: 1s }
//! ```

use super::errors::ErrorCollector;
use super::fields::{YamlFields, mapping};
use super::yaml::YamlEntry;
#[cfg(feature = "journal")]
use {
    super::fields::{duration, refuse, scalar_text},
    crate::journal::{JournalSettings, JournalSync},
    std::path::Path,
    tollway_core::Nanos,
};

const FIELDS: [&str; 2] = ["dir", "sync"];
const EXAMPLE: &str = "{dir: /var/lib/tollway}";

#[cfg(feature = "journal")]
const DIR: &str = "must be the path of a directory, such as /var/lib/tollway";
#[cfg(feature = "journal")]
const SYNC_MIN: Nanos = Nanos::from_millis(50);
#[cfg(feature = "journal")]
const SYNC_MAX: Nanos = Nanos::from_secs(3_600);

/// Reads `memory:`. Paths are relative to `directory`. Returns `None` if it is wrong.
#[cfg(feature = "journal")]
pub(super) fn read(
    entry: &YamlEntry,
    directory: Option<&Path>,
    errors: &mut ErrorCollector,
) -> Option<JournalSettings> {
    let fields = YamlFields::read(mapping(entry, EXAMPLE, errors)?, "memory", &FIELDS, errors);
    let sync = fields.get("sync").map_or(Some(JournalSettings::SYNC), |entry| read_sync(entry, errors));
    let Some(dir) = fields.get("dir") else {
        errors.add(entry.key.at, "memory has no \"dir\", such as dir: /var/lib/tollway");
        return None;
    };
    let path = scalar_text(&dir.value).filter(|path| !path.is_empty() && !path.contains('\0'));
    let Some(path) = path else { return refuse(dir, DIR, errors) };
    let dir = directory.map_or_else(|| path.into(), |directory| directory.join(path));
    Some(JournalSettings { dir, sync: sync? })
}

/// Reads the time between two syncs, `always` or `never`.
#[cfg(feature = "journal")]
fn read_sync(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<JournalSync> {
    match scalar_text(&entry.value) {
        Some("never") => return Some(JournalSync::Never),
        Some("always") => return Some(JournalSync::Always),
        _ => {}
    }
    let sync = duration(entry, errors)?;
    if (SYNC_MIN..=SYNC_MAX).contains(&sync) {
        return Some(JournalSync::Every(sync));
    }
    refuse(entry, "must be always, never, or a duration from 50ms to 1h", errors)
}

/// Reports that the program has no journal.
#[cfg(not(feature = "journal"))]
pub(super) fn refuse(entry: &YamlEntry, errors: &mut ErrorCollector) {
    let entries = mapping(entry, EXAMPLE, errors).unwrap_or_default();
    YamlFields::read(entries, "memory", &FIELDS, errors);
    let missing = "memory needs a journal, and this program was built without it; build it with the feature \"journal\"";
    errors.add(entry.key.at, missing);
}

#[cfg(all(test, feature = "journal"))]
mod tests {
    use super::*;
    use crate::config::{Config, describe};

    fn read(store: &str) -> Result<Config, String> {
        let text = format!("limits: {{}}\nstore: {store}");
        Config::parse(&text, "policy.yaml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_directory_and_the_time_between_syncs_are_read() {
        for (store, sync, described) in [
            ("{memory: {dir: /data}}", JournalSettings::SYNC, "memory, journal in /data, sync 1s"),
            (
                "{memory: {dir: /data, sync: 200ms}}",
                JournalSync::Every(Nanos::from_millis(200)),
                "/data, sync 200ms",
            ),
            ("{memory: {dir: /data, sync: never}}", JournalSync::Never, "/data, sync never"),
            ("{memory: {dir: /data, sync: always}}", JournalSync::Always, "/data, sync always"),
        ] {
            let config = read(store).unwrap();
            assert_eq!(config.journal, Some(JournalSettings { dir: "/data".into(), sync }));
            assert!(describe(&config).to_string().contains(described), "{}", describe(&config));
        }
        assert_eq!(read("memory").unwrap().journal, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (store, expected) in [
            ("{memory: {}}", "memory has no \"dir\", such as dir: /var/lib/tollway"),
            ("{memory: /data}", "memory must be a mapping, such as {dir: /var/lib/tollway}, not \"/data\""),
            (
                "{memory: {dir: ''}}",
                "dir must be the path of a directory, such as /var/lib/tollway, not the text \"\"",
            ),
            (
                "{memory: {dir: /d, sync: 1ms}}",
                "sync must be always, never, or a duration from 50ms to 1h, not \"1ms\"",
            ),
            ("{memory: {dir: /d, sync: sometimes}}", "sync"),
            ("{memory: {dir: /d}, url: memory}", "store has \"memory\", so it has no \"url\""),
        ] {
            let error = read(store).unwrap_err();
            assert!(error.contains(expected), "{store}: {error}");
        }
    }
}
