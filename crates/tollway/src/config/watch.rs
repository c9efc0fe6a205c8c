//! Reads the settings `watch` and `show_ids`, of what a server shows about the ids that it decides.
//!
//! ```yaml
//! show_ids: hashed
//! watch: off
//! ```

use super::errors::ErrorCollector;
use super::fields::choice;
use super::yaml::YamlEntry;

/// The settings of what a server shows about ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// True if the ids that are denied or spend most are counted.
    pub is_on: bool,
    /// The form in which ids are shown.
    pub show_ids: ShowIds,
}

/// The form in which a server shows ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShowIds {
    /// Ids are shown as they are.
    #[default]
    Plain,
    /// Ids are shown as a hash, whose key is another in each process.
    Hashed,
    /// Ids are not shown.
    Off,
}

impl ShowIds {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Hashed, Self::Off];

    /// Returns the word for it in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Hashed => "hashed",
            Self::Off => "off",
        }
    }
}

impl WatchSettings {
    /// Ids are counted, and shown as they are.
    pub const DEFAULT: Self = Self { is_on: true, show_ids: ShowIds::Plain };

    pub(super) fn read(
        watch: Option<&YamlEntry>,
        show_ids: Option<&YamlEntry>,
        errors: &mut ErrorCollector,
    ) -> Option<Self> {
        let is_on = watch.map_or(Some(true), |entry| choice(entry, &[("on", true), ("off", false)], errors));
        let forms = ShowIds::ALL.map(|form| (form.name(), form));
        let show_ids = show_ids.map_or(Some(ShowIds::default()), |entry| choice(entry, &forms, errors));
        Some(Self { is_on: is_on?, show_ids: show_ids? })
    }
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn settings_are_read() {
        for (text, is_on, show_ids) in [
            ("", true, ShowIds::Plain),
            ("show_ids: hashed", true, ShowIds::Hashed),
            ("{show_ids: off, watch: off}", false, ShowIds::Off),
            ("{show_ids: plain, watch: on}", true, ShowIds::Plain),
        ] {
            let fields = text.trim_matches(['{', '}']);
            let config = Config::parse(&format!("{{limits: {{}}, {fields}}}"), "policy.yaml").unwrap();
            assert_eq!(config.watch, WatchSettings { is_on, show_ids }, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let errors = Config::parse("limits: {}\nshow_ids: hash\nwatch: maybe", "policy.yaml").unwrap_err();
        assert_eq!(
            errors.to_string(),
            "policy.yaml:2:11: show_ids must be plain, hashed or off, not \"hash\" (did you mean \"hashed\"?)\n\
             policy.yaml:3:8: watch must be on or off, not \"maybe\""
        );
    }
}
