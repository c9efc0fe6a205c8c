//! Tests that every codec has a fuzz target, and that dictionaries and seeds belong to one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Modules of `tollway-wire` that decode nothing, each with the reason.
const NOT_FUZZED: &[(&str, &str)] = &[("audit", "it writes lines, and reads none")];

#[test]
fn every_codec_has_a_target() {
    let codecs = fs::read_to_string("../crates/tollway-wire/src/lib.rs").unwrap();
    let modules = codecs.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let sources: String = targets().iter().map(|name| source(name)).collect();
    for module in modules.filter(|module| NOT_FUZZED.iter().all(|(name, _)| name != module)) {
        let used = [format!("tollway_wire::{module}::"), format!("tollway_wire::{module};")];
        assert!(used.iter().any(|path| sources.contains(path)), "no fuzz target reads with {module}");
    }
}

#[test]
fn every_file_belongs_to_a_target() {
    let targets = targets();
    assert!(targets.len() > 20, "{targets:?}");
    let files = names("../fuzz/fuzz_targets", ".rs").into_iter();
    assert_eq!(files.collect::<BTreeSet<_>>(), targets, "each target is a [[bin]] of fuzz/Cargo.toml");
    for (folder, ending) in [("../fuzz/dictionaries", ".dict"), ("../fuzz/corpus", "")] {
        for name in names(folder, ending) {
            assert!(targets.contains(&name), "{folder}/{name}{ending} belongs to no target");
        }
    }
}

#[test]
fn every_target_has_a_seed() {
    for name in targets() {
        let seeds = names(&format!("../fuzz/corpus/{name}"), "");
        assert!(seeds.iter().any(|seed| seed.starts_with("seed-")), "fuzz/corpus/{name} has no seed-*");
    }
}

fn targets() -> BTreeSet<String> {
    let manifest: toml::Table = fs::read_to_string("../fuzz/Cargo.toml").unwrap().parse().unwrap();
    let targets = manifest["bin"].as_array().unwrap().iter();
    targets.map(|target| target["name"].as_str().unwrap().to_owned()).collect()
}

fn source(target: &str) -> String {
    fs::read_to_string(format!("../fuzz/fuzz_targets/{target}.rs")).unwrap()
}

/// Returns the names in a folder that have this ending, without it.
fn names(folder: &str, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect()
}
