//! What is wrong with a file, all of it, and where.

use std::error::Error;
use std::fmt;

/// A file with more wrong than this is another kind of file: the rest is only counted.
const ERRORS_MAX: usize = 1_000;

/// Everything that is wrong with one file, in the order a reader meets it. There is always at least one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    source: String,
    errors: Vec<ConfigError>,
    omitted: usize,
}

/// One thing that is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ConfigError {
    /// The line, counted from 1; 0 if the error is the file's as a whole.
    pub line: usize,
    /// The column in characters, counted from 1; 0 if the error is the file's as a whole.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
    /// What was written, and below it carets under the place, where a line and a column do not say it well enough.
    pub excerpt: Option<String>,
}

impl ConfigErrors {
    /// The one error of a file that could not even be looked into.
    pub(crate) fn whole_file(source: &str, message: String) -> Self {
        let error = ConfigError { line: 0, column: 0, message, excerpt: None };
        Self { source: source.to_owned(), errors: vec![error], omitted: 0 }
    }

    /// The name of the file, or of whatever else was read.
    pub fn source_name(&self) -> &str {
        &self.source
    }

    /// The errors, sorted by position.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }
}

/// One error a line, `policy.yaml:3:5: what is wrong`, and its excerpt below it.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            write!(f, "{end_of_last}{}:{error}", self.source)?;
        }
        if self.omitted > 0 {
            write!(f, "\n{}: and {} more", self.source, self.omitted)?;
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}

/// What stands after the name of the file: `3:5: what is wrong`, and the excerpt below it.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        write!(f, " {}", self.message)?;
        let mut excerpt = self.excerpt.iter().flat_map(|excerpt| excerpt.lines());
        excerpt.try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl ConfigError {
    pub(super) const fn new(at: Position, message: String) -> Self {
        Self { line: at.line, column: at.column, message, excerpt: None }
    }
}

/// A place in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// Where `text` ends.
    pub(super) fn after(text: &str) -> Self {
        let last_line = text.rsplit('\n').next().unwrap_or(text);
        Self { line: text.matches('\n').count() + 1, column: last_line.chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Collects what is found, in whatever order it is found.
#[derive(Default)]
pub(super) struct Errors {
    found: Vec<ConfigError>,
    omitted: usize,
}

impl Errors {
    pub(super) fn add(&mut self, at: Position, message: impl Into<String>) {
        self.push(ConfigError::new(at, message.into()));
    }

    pub(super) fn push(&mut self, error: ConfigError) {
        if self.is_full() {
            self.omitted += 1;
        } else {
            self.found.push(error);
        }
    }

    /// Is the next error only counted?
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= ERRORS_MAX
    }

    /// What was read, unless anything was wrong with it.
    pub(super) fn finish<T>(mut self, source: &str, read: Option<T>) -> Result<T, ConfigErrors> {
        match read {
            Some(read) if self.found.is_empty() => Ok(read),
            _ => {
                self.found.sort();
                Err(ConfigErrors { source: source.to_owned(), errors: self.found, omitted: self.omitted })
            }
        }
    }
}
