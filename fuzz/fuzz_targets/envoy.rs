//! Checks that any text is refused as a configuration of Envoy's rate limit service, or becomes a valid configuration.
#![no_main]

#[path = "../../crates/tollway-cli/src/command/import/envoy.rs"]
mod envoy;
#[path = "../../crates/tollway-cli/src/command/import/imported.rs"]
mod imported;

use libfuzzer_sys::fuzz_target;
use tollway::config::Config;

fuzz_target!(|text: &str| {
    match envoy::import(text) {
        Ok(imported) if imported.limits.is_empty() => {}
        Ok(imported) => {
            let yaml = imported.to_yaml("ratelimit.yaml");
            assert!(Config::parse(&yaml, "imported.yaml").is_ok(), "{yaml}");
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            assert!(errors.iter().all(|error| error.at.line > 0 && !error.message.is_empty()));
        }
    }
});
