//! The result of an import: limits, and what could not be carried over.

use std::collections::HashSet;
use std::fmt::Write;

/// The width of comments, in characters.
const WIDTH: usize = 110;

/// The place where a word begins in a file, both from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A mistake that keeps a file from being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportError {
    pub(crate) at: Position,
    pub(crate) message: String,
}

impl ImportError {
    pub(crate) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// Something that the configuration does not say, with the reason and a way to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Its place, if it has one.
    pub(crate) at: Option<Position>,
    pub(crate) text: String,
}

/// Everything that was found in a file.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    pub(crate) limits: Vec<ImportedLimit>,
    pub(crate) left_out: Vec<LeftOut>,
    names: HashSet<String>,
}

/// One limit that the configuration will have.
#[derive(Debug)]
pub(crate) struct ImportedLimit {
    pub(crate) name: String,
    /// The lines above it.
    pub(crate) comments: Vec<String>,
    /// Its fields, as YAML writes them between braces.
    pub(crate) fields: String,
}

impl Imported {
    /// Lists something that is at a place of the file, or at none in particular.
    pub(crate) fn leave_out(&mut self, at: impl Into<Option<Position>>, text: impl Into<String>) {
        self.left_out.push(LeftOut { at: at.into(), text: text.into() });
    }

    /// Returns a name that a limit may have, close to `wanted`, and that no other one has.
    pub(crate) fn name(&mut self, wanted: &str) -> String {
        let fits = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
        let name: String = wanted.chars().map(|each| if fits(each) { each } else { '-' }).collect();
        let first = name.chars().next();
        let name = if first.is_some_and(|first| first.is_ascii_alphabetic()) {
            name
        } else {
            format!("limit-{name}")
        };
        let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.names.contains(name));
        let free = free.unwrap_or(name);
        self.names.insert(free.clone());
        free
    }

    /// Returns the import if it has a limit. Otherwise `why` is an error, and so is everything that was left out.
    pub(crate) fn finish(self, why: &str) -> Result<Self, Vec<ImportError>> {
        if !self.limits.is_empty() {
            return Ok(self);
        }
        let start = Position { line: 1, column: 1 };
        let left_out = self.left_out.into_iter().map(|LeftOut { at, text }| {
            ImportError::new(at.unwrap_or(start), format!("not carried over: {text}"))
        });
        let why = ImportError::new(start, format!("{why}, so there is nothing to convert"));
        Err(std::iter::once(why).chain(left_out).collect())
    }

    /// Returns the configuration. What was left out is a comment at its top.
    pub(crate) fn to_yaml(&self, file: &str) -> String {
        let mut yaml = format!("# Imported from {}.\n", printable(file));
        if !self.left_out.is_empty() {
            yaml.push_str("#\n# Not carried over:\n");
        }
        for LeftOut { at, text } in &self.left_out {
            let place = at.map(|at| format!("line {}: ", at.line)).unwrap_or_default();
            add_comment(&mut yaml, "# - ", "#   ", &format!("{place}{text}"));
        }
        yaml.push_str("\nlimits:\n");
        for limit in &self.limits {
            for comment in &limit.comments {
                add_comment(&mut yaml, "  # ", "  #   ", comment);
            }
            let _ = writeln!(yaml, "  {}: {{ {} }}", limit.name, limit.fields);
        }
        yaml
    }
}

/// Adds the lines of a comment. A word that is longer than a line is on a line of its own.
fn add_comment(yaml: &mut String, first: &str, following: &str, text: &str) {
    let (mut line, mut is_empty) = (first.to_owned(), true);
    for word in printable(text).split_whitespace() {
        if !is_empty && line.chars().count() + word.chars().count() >= WIDTH {
            yaml.push_str(line.trim_end());
            yaml.push('\n');
            (line, is_empty) = (following.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    yaml.push_str(line.trim_end());
    yaml.push('\n');
}

/// Escapes what would end a line or confuse a terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' | ' '..='~' => printable.push(character),
            _ if character.is_alphanumeric() => printable.push(character),
            _ => printable.extend(character.escape_default()),
        }
    }
    printable
}
