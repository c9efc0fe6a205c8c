//! `docs/configuration.md` is true: its files load, and what it says of them is what is said.

use std::fs;
use std::path::Path;

use tollway::config::{Config, describe};

const PAGE: &str = "../../docs/configuration.md";
/// The name that the page gives its files.
const NAME: &str = "policy.yaml";
/// The file of overrides that the page names.
const OVERRIDES: &str = "- NewOrdersPerAccount: { burst: 300, count: 600, period: 180m, ids: [12345678] }\n";

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
            _ => check_loads(yaml),
        }
    }
    assert_eq!((quoted, blocks.len() > 12), (2, true));
}

/// The file loads, beside a file of overrides. One that has only a store or gates is a part of another.
fn check_loads(yaml: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(NAME);
    fs::write(directory.path().join("overrides.yaml"), OVERRIDES).expect("written");
    let settings_only = yaml.starts_with("store:") && !yaml.contains("limits:") || yaml.starts_with("gates:");
    fs::write(&path, format!("{yaml}{}", if settings_only { "limits: {}\n" } else { "" })).expect("written");
    let config = Config::from_file(&path);
    assert!(config.is_ok(), "{}\n{yaml}", config.err().map(|errors| errors.to_string()).unwrap_or_default());
}

#[test]
fn the_page_names_every_field() {
    let page = fs::read_to_string(PAGE).expect("the page stands in docs");
    // The error for an unknown field lists those that there are.
    for text in [
        "zzzzzz: 1",
        "limits: { A: { zzzzzz: 1 } }",
        "limits: { A: {} }\noverrides: [{ A: { zzzzzz: 1, ids: [x] } }]",
        "keys: [{ zzzzzz: 1 }]",
        "keys: { zzzzzz: 1 }",
        "rules: { r: { zzzzzz: 1 } }",
        "domains: { d: { zzzzzz: 1 } }",
        "store: { url: memory, zzzzzz: 1 }",
        "gates: { zzzzzz: 1 }",
        "gates: { http: { zzzzzz: 1 } }",
        "gates: { text: { zzzzzz: 1 } }",
        "gates: { throttr: { zzzzzz: 1 } }",
        "gates: { resp: { zzzzzz: 1 } }",
        "gates: { smockron: { zzzzzz: 1 } }",
    ] {
        let errors = Config::parse(text, NAME).expect_err(text).to_string();
        let listed = errors
            .lines()
            .find_map(|line| line.split_once("unknown field \"zzzzzz\"; ")?.1.split_once(" has "));
        let (_, fields) = listed.unwrap_or_else(|| panic!("no list of fields: {errors}"));
        for field in fields.split(", ").flat_map(|fields| fields.split(" and ")) {
            assert!(page.contains(&format!("`{field}`")), "the page does not have `{field}` of {text}");
        }
    }
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
