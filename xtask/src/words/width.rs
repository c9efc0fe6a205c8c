//! Finds lines of prose that are too wide, in Markdown, in doc comments and in Python.
//!
//! Tables, code blocks and lines that cannot be broken because of a link or a long word may be wider.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Finding, files_in, summary};

/// The widest that a line of prose may be, in characters.
pub const WIDTH_MAX: usize = 120;

/// Lists the Markdown pages of the project, at the root and in `docs/`, and the files of the Python package.
pub fn pages(root: &Path) -> io::Result<Vec<PathBuf>> {
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut pages: Vec<_> = names.iter().map(|name| root.join(name)).collect();
    pages.extend(files_in(&root.join("docs"), "md")?);
    pages.extend(files_in(&root.join("crates/tollway-python/python"), "py")?);
    Ok(pages)
}

/// Lists the lines of prose in these files that are too wide: Markdown, doc comments of Rust, and all lines of Python.
pub fn too_wide(files: &[PathBuf]) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(in_text(file, &fs::read_to_string(file)?));
    }
    Ok(findings)
}

fn in_text(file: &Path, text: &str) -> Vec<Finding> {
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    let mut in_code = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let prose = if is_rust { prose_of_comment(line) } else { Some(line.trim()) };
        let Some(prose) = prose else {
            in_code = false;
            continue;
        };
        if prose.starts_with("```") || prose.starts_with("~~~") {
            in_code = !in_code;
        } else if !in_code && line.chars().count() > WIDTH_MAX && could_be_wrapped(line, prose) {
            let text = format!("{} columns: {prose}", line.chars().count());
            findings.push(Finding { file: file.to_owned(), line: index + 1, text });
        }
    }
    findings
}

/// Returns the text of a line of a doc comment or comment, or `None` if the line is code.
fn prose_of_comment(line: &str) -> Option<&str> {
    let line = line.trim();
    match summary::marker(line) {
        Some(marker) => Some(line[marker.len()..].trim()),
        None => line.strip_prefix("//").map(str::trim),
    }
}

/// Returns whether the line is prose with a blank before the limit, so that it could be wrapped.
fn could_be_wrapped(line: &str, prose: &str) -> bool {
    let has_link = prose.contains("](") || prose.contains("://");
    let is_reference = prose.starts_with('[') && prose.contains("]:");
    let mut words = prose.split_whitespace();
    let is_one_word = words.nth(1).is_none();
    let is_exempt = prose.starts_with('|') || is_reference || is_one_word;
    !(is_exempt || has_link && ends_in_a_link(line))
}

/// Returns whether a link crosses the limit, so that wrapping before it would leave a short line.
fn ends_in_a_link(line: &str) -> bool {
    let cut: String = line.chars().take(WIDTH_MAX).collect();
    let last_word_start = cut.rfind(' ').map_or(0, |at| at + 1);
    let crossing = line[last_word_start..].split_whitespace().next().unwrap_or_default();
    let is_last = line[last_word_start..].trim().len() == crossing.len();
    is_last && (crossing.contains("](") || crossing.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_code_and_long_links_may_be_wide() {
        let wide = "word ".repeat(30);
        let link = format!("{} [x](https://example.org/{})", "w ".repeat(20), "y".repeat(100));
        let text = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n{link}\n");
        let lines: Vec<_> = in_text(Path::new("a.md"), &text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
        let rust = format!("/// {wide}\nlet a = \"{wide}\";\n");
        assert_eq!(in_text(Path::new("a.rs"), &rust).len(), 1);
    }
}
