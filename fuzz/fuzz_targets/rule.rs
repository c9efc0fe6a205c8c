//! Whatever is written, it is a rule that reads back as itself, or an error that points into the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_core::{Rule, RuleError};

fuzz_target!(|text: &str| {
    match text.parse::<Rule>() {
        Ok(rule) => assert_eq!(rule.to_string().parse().as_ref(), Ok(&rule)),
        Err(error) => {
            let RuleError { rule, at, .. } = &error;
            assert!(rule.get(at.clone()).is_some());
            assert!(!error.to_string().is_empty());
        }
    }
});
