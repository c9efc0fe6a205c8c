//! Tests that every figure on the page of benchmarks was written by a benchmark, which says when.

use std::fs;

/// The benchmarks whose results are on the page. `build` only prints.
const BENCHMARKS: &[&str] = &[
    "core", "http", "tls", "gates", "watch", "journal", "resp", "smockron", "rls", "guard", "redis", "tower",
    "python",
];

#[test]
fn every_section_names_its_command_and_commit() {
    let page = fs::read_to_string("../docs/benchmarks.md").unwrap();
    let sections = sections(&page);
    for (name, text) in &sections {
        let measured = text.lines().next().and_then(measured_by);
        let command =
            measured.unwrap_or_else(|| panic!("{name} does not begin with `Measured by … at commit …`"));
        assert!(BENCHMARKS.contains(&command), "{name} was measured by {command}, which is no benchmark");
    }
    for benchmark in BENCHMARKS {
        let is_there =
            |(_, text): &(&str, &str)| measured_by(text.lines().next().unwrap()) == Some(benchmark);
        assert!(
            sections.iter().any(is_there),
            "no section has the results of `cargo xtask bench {benchmark}`"
        );
    }
}

#[test]
fn no_table_is_written_by_hand() {
    let page = fs::read_to_string("../docs/benchmarks.md").unwrap();
    let mut by_hand = page.clone();
    for (_, text) in sections(&page) {
        by_hand = by_hand.replace(text, "");
    }
    let tables: Vec<_> = by_hand.lines().filter(|line| line.starts_with('|')).collect();
    assert!(tables.is_empty(), "outside of the sections: {tables:#?}");
}

/// Returns the name and the text of every part between `<!-- name -->` and `<!-- /name -->`.
fn sections(page: &str) -> Vec<(&str, &str)> {
    let (mut sections, mut rest) = (Vec::new(), page);
    while let Some((_, after)) = rest.split_once("\n<!-- ") {
        let (name, after) = after.split_once(" -->\n").unwrap();
        let end = format!("<!-- /{name} -->");
        let (text, after) = after.split_once(&end).unwrap_or_else(|| panic!("{name} has no {end}"));
        sections.push((name, text));
        rest = after;
    }
    sections
}

/// Returns the benchmark that a line names as the origin of the figures below it, or as the one that is to be run.
fn measured_by(line: &str) -> Option<&str> {
    if let Some(benchmark) = line.strip_prefix("Not measured yet by `cargo xtask bench ") {
        return benchmark.strip_suffix("`.");
    }
    let (command, commit) =
        line.strip_prefix("Measured by `cargo xtask bench ")?.split_once("` at commit ")?;
    // Behind the commit may be that there were changes on top, and the name of the processor.
    let commit = commit.split(", ").next()?.trim_end_matches('.');
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| command.split(' ').next()).flatten()
}
