//! Writes to standard output, and maps errors of writing.

use std::io::{self, Write};

use thiserror::Error;

/// The error that standard output cannot be written.
#[derive(Debug, Error)]
#[error("cannot write to standard output")]
pub(crate) struct OutputError(#[from] io::Error);

impl OutputError {
    /// Returns whether the reader closed the pipe. That is no error to report.
    pub(crate) fn reader_left(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints these bytes unchanged, and a line end.
pub(crate) fn print_line(line: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(line).and_then(|()| out.write_all(b"\n"))?)
}
