//! Reads the section `otel`: where spans of decisions are sent, and how many.
//!
//! ```yaml
//! otel: { endpoint: http://127.0.0.1:4318, sample: 0.01 }
//! ```

use std::fmt;

use super::errors::ErrorCollector;
use super::fields::{YamlFields, mapping, refuse, scalar_text};
use super::yaml::YamlEntry;

/// The longest address of a collector, in bytes.
const ENDPOINT_MAX: usize = 1024;

/// The settings of spans for OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelSettings {
    /// The address of a collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`. Paths follow it.
    pub endpoint: String,
    /// The share of decisions that have a span.
    pub sample: SampleShare,
}

/// A share of decisions, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShare(u32);

impl SampleShare {
    /// One decision of a hundred.
    pub const DEFAULT: Self = Self(10_000_000);
    const WHOLE: u32 = 1_000_000_000;

    /// Returns the share, if it is from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        if !(0.0..=1.0).contains(&share) {
            return None;
        }
        // The range was checked, so nothing is cut.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let billionths = (share * f64::from(Self::WHOLE)).round() as u32;
        Some(Self(billionths))
    }

    /// Returns the number below which random numbers of 64 bits are in the share.
    pub const fn threshold(self) -> u128 {
        // Not `From`, which is not const; it loses nothing.
        (1 << 64) * self.0 as u128 / Self::WHOLE as u128
    }
}

impl fmt::Display for SampleShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(Self::WHOLE)).fmt(f)
    }
}

impl OtelSettings {
    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        const EXAMPLE: &str = "{endpoint: http://127.0.0.1:4318, sample: 0.01}";
        let entries = mapping(entry, EXAMPLE, errors)?;
        let fields = YamlFields::read(entries, "otel", &["endpoint", "sample"], errors);
        let endpoint = match fields.get("endpoint") {
            Some(entry) => read_endpoint(entry, errors),
            None => {
                let missing = "otel has no \"endpoint\", such as endpoint: http://127.0.0.1:4318";
                errors.add(entry.key.at, missing);
                None
            }
        };
        let sample = fields.get("sample").map_or(Some(SampleShare::DEFAULT), |entry| {
            let share =
                scalar_text(&entry.value).and_then(|text| text.parse().ok()).and_then(SampleShare::new);
            share.or_else(|| refuse(entry, "must be a share from 0 to 1, such as 0.01", errors))
        });
        Some(Self { endpoint: endpoint?, sample: sample? })
    }
}

/// Reads the address of a collector. TLS is left to a collector on this machine, or to a proxy.
fn read_endpoint(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<String> {
    let text = scalar_text(&entry.value).unwrap_or_default().trim_end_matches('/');
    let host = text.strip_prefix("http://").unwrap_or_default();
    let is_valid = !host.is_empty()
        && text.len() <= ENDPOINT_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#\"<>".contains(&byte));
    if is_valid {
        return Some(text.to_owned());
    }
    refuse(entry, "must be the address of a collector, such as http://127.0.0.1:4318", errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, describe};

    fn read(otel: &str) -> Result<Config, String> {
        Config::parse(&format!("limits: {{}}\notel: {otel}"), "policy.yaml")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_and_a_share_are_read() {
        for (otel, endpoint, sample, described) in [
            ("{endpoint: 'http://127.0.0.1:4318'}", "http://127.0.0.1:4318", 0.01, "sample 0.01"),
            ("{endpoint: 'http://otel:4318/', sample: 1}", "http://otel:4318", 1.0, "sample 1"),
            ("{endpoint: 'http://[::1]:4318/a', sample: 0}", "http://[::1]:4318/a", 0.0, "sample 0"),
        ] {
            let config = read(otel).unwrap();
            let expected =
                OtelSettings { endpoint: endpoint.to_owned(), sample: SampleShare::new(sample).unwrap() };
            assert_eq!(config.otel.as_ref(), Some(&expected));
            let line = format!("otel    {endpoint}, {described}\n");
            assert!(describe(&config).to_string().contains(&line), "{}", describe(&config));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let endpoint = "endpoint must be the address of a collector, such as http://127.0.0.1:4318, not";
        let sample = "sample must be a share from 0 to 1, such as 0.01, not";
        for (otel, expected) in [
            (
                "on",
                "otel must be a mapping, such as {endpoint: http://127.0.0.1:4318, sample: 0.01}, not \"on\""
                    .into(),
            ),
            ("{}", "otel has no \"endpoint\", such as endpoint: http://127.0.0.1:4318".into()),
            ("{endpoint: 'https://otel'}", format!("{endpoint} the text \"https://otel\"")),
            ("{endpoint: 'http://'}", format!("{endpoint} the text \"http://\"")),
            ("{endpoint: 'http://a b'}", format!("{endpoint} the text \"http://a b\"")),
            ("{endpoint: 'http://a', sample: 1.1}", format!("{sample} \"1.1\"")),
            ("{endpoint: 'http://a', sample: -0.1}", format!("{sample} \"-0.1\"")),
            ("{endpoint: 'http://a', sample: nan}", format!("{sample} \"nan\"")),
            ("{endpoint: 'http://a', sample: all}", format!("{sample} \"all\"")),
        ] {
            let error = read(otel).unwrap_err();
            assert!(error.ends_with(&expected), "{otel}: {error}");
        }
    }

    #[test]
    fn a_threshold_is_a_share_of_all_numbers() {
        let threshold = |share| SampleShare::new(share).unwrap().threshold();
        assert_eq!((threshold(0.0), threshold(0.5), threshold(1.0)), (0, 1 << 63, 1 << 64));
    }
}
