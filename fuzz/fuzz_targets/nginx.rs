//! Checks that any text is refused as a configuration of nginx, or becomes a valid configuration.
#![no_main]

#[path = "../../crates/tollway-cli/src/command/import/directives.rs"]
mod directives;
#[path = "../../crates/tollway-cli/src/command/import/imported.rs"]
mod imported;
#[path = "../../crates/tollway-cli/src/command/import/nginx.rs"]
mod nginx;

use libfuzzer_sys::fuzz_target;
use tollway::config::Config;

fuzz_target!(|text: &str| {
    match nginx::import(text) {
        Ok(imported) => {
            let yaml = imported.to_yaml("nginx.conf");
            assert!(Config::parse(&yaml, "imported.yaml").is_ok(), "{yaml}");
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            assert!(errors.iter().all(|error| error.at.line > 0 && !error.message.is_empty()));
        }
    }
});
