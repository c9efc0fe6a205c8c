//! Tests that every promise on the page of guarantees is held by tests and commands that exist.

use std::fs;
use std::path::Path;

#[test]
fn every_promise_has_a_bound_and_is_held_by_what_exists() {
    let page = fs::read_to_string("../docs/guarantees.md").unwrap();
    let promises: Vec<_> = page.split("\n## ").skip(1).collect();
    assert!(promises.len() >= 12, "the page has {} promises", promises.len());
    for promise in promises {
        let name = promise.lines().next().unwrap();
        for part in ["**Bound.** ", "**Elsewhere.** "] {
            assert!(promise.contains(part), "{name:?} has no {part}");
        }
        let quoted: Vec<_> = promise.split('`').skip(1).step_by(2).collect();
        let tests: Vec<_> = quoted.iter().filter_map(|quoted| quoted.split_once(".rs::")).collect();
        assert!(!tests.is_empty(), "{name:?} names no test");
        for (file, test) in tests {
            assert!(
                has_test(&format!("../{file}.rs"), test),
                "{name:?} names {file}.rs::{test}, which is gone"
            );
        }
        for command in quoted.iter().filter_map(|quoted| quoted.strip_prefix("cargo xtask ")) {
            assert!(has_task(command), "{name:?} names `cargo xtask {command}`, which is gone");
        }
    }
}

/// Returns whether a file has a test of this name: a function below an attribute that has `test` in it.
fn has_test(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(Path::new(file)).unwrap_or_default();
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    attributes.contains("test]") || attributes.contains("test(") || attributes.contains("proptest!")
}

/// Returns whether `cargo xtask` has the task of a command.
fn has_task(command: &str) -> bool {
    let tasks = fs::read_to_string("src/main.rs").unwrap();
    let task = command.split(' ').next().unwrap();
    let mut letters = task.chars();
    let variant: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    [",", " {"].iter().any(|end| tasks.contains(&format!("\n    {variant}{end}\n")))
}
