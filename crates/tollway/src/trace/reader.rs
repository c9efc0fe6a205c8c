//! Reads the events of a trace from a stream, one at a time and in bounded memory.

use std::io::{self, BufRead, Read};

use thiserror::Error;
use tollway_core::Timestamp;

use super::{TraceError, TraceEvent, TraceProblem, parse_line};

/// The longest line that is read, in bytes. A bill with the most charges and long ids fits, and a stream without
/// newlines cannot fill the memory.
pub const LINE_MAX: usize = 65_536;

/// An error that ends the reading of a trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceReadError {
    /// A line is not valid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The stream cannot be read.
    #[error("{line}: this line cannot be read")]
    Io {
        /// The line that could not be read.
        line: u64,
        /// The error of the stream.
        source: io::Error,
    },
}

/// An iterator that yields the events of a stream. It ends after the first error; times that run back are an error.
#[derive(Debug)]
pub struct TraceReader<R> {
    stream: R,
    buffer: Vec<u8>,
    line: u64,
    bytes: u64,
    latest: Timestamp,
    done: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Returns a reader that starts at the current position of `stream`.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::new(), line: 0, bytes: 0, latest: Timestamp::EPOCH, done: false }
    }

    /// Returns the number of lines that have been read.
    pub const fn lines(&self) -> u64 {
        self.line
    }

    /// Returns the number of bytes that have been read.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_event(&mut self) -> Result<Option<TraceEvent>, TraceReadError> {
        while self.read_line()? {
            if let Some(event) = parse_line(&self.buffer, self.line)? {
                self.advance(&event)?;
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Reads the next line into the buffer. Returns false at the end of the stream.
    fn read_line(&mut self) -> Result<bool, TraceReadError> {
        self.buffer.clear();
        self.line += 1;
        let bound = (LINE_MAX + "\r\n".len()) as u64;
        let read = self.stream.by_ref().take(bound).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| TraceReadError::Io { line: self.line, source })?;
        self.bytes += read as u64;
        if self.buffer.trim_ascii_end().len() > LINE_MAX
            || (read as u64 == bound && !self.buffer.ends_with(b"\n"))
        {
            return Err(self.problem(LINE_MAX, TraceProblem::TooLong { max: LINE_MAX }).into());
        }
        if read == 0 {
            self.line -= 1;
        }
        Ok(read > 0)
    }

    fn advance(&mut self, event: &TraceEvent) -> Result<(), TraceError> {
        if event.at < self.latest {
            return Err(self.problem(0, TraceProblem::RunsBack { at: event.at, earlier: self.latest }));
        }
        self.latest = event.at;
        Ok(())
    }

    fn problem(&self, at: usize, problem: TraceProblem) -> TraceError {
        TraceError { line: self.line, column: at + 1, problem }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceEvent, TraceReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.read_event().transpose();
        self.done = !matches!(event, Some(Ok(_)));
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &[u8]) -> Vec<Result<u64, String>> {
        TraceReader::new(text)
            .map(|event| event.map(|event| event.line).map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn events_know_their_lines_whatever_ends_them() {
        let text = b"# a trace\n\n0s limit spend A:1\r\n\r\n0s limit spend A:1\n1s limit spend A:1";
        assert_eq!(lines_of(text), [Ok(3), Ok(5), Ok(6)]);
        assert_eq!(lines_of(b""), []);
        assert_eq!(lines_of(b"\n\n"), []);
    }

    #[test]
    fn time_never_runs_back() {
        let text = b"1s limit spend A:1\n1s limit spend A:1\n0.9s limit spend A:1\n2s limit spend A:1\n";
        let error = "3:1: times must not go back, but 0.9s comes after 1s".to_owned();
        assert_eq!(lines_of(text), [Ok(1), Ok(2), Err(error)]);
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_not_kept() {
        let fits = format!("0s limit spend A:{}\r\n", "x".repeat(LINE_MAX - 17));
        assert_eq!(lines_of(fits.as_bytes()), [Ok(1)]);
        let error = Err("1:65537: a line can have at most 65536 bytes".to_owned());
        for too_long in
            [format!("0s limit spend A:{}\n", "x".repeat(LINE_MAX - 16)), "#".repeat(10 * LINE_MAX)]
        {
            assert_eq!(lines_of(too_long.as_bytes()), std::slice::from_ref(&error));
        }
    }

    #[test]
    fn what_was_read_is_counted() {
        let mut reader = TraceReader::new(&b"0s limit spend A:1\n# end\n"[..]);
        assert_eq!(reader.by_ref().count(), 1);
        assert_eq!((reader.lines(), reader.bytes()), (2, 25));
    }
}
