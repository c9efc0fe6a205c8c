//! Reads the setting `hmac` of the text gate: the keys that sign its datagrams.
//!
//! ```yaml
//! text: { listen: 10.0.0.5:2000, hmac: { keys: text-keys.txt, window: 30s } }
//! ```
//!
//! The file is not read here: the server reads it, and reads it again when it changes.

use std::path::PathBuf;

use tollway_core::Nanos;

use super::access::AccessReader;
use crate::config::errors::ErrorCollector;
use crate::config::fields::{YamlFields, duration, mapping, refuse};
use crate::config::yaml::YamlEntry;

/// The name of the setting.
pub(super) const HMAC: &str = "hmac";

/// The settings of a text gate that answers signed datagrams only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextHmac {
    /// The file with the keys, each on a line: its name, and its secret in hexadecimal digits.
    pub keys: PathBuf,
    /// The greatest difference between the time in a datagram and the wall clock of the server.
    pub window: Nanos,
}

impl TextHmac {
    /// The window of a gate whose configuration has none.
    const DEFAULT_WINDOW: Nanos = Nanos::from_secs(30);
    /// The shortest window: clocks of two machines are seldom closer.
    const WINDOW_MIN: Nanos = Nanos::from_secs(1);
    /// The longest window. What has come within it is remembered, and a longer one would only take more memory.
    const WINDOW_MAX: Nanos = Nanos::from_secs(600);

    pub(super) fn read(
        entry: &YamlEntry,
        access: &AccessReader<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<Option<Self>> {
        let entries = mapping(entry, "{keys: text-keys.txt, window: 30s}", errors)?;
        let fields = YamlFields::read(entries, HMAC, &["keys", "window"], errors);
        let keys = match fields.get("keys") {
            Some(keys) => access.file(keys, errors),
            None => {
                errors.add(entry.key.at, "hmac has no \"keys\", such as keys: text-keys.txt");
                None
            }
        };
        let window = fields.get("window").map_or(Some(Self::DEFAULT_WINDOW), |entry| {
            let window = duration(entry, errors)?;
            if (Self::WINDOW_MIN..=Self::WINDOW_MAX).contains(&window) {
                Some(window)
            } else {
                refuse(entry, "must be from 1s to 10m", errors)
            }
        });
        Some(Some(Self { keys: keys?, window: window? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(hmac: &str) -> Result<Option<TextHmac>, String> {
        let text = format!("limits: {{}}\ngates: {{ text: {{ hmac: {hmac} }} }}");
        Config::parse(&text, "policy.yaml")
            .map(|config| config.gates.text_hmac)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_and_window_are_read() {
        let hmac = |window| Some(TextHmac { keys: "k.txt".into(), window });
        assert_eq!(read("{ keys: k.txt }"), Ok(hmac(Nanos::from_secs(30))));
        assert_eq!(read("{ keys: k.txt, window: 1500ms }"), Ok(hmac(Nanos::from_millis(1500))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (hmac, expected) in [
            ("k.txt", "hmac must be a mapping, such as {keys: text-keys.txt, window: 30s}, not \"k.txt\""),
            ("{ window: 30s }", "hmac has no \"keys\", such as keys: text-keys.txt"),
            ("{ keys: k.txt, window: 999ms }", "window must be from 1s to 10m, not \"999ms\""),
            ("{ keys: k.txt, window: 11m }", "window must be from 1s to 10m, not \"11m\""),
            ("{ keys: [] }", "keys must be the path of a file, not a list"),
        ] {
            let error = read(hmac).unwrap_err();
            assert!(error.ends_with(expected), "{hmac}: {error}");
        }
    }
}
