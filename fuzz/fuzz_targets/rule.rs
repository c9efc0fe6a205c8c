//! Checks that any text is a rule whose canonical form reads back as itself, or an error that points into the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_core::{Rule, RuleError};

fuzz_target!(|text: &str| {
    match text.parse::<Rule>() {
        Ok(rule) => {
            let canonical = rule.to_string();
            assert_eq!(canonical.parse().map(|rule: Rule| rule.to_string()), Ok(canonical));
        }
        Err(error) => {
            let RuleError { rule, at, .. } = &error;
            assert!(rule.get(at.clone()).is_some());
            assert!(!error.to_string().is_empty());
        }
    }
});
