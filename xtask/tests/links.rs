//! Tests that every link to a file of this repository leads to one.
#![allow(clippy::unwrap_used, reason = "a test, whose helpers clippy does not take for one")]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_link_between_pages_leads_to_a_file() {
    let pages: Vec<_> = ["..", "../docs"].into_iter().flat_map(pages_in).collect();
    let dead: Vec<_> = pages.iter().flat_map(|page| dead_links(page)).collect();
    assert!(pages.len() > 5 && dead.is_empty(), "{} pages, dead links: {dead:#?}", pages.len());
}

fn pages_in(folder: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "md")).collect()
}

fn dead_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files =
        targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap());
    let leads_nowhere = |file: &&str| !page.parent().unwrap().join(file).exists();
    files.filter(leads_nowhere).map(|file| format!("{}: {file}", page.display())).collect()
}
