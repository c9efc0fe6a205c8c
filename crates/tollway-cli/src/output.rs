//! Standard output, and what it means that it cannot be written.

use std::io::{self, Write};

use thiserror::Error;

/// Standard output took no more.
#[derive(Debug, Error)]
#[error("cannot write to standard output")]
pub(crate) struct OutputError(#[from] io::Error);

impl OutputError {
    /// Did whoever was reading leave? That is their right, and no fault to report.
    pub(crate) fn reader_left(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints bytes that came from elsewhere as they are, and ends the line.
pub(crate) fn print_line(line: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(line).and_then(|()| out.write_all(b"\n"))?)
}
