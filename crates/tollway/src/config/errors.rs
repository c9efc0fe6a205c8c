//! Collects the errors of a configuration file, each with its line and column.

use std::error::Error;
use std::path::{Path, PathBuf};
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
    /// The file that has the mistake; `None` if it is the file that was read, and not one that `overrides` names.
    pub file: Option<String>,
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
        let message = message.to_owned();
        let error = ConfigError { file: None, line: 0, column: 0, message, excerpt: None };
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
            write!(f, "{end_of_last}{}:{error}", error.file.as_ref().unwrap_or(&self.name))?;
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
        Self { file: None, line: at.line, column: at.column, message, excerpt: None }
    }
}

/// A line and a column in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The number of the file in [`ErrorCollector`], which is 0 for the one that was read first.
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) const START: Self = Self::start_of(0);

    pub(super) const fn start_of(file: usize) -> Self {
        Self { file, line: 1, column: 1 }
    }

    /// Returns the position at which `text`, the beginning of a file, ends.
    pub(super) fn end_of(file: usize, text: &str) -> Self {
        let last_line = text.rsplit('\n').next().unwrap_or(text);
        Self { file, line: text.matches('\n').count() + 1, column: last_line.chars().count() + 1 }
    }
}

/// A file that a setting names: a certificate, a key or tokens. It is not read with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedFile {
    /// The path, relative to where the program runs.
    pub path: PathBuf,
    /// The line of the configuration that has it, counted from 1.
    pub line: usize,
    /// The column of the path in that line, in characters, counted from 1.
    pub column: usize,
}

/// Collects errors in the order in which they are found, up to [`ERRORS_MAX`].
pub(super) struct ErrorCollector {
    /// The names of the files that were read, in the order in which they were opened.
    files: Vec<String>,
    found: Vec<ConfigError>,
    omitted: usize,
    /// The files that settings name. A file has few settings that can name one.
    named: Vec<NamedFile>,
}

impl ErrorCollector {
    /// Returns a collector without errors, for the file with this name and those that it names.
    pub(super) fn new(file: &str) -> Self {
        Self { files: vec![file.to_owned()], found: Vec::new(), omitted: 0, named: Vec::new() }
    }

    /// Remembers where a setting names a file, for errors about what is in the file.
    pub(super) fn name_file(&mut self, path: &Path, at: Position) {
        let Position { line, column, .. } = at;
        self.named.push(NamedFile { path: path.to_owned(), line, column });
    }

    /// Returns the files that settings have named so far.
    pub(super) fn take_named_files(&mut self) -> Vec<NamedFile> {
        std::mem::take(&mut self.named)
    }

    /// Adds a file that another one names, and returns its number.
    pub(super) fn open_file(&mut self, name: String) -> usize {
        self.files.push(name);
        self.files.len() - 1
    }

    /// Returns a position as the text of an error names it: `3:5`, with the name of its file if there are several.
    pub(super) fn place(&self, at: Position) -> String {
        let Position { file, line, column } = at;
        if self.files.len() > 1 {
            format!("{}:{line}:{column}", self.files[file])
        } else {
            format!("{line}:{column}")
        }
    }

    pub(super) fn add(&mut self, at: Position, message: impl Into<String>) {
        self.push(self.warning(at, message.into()));
    }

    pub(super) fn push(&mut self, error: ConfigError) {
        if self.is_full() {
            self.omitted += 1;
        } else {
            self.found.push(error);
        }
    }

    /// Returns a warning, which names its file if that is not the one that was read first.
    pub(super) fn warning(&self, at: Position, message: String) -> ConfigError {
        ConfigError {
            file: (at.file > 0).then(|| self.files[at.file].clone()),
            ..ConfigError::new(at, message)
        }
    }

    /// Returns whether no error was found.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns whether the next error would only be counted.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= ERRORS_MAX
    }

    /// Returns what was read, or all errors sorted by position.
    pub(super) fn finish<T>(mut self, read: Option<T>) -> Result<T, ConfigErrors> {
        match read {
            Some(read) if self.found.is_empty() => Ok(read),
            _ => {
                self.found.sort();
                let (name, errors, omitted) = (self.files.swap_remove(0), self.found, self.omitted);
                Err(ConfigErrors { name, errors, omitted, source: None })
            }
        }
    }
}
