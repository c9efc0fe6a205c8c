//! Checks that any bytes of a server are events or are refused, and the same ones however the bytes are cut.
#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use tollway_wire::http::{
    EventDecoder, EventStreamError, LiveEvent, RecordingProgress, RecordingStart, ServerSentEvent,
};

use crate::pieces::ends;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let at_once = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(cut)), at_once);
    for event in &at_once.0 {
        read_again(event);
    }
});

/// Checks that an event that a client understands is one event again when it is encoded.
fn read_again(event: &ServerSentEvent) {
    let mut written = Vec::new();
    if let Ok(Some(parsed)) = LiveEvent::from_event(event) {
        parsed.put_event(&mut written);
    } else if let Ok(parsed) = RecordingStart::from_json(&event.data) {
        parsed.put_event(&mut written);
    } else if let Ok(parsed) = RecordingProgress::from_json(&event.data) {
        parsed.put_event(&mut written);
    } else {
        return;
    }
    assert_eq!(read(&written, written.len()).0.len(), 1);
}

/// Returns the events in `bytes`, which arrive `piece` at a time, and the error that ends them.
fn read(bytes: &[u8], piece: usize) -> (Vec<ServerSentEvent>, Option<EventStreamError>) {
    let (mut decoder, mut events) = (EventDecoder::default(), Vec::new());
    let mut start = 0;
    for end in ends(bytes.len(), piece) {
        decoder.push(&bytes[start..end]);
        start = end;
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}
