//! Collects the errors of a configuration file, each with its line and column.

use std::error::Error;
use std::{fmt, io};

use crate::cause::Cause;

/// The most errors that are kept; further ones are only counted. A file with more is hardly a configuration at all.
const ERRORS_MAX: usize = 1_000;

/// All errors of one file, sorted by position. There is always at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    name: String,
    errors: Vec<ConfigError>,
    omitted: usize,
    /// The error of the system, for a file that could not be read or a store that could not be opened.
    source: Option<Cause>,
}

/// One error in a file, with a message that says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ConfigError {
    /// The line, counted from 1; 0 if the error concerns the whole file.
    pub line: usize,
    /// The column in characters, counted from 1; 0 if the error concerns the whole file.
    pub column: usize,
    /// The message, which says what is wrong and what would be right.
    pub message: String,
    /// The text in question with carets below the mistake. Only errors inside an expression have one.
    pub excerpt: Option<String>,
}

impl ConfigErrors {
    /// Returns one error that concerns the whole file.
    pub(crate) fn whole_file(name: &str, message: &str) -> Self {
        let error = ConfigError { line: 0, column: 0, message: message.to_owned(), excerpt: None };
        Self { name: name.to_owned(), errors: vec![error], omitted: 0, source: None }
    }

    /// Returns the same errors with the error of the system that caused them.
    pub(crate) fn caused_by(mut self, error: io::Error) -> Self {
        self.source = Some(Cause::new(error));
        self
    }

    /// Returns the name of the file, or of the other source that was read.
    pub fn source_name(&self) -> &str {
        &self.name
    }

    /// Returns the errors, sorted by position.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }
}

/// Writes one error a line, `policy.yaml:3:5: message`, and its excerpt below it. For a file that could not be read,
/// [`source`](Error::source) is the reason; [`ErrorChain`](tollway_core::ErrorChain) writes both.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            write!(f, "{end_of_last}{}:{error}", self.name)?;
        }
        if self.omitted > 0 {
            write!(f, "\n{}: and {} more", self.name, self.omitted)?;
        }
        Ok(())
    }
}

impl Error for ConfigErrors {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

/// Writes the part that follows the name of the file: `3:5: message`, and the excerpt below it.
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

/// A line and a column in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// Returns the position at which `text` ends.
    pub(super) fn end_of(text: &str) -> Self {
        let last_line = text.rsplit('\n').next().unwrap_or(text);
        Self { line: text.matches('\n').count() + 1, column: last_line.chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Collects errors in the order in which they are found, up to [`ERRORS_MAX`].
#[derive(Default)]
pub(super) struct ErrorCollector {
    found: Vec<ConfigError>,
    omitted: usize,
}

impl ErrorCollector {
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

    /// Returns whether the next error would only be counted.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= ERRORS_MAX
    }

    /// Returns what was read, or all errors sorted by position.
    pub(super) fn finish<T>(mut self, name: &str, read: Option<T>) -> Result<T, ConfigErrors> {
        match read {
            Some(read) if self.found.is_empty() => Ok(read),
            _ => {
                self.found.sort();
                let (name, errors, omitted) = (name.to_owned(), self.found, self.omitted);
                Err(ConfigErrors { name, errors, omitted, source: None })
            }
        }
    }
}
