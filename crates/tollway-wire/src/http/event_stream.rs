//! Reads server-sent events from the bytes of a response, however these are cut.
//!
//! ```text
//! event: snapshot
//! data: {"at":1700000001,…
//!                                   an empty line ends the event
//! : a comment, which is ignored
//! ```
//!
//! The fields `id` and `retry` are ignored: no gate sends them. Lines end with `\n` or `\r\n`.

use std::mem;

use thiserror::Error;

/// The longest event that is read, in bytes, and so the longest line. The history of 500 limits is a fifth of it.
pub const EVENT_MAX: usize = 4 << 20;

/// The name of an event that has none.
const UNNAMED: &str = "message";

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ServerSentEvent {
    /// The name of the event; `message` if it has none.
    pub name: String,
    /// The data of the event. A line break separates the texts of several `data` fields.
    pub data: String,
}

/// The reasons why a stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EventStreamError {
    /// An event is longer than any of a Tollway server.
    #[error("an event is longer than {EVENT_MAX} bytes")]
    TooLong,
    /// The name or the data of an event is not text.
    #[error("an event is not UTF-8")]
    NotText,
}

/// Splits a stream into events. It keeps at most one event that is not complete.
#[derive(Debug, Default)]
pub struct EventDecoder {
    /// The bytes that were received and not taken yet.
    received: Vec<u8>,
    /// The number of bytes at the start of `received` that have been taken.
    taken: usize,
    /// The number of bytes at the start of `received` that have no line end after those that were taken.
    searched: usize,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
}

impl EventDecoder {
    /// Adds bytes that have arrived. Take all events before the next call: then the memory is bounded by
    /// [`EVENT_MAX`] and the length of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.received.extend_from_slice(bytes);
    }

    /// Takes the next event, or returns `None` until all of it has arrived. An error is final.
    pub fn next_event(&mut self) -> Result<Option<ServerSentEvent>, EventStreamError> {
        while let Some(len) = self.received[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + len;
            let line = self.received[self.taken..end].to_vec();
            (self.taken, self.searched) = (end + 1, end + 1);
            if let Some(event) = self.line(line.strip_suffix(b"\r").unwrap_or(&line))? {
                return Ok(Some(event));
            }
        }
        self.searched = self.received.len();
        self.check_length(self.received.len() - self.taken)?;
        Ok(None)
    }

    /// Takes one line. Returns the event that it ends.
    fn line(&mut self, line: &[u8]) -> Result<Option<ServerSentEvent>, EventStreamError> {
        if line.is_empty() {
            return self.finish();
        }
        self.check_length(line.len())?;
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.name = value.to_vec(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            _ => {}
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Option<ServerSentEvent>, EventStreamError> {
        let (name, data) = (mem::take(&mut self.name), self.data.take());
        let Some(data) = data else { return Ok(None) };
        let text = |bytes| String::from_utf8(bytes).map_err(|_| EventStreamError::NotText);
        let name = if name.is_empty() { UNNAMED.to_owned() } else { text(name)? };
        Ok(Some(ServerSentEvent { name, data: text(data)? }))
    }

    /// Checks that an event does not get too long with this many bytes more.
    fn check_length(&self, more: usize) -> Result<(), EventStreamError> {
        let len = self.name.len() + self.data.as_ref().map_or(0, Vec::len) + more;
        if len > EVENT_MAX { Err(EventStreamError::TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the events in `bytes`, which arrive in pieces of this length, and the error that ends them.
    fn read(bytes: &[u8], piece: usize) -> (Vec<(String, String)>, Option<EventStreamError>) {
        let (mut decoder, mut events) = (EventDecoder::default(), Vec::new());
        for arrived in bytes.chunks(piece.max(1)) {
            decoder.push(arrived);
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) => events.push((event.name, event.data)),
                    Ok(None) => break,
                    Err(error) => return (events, Some(error)),
                }
            }
        }
        (events, None)
    }

    fn events(text: &str) -> Vec<(String, String)> {
        let (events, error) = read(text.as_bytes(), usize::MAX);
        assert_eq!(error, None);
        events
    }

    #[test]
    fn fields_are_read_and_the_rest_is_ignored() {
        let named = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        for (text, expected) in [
            ("event: a\ndata: 1\n\n", vec![named("a", "1")]),
            ("data:1\r\n\r\ndata: 2\n\n", vec![named("message", "1"), named("message", "2")]),
            ("data: 1\ndata\ndata:  3\n\n", vec![named("message", "1\n\n 3")]),
            (": comment\nid: 7\nretry: 1\ndata: x\n\n", vec![named("message", "x")]),
            ("event: a\n\ndata: 1\n\n", vec![named("message", "1")]),
            ("event: a\ndata: 1\n", vec![]),
            ("\n\n\n", vec![]),
        ] {
            assert_eq!(events(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_text_is_an_error() {
        let line = format!("data: {}", "x".repeat(EVENT_MAX));
        let lines = "data: 0123456789abcdef\n".repeat(EVENT_MAX / 16);
        for text in [line, lines] {
            assert_eq!(read(text.as_bytes(), 1 << 16).1, Some(EventStreamError::TooLong));
        }
        assert_eq!(read(b"data: \xff\n\n", 1).1, Some(EventStreamError::NotText));
    }

    proptest! {
        #[test]
        fn any_bytes_are_the_same_events_however_they_are_cut(
            bytes in prop::collection::vec(prop::sample::select(&b"event: data:\n\r\xff\xc3\xa9"[..]), 0..200),
            piece in 1_usize..20,
        ) {
            prop_assert_eq!(read(&bytes, piece), read(&bytes, usize::MAX));
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>(), piece in 1_usize..20) {
            read(&bytes, piece);
        }
    }
}
