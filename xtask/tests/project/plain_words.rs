//! Holds the project to the rules of plain words: summaries are statements, prose wraps, a name stands for one thing.
//!
//! `cargo xtask words` lists what breaks a rule.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::words::{Count, Finding, PARTS, names, width};

/// The highest rate of summaries, in percent, that may be questions, fragments or without a verb.
const RATE_MAX: f64 = 3.0;

/// Public type names that may be defined more than once, each with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Client", "one for each protocol, in a module with the protocol's name, and its blocking twin"),
    ("Redis", "the store, and the type without values that stands for it in a build without the feature"),
];

#[test]
fn doc_summaries_are_statements() {
    let root = Path::new("..");
    for part in PARTS {
        let count = Count::of(&part.files(root).unwrap()).unwrap();
        assert!(
            count.rate() <= RATE_MAX,
            "{:.1} % of the {} summaries of {} are questions, fragments or have no verb; at most {RATE_MAX} % may:\n{}",
            count.rate(),
            count.summaries,
            part.name,
            listed(&count.offenders)
        );
    }
}

#[test]
fn prose_wraps_at_120_columns() {
    let root = Path::new("..");
    let mut files = width::pages(root).unwrap();
    for part in PARTS {
        files.extend(part.files(root).unwrap());
    }
    let too_wide = width::too_wide(&files).unwrap();
    assert!(too_wide.is_empty(), "lines of prose are wider than 120 columns:\n{}", listed(&too_wide));
}

#[test]
fn public_type_names_stand_for_one_thing() {
    let files: Vec<_> = PARTS.iter().flat_map(|part| part.files(Path::new("..")).unwrap()).collect();
    let mut shared = names::defined_twice(&files).unwrap();
    shared.retain(|name, _| !SHARED_NAMES.iter().any(|(allowed, _)| allowed == name));
    assert!(shared.is_empty(), "these public names stand for more than one thing: {shared:#?}");
}

#[test]
fn every_crate_of_the_workspace_is_a_part() {
    let manifests = files_of_the_project().into_iter().filter(|file| file.ends_with("/Cargo.toml"));
    for manifest in manifests {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        assert!(PARTS.iter().any(|part| part.folder == folder), "{folder} is not in PARTS");
    }
}

#[test]
fn the_former_name_is_only_in_the_change_log() {
    let former_name = ["toll", "gate"].concat();
    let mut places = Vec::new();
    for file in files_of_the_project() {
        // What is not text has no names in it.
        let Ok(text) = fs::read_to_string(Path::new("..").join(&file)) else { continue };
        let lines = text.lines().enumerate().filter(|(_, line)| line.to_lowercase().contains(&former_name));
        places.extend(lines.map(|(index, _)| format!("{file}:{}", index + 1)));
    }
    let is_once = places.len() == 1 && places[0].starts_with("CHANGELOG.md:");
    assert!(is_once, "the former name belongs into one line of CHANGELOG.md, and is in {places:#?}");
}

/// Lists the files that git knows or would add, counted from the root.
fn files_of_the_project() -> Vec<String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir("..").output().unwrap();
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn listed(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
}
