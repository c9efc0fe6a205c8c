//! Finds public type names that stand for more than one thing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Maps every public type name that is defined more than once to the places `path:line` of its definitions.
///
/// Two definitions of one name behind different `cfg`s in one file are one thing, so a file counts once.
pub fn defined_twice(files: &[PathBuf]) -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in files.iter().filter(|file| is_source(file)) {
        let mut names: Vec<(String, usize)> = Vec::new();
        for (index, line) in fs::read_to_string(file)?.lines().enumerate() {
            if let Some(name) = public_type(line)
                && names.iter().all(|(known, _)| known != name)
            {
                names.push((name.to_owned(), index + 1));
            }
        }
        for (name, line) in names {
            places.entry(name).or_default().push(format!("{}:{line}", file.display()));
        }
    }
    places.retain(|_, places| places.len() > 1);
    Ok(places)
}

/// Returns whether a file is part of what is built: tests and benchmarks define what they like.
fn is_source(file: &Path) -> bool {
    let is_test = |part: &str| ["tests", "benches", "examples", "tests.rs"].contains(&part);
    !file.iter().any(|part| part.to_str().is_some_and(is_test))
}

/// Returns the name that this line defines, if it defines a public struct, enum or trait.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let rest = ["struct ", "enum ", "trait "].into_iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_types_are_names() {
        assert_eq!(public_type("pub struct Limiter<S> {"), Some("Limiter"));
        assert_eq!(public_type("    pub enum Kind {"), Some("Kind"));
        assert_eq!(public_type("pub(crate) struct Inner;"), None);
        assert_eq!(public_type("pub fn new() {"), None);
    }
}
