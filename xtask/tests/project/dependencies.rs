//! Holds the crates to the map: which may use which, and what may come from outside.
//!
//! ```text
//! core <- wire <- client        core <- macros <- tollway <- tower, python
//! core, wire, tollway <- server <- cli        core, wire <- load <- cli        wire <- testbed
//! client, tower <- guard <- cli        client <- top <- cli
//! ```
//!
//! An arrow points at what is used. Tests may use what they like; what is built may not.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace, with the others that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("tollway-core", &[]),
    ("tollway-wire", &["tollway-core"]),
    ("tollway-client", &["tollway-core", "tollway-wire"]),
    ("tollway", &["tollway-core", "tollway-macros"]),
    ("tollway-tower", &["tollway-core", "tollway-wire", "tollway", "tollway-client"]),
    ("tollway-guard", &["tollway-client", "tollway-tower"]),
    ("tollway-macros", &["tollway-core"]),
    ("tollway-python", &["tollway-core", "tollway"]),
    ("tollway-server", &["tollway-core", "tollway-wire", "tollway"]),
    (
        "tollway-cli",
        &[
            "tollway-core",
            "tollway-wire",
            "tollway",
            "tollway-server",
            "tollway-client",
            "tollway-tower",
            "tollway-guard",
            "tollway-load",
            "tollway-top",
        ],
    ),
    ("tollway-top", &["tollway-client"]),
    ("tollway-load", &["tollway-core", "tollway-wire"]),
    ("tollway-bench", &["tollway-core", "tollway-wire", "tollway", "tollway-server", "tollway-tower"]),
    ("tollway-instructions", &["tollway-wire", "tollway", "tollway-server"]),
    ("tollway-simulator", &["tollway-core", "tollway-wire", "tollway", "tollway-client", "tollway-testbed"]),
    ("tollway-testbed", &["tollway-wire"]),
    ("xtask", &[]),
];

/// Crates that would bring a runtime or a socket into a crate that only turns bytes into values.
const RUNTIMES: &[&str] = &["async-std", "futures", "hyper", "mio", "rustix", "smol", "socket2", "tokio"];

#[test]
fn arrows_point_only_where_the_map_says() {
    let packages = workspace();
    let names: BTreeSet<_> = packages.iter().map(name).collect();
    for package in &packages {
        let (_, allowed) = ARROWS
            .iter()
            .find(|(known, _)| *known == name(package))
            .unwrap_or_else(|| panic!("{} is not on the map: say here what it may use", name(package)));
        for used in built_with(package).intersection(&names) {
            assert!(allowed.contains(used), "{} must not use {used}", name(package));
        }
    }
}

#[test]
fn the_core_uses_nothing_but_an_error_derive() {
    assert_eq!(built_with(&package("tollway-core")), BTreeSet::from(["thiserror"]));
}

#[test]
fn codecs_know_no_runtime() {
    let packages = workspace();
    for package in packages.iter().filter(|package| name(package) == "tollway-wire") {
        let runtimes: Vec<_> =
            built_with(package).into_iter().filter(|used| RUNTIMES.contains(used)).collect();
        assert!(runtimes.is_empty(), "the codecs use {runtimes:?}");
    }
}

#[test]
fn every_dependency_is_explained_on_the_map() {
    let map = std::fs::read_to_string("../ARCHITECTURE.md").unwrap();
    for package in workspace() {
        for used in package["dependencies"].as_array().unwrap().iter().map(name) {
            assert!(map.contains(&format!("`{used}`")), "{} uses {used}: say why", name(&package));
        }
    }
}

#[test]
fn what_is_published_says_what_it_is() {
    for package in workspace().iter().filter(|package| package["publish"].is_null()) {
        for field in ["description", "license", "repository", "readme"] {
            assert!(package[field].is_string(), "{} has no {field}", name(package));
        }
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&count), "{} has {count} {field}", name(package));
        }
    }
}

#[test]
fn an_embedder_compiles_few_crates() {
    for (features, crates_max) in [("--no-default-features", 25), ("--features=default", 45)] {
        let crates = crates_of_tollway(features);
        assert!(
            crates.len() <= crates_max,
            "{features}: {} crates, not {crates_max}: {crates:#?}",
            crates.len()
        );
    }
}

#[test]
fn every_crate_with_features_is_checked_with_each_of_them() {
    for package in workspace() {
        let has_features = package["features"].as_object().is_some_and(|features| !features.is_empty());
        let is_checked = xtask::CRATES_WITH_FEATURES.contains(&name(&package));
        assert!(!has_features || is_checked, "{} has features: add it to xtask/src/lib.rs", name(&package));
    }
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() {
    let policy: toml::Table = std::fs::read_to_string("../deny.toml").unwrap().parse().unwrap();
    let allowed: Vec<_> = policy["licenses"]["allow"].as_array().unwrap().iter().map(licensee).collect();
    for package in from_outside() {
        let licence =
            package["license"].as_str().unwrap_or_else(|| panic!("{} names no licence", name(&package)));
        let licence_of = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).unwrap();
        let fits = licence_of.evaluate(|needed| allowed.iter().any(|licensee| licensee.satisfies(needed)));
        assert!(fits, "{} is licensed {licence}, which deny.toml does not allow", name(&package));
    }
}

#[test]
fn everything_from_outside_comes_from_the_registry() {
    for package in from_outside() {
        let source = package["source"].as_str().unwrap();
        assert!(source.starts_with("registry+"), "{} comes from {source}", name(&package));
    }
    for dependency in workspace().iter().flat_map(|package| package["dependencies"].as_array().unwrap()) {
        assert!(dependency["registry"].is_null(), "{} comes from another registry", name(dependency));
    }
}

/// Returns the name and version of `tollway` and of everything that is compiled or run to build it.
fn crates_of_tollway(features: &str) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--locked",
        "--edges",
        "normal",
        "--package",
        "tollway",
        "--prefix",
        "none",
        features,
    ]);
    let first_words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    output(&mut cargo).lines().map(first_words).collect()
}

fn licensee(name: &toml::Value) -> spdx::Licensee {
    spdx::Licensee::parse(name.as_str().unwrap()).unwrap()
}

/// Returns the packages from outside that are linked or run to build and test the workspace on this platform.
fn from_outside() -> Vec<Value> {
    let host = output(Command::new("rustc").args(["--print", "host-tuple"]));
    let packages = metadata(&["--filter-platform", host.trim()]);
    packages.into_iter().filter(|package| !package["source"].is_null()).collect()
}

fn workspace() -> Vec<Value> {
    metadata(&["--no-deps"])
}

fn package(wanted: &str) -> Value {
    workspace().into_iter().find(|package| name(package) == wanted).unwrap()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// Returns the names of a crate's dependencies, without those of its tests.
fn built_with(package: &Value) -> BTreeSet<&str> {
    let dependencies = package["dependencies"].as_array().unwrap();
    dependencies.iter().filter(|dependency| dependency["kind"] != "dev").map(name).collect()
}

fn metadata(arguments: &[&str]) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    let printed = output(cargo.args(["metadata", "--locked", "--format-version", "1"]).args(arguments));
    let Value::Array(packages) = serde_json::from_str::<Value>(&printed).unwrap()["packages"].take() else {
        panic!("cargo metadata lists no packages");
    };
    packages
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
