//! Checks that any text in a configuration file is read or refused, and that what was read can be described.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway::config::{Config, describe};

fuzz_target!(|text: &str| {
    match Config::parse(text, "fuzz.yaml") {
        Ok(config) => drop(describe(&config).to_string()),
        Err(errors) => {
            assert!(!errors.errors().is_empty() && errors.errors().is_sorted());
            assert!(errors.errors().iter().all(|error| !error.message.contains(char::is_control)));
            let excerpts = errors.errors().iter().filter_map(|error| error.excerpt.as_deref());
            excerpts.for_each(|excerpt| assert!(excerpt.ends_with('^') && excerpt.lines().count() == 2));
        }
    }
});
