//! Checks that any frames are a message of a gatekeeper or of a master, or an error, and that a message reads back as
//! it was encoded. A line break ends a frame, so that a short input has all frames of a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::smockron::{AccountingMessage, ControlMessage};
use tollway_wire::zmtp::messages;

fuzz_target!(|bytes: &[u8]| {
    let frames = || bytes.split(|byte| *byte == b'\n');
    let mut encoded = Vec::new();
    if let Ok(accounting) = AccountingMessage::decode(frames()) {
        accounting.encode(&mut encoded);
        let message = messages(&encoded).next().expect("one message");
        assert_eq!(message.as_bytes().len(), encoded.len());
        assert_eq!(AccountingMessage::decode(message), Ok(accounting));
    }
    encoded.clear();
    if let Ok(control) = ControlMessage::decode(frames()) {
        control.encode(&mut encoded);
        let message = messages(&encoded).next().expect("one message");
        assert_eq!(message.as_bytes().len(), encoded.len());
        assert_eq!(ControlMessage::decode(message), Ok(control));
    }
});
