//! Tests that every link between pages leads to a file and a heading, and that every file that the map names exists.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose pages are checked.
const FOLDERS: &[&str] = &["..", "../docs", "../examples/fleet", "../crates/tollway-python"];

/// The crates whose files `ARCHITECTURE.md` names without `crates/` and `src/`.
const CRATES: &[(&str, &str)] = &[
    ("core", "tollway-core"),
    ("wire", "tollway-wire"),
    ("tollway", "tollway"),
    ("server", "tollway-server"),
    ("client", "tollway-client"),
    ("tower", "tollway-tower"),
    ("top", "tollway-top"),
    ("cli", "tollway-cli"),
];

#[test]
fn every_link_between_pages_leads_to_a_heading() {
    let pages: Vec<_> = FOLDERS.iter().flat_map(|folder| pages_in(folder)).collect();
    let dead: Vec<_> = pages.iter().flat_map(|page| dead_links(page)).collect();
    assert!(pages.len() > 20 && dead.is_empty(), "{} pages, dead links: {dead:#?}", pages.len());
}

#[test]
fn every_file_that_the_map_names_exists() {
    let map = fs::read_to_string("../ARCHITECTURE.md").unwrap();
    let named: Vec<_> = map.split('`').skip(1).step_by(2).filter_map(file_of_the_map).collect();
    let missing: Vec<_> = named.iter().filter(|file| !file.exists()).collect();
    assert!(named.len() > 50 && missing.is_empty(), "{} files, missing: {missing:#?}", named.len());
}

fn pages_in(folder: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "md")).collect()
}

fn dead_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let targets = targets.filter(|target| !target.contains("://"));
    targets
        .filter(|target| !exists(page, target))
        .map(|target| format!("{}: {target}", page.display()))
        .collect()
}

/// Returns whether the file of a link exists, and has the heading that the link names.
fn exists(page: &Path, target: &str) -> bool {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    file.exists() && (heading.is_empty() || headings(&file).iter().any(|anchor| anchor == heading))
}

/// Lists the anchors of a page: its headings in lower case, without punctuation, with a hyphen for each space.
fn headings(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    // Every second part is between two fences, where a `#` is a comment.
    let prose = text.split("\n```").step_by(2);
    let headings = prose.flat_map(str::lines).filter(|line| line.starts_with('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the file that a short path of the map stands for, or the folder of a path that ends with `*`.
fn file_of_the_map(path: &str) -> Option<PathBuf> {
    let (prefix, rest) = path.split_once('/')?;
    let (_, name) = CRATES.iter().find(|(short, _)| *short == prefix)?;
    let is_path = rest.chars().all(|letter| letter.is_ascii_alphanumeric() || "_./*".contains(letter));
    is_path.then(|| Path::new("../crates").join(name).join("src").join(rest.trim_end_matches('*')))
}
