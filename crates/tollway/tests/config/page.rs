//! `docs/configuration.md` is true: its files load, and what it says of them is what is said.

use std::fs;
use std::path::Path;

use tollway::config::{Config, describe};

const PAGE: &str = "../../docs/configuration.md";
/// The name that the page gives its files.
const NAME: &str = "policy.yaml";

/// The fenced blocks of the page, each with its language.
fn blocks() -> Vec<(String, String)> {
    let page = fs::read_to_string(PAGE).expect("the page stands in docs");
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let content = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n"));
            blocks.push((language.to_owned(), content.collect()));
        }
    }
    blocks
}

fn answer(yaml: &str) -> String {
    match Config::parse(yaml, NAME) {
        Ok(config) => describe(&config).to_string(),
        Err(errors) => format!("{errors}\n"),
    }
}

#[test]
fn every_file_on_the_page_gets_the_answer_that_follows_it() {
    let blocks = blocks();
    let mut quoted = 0;
    for (index, (language, yaml)) in blocks.iter().enumerate().filter(|(_, (language, _))| language != "text")
    {
        assert_eq!(language, "yaml");
        match blocks.get(index + 1) {
            Some((language, expected)) if language == "text" => {
                assert_eq!(&answer(yaml), expected, "\n{}", answer(yaml));
                quoted += 1;
            }
            _ => assert!(Config::parse(yaml, NAME).is_ok(), "{}\n{yaml}", answer(yaml)),
        }
    }
    assert_eq!((quoted, blocks.len() > 12), (2, true));
}

#[test]
fn the_page_shows_the_built_in_limits() {
    let built_in = Config::DEFAULT_YAML.lines().filter(|line| !line.starts_with('#'));
    let built_in: String = built_in.map(|line| format!("{line}\n")).collect();
    assert!(blocks().iter().any(|(_, yaml)| *yaml == built_in), "{built_in}");
}

#[test]
fn the_example_policy_loads() {
    let config = Config::from_file(Path::new("../../examples/policy.yaml"));
    assert!(config.is_ok(), "{}", config.err().map(|errors| errors.to_string()).unwrap_or_default());
}
