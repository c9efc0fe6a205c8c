//! Checks that any bytes of a server are events or are refused, and the same ones however the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::http::{EventDecoder, EventStreamError, LiveEvent, ServerSentEvent};

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let at_once = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(cut)), at_once);
    for event in &at_once.0 {
        if let Ok(Some(parsed)) = LiveEvent::from_event(event) {
            let mut written = Vec::new();
            parsed.put_event(&mut written);
            assert_eq!(read(&written, written.len()).0.len(), 1);
        }
    }
});

/// Returns the events in `bytes`, which arrive `piece` at a time, and the error that ends them.
fn read(bytes: &[u8], piece: usize) -> (Vec<ServerSentEvent>, Option<EventStreamError>) {
    let (mut decoder, mut events) = (EventDecoder::default(), Vec::new());
    for arrived in bytes.chunks(piece.max(1)) {
        decoder.push(arrived);
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
