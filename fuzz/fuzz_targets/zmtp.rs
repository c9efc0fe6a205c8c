//! Checks that any bytes of a ZeroMQ peer mean the same however they are cut, and that gatekeepers' messages read back
//! as they were encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::smockron::{AccountingMessage, ControlMessage};
use tollway_wire::zmtp::{MESSAGE_MAX, SocketType, ZmtpEvent, ZmtpSession, encode_handshake};

fuzz_target!(|input: (bool, bool, u8, &[u8])| {
    let (publishes, opened, piece, bytes) = input;
    let (ours, theirs) =
        if publishes { (SocketType::Pub, SocketType::Sub) } else { (SocketType::Sub, SocketType::Pub) };
    let mut stream = Vec::new();
    if opened {
        encode_handshake(theirs, &mut stream);
    }
    stream.extend_from_slice(bytes);
    assert_eq!(heard(ours, &stream, stream.len()), heard(ours, &stream, usize::from(piece)));
});

/// Returns the events that are read from `bytes`, which arrive `piece` at a time.
fn heard(ours: SocketType, bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut conversation, mut start, mut heard) = (ZmtpSession::new(ours), 0, Vec::new());
    for end in (0..bytes.len()).step_by(piece.max(1)).skip(1).chain([bytes.len()]) {
        loop {
            match conversation.next(&bytes[start..end.max(start)]) {
                Ok(Some((said, len))) => {
                    assert!(len <= MESSAGE_MAX + 9);
                    if let ZmtpEvent::Message(frames) = &said {
                        read_again(frames.clone().collect());
                    }
                    heard.push(format!("{said:?}"));
                    start += len;
                }
                Ok(None) => break,
                Err(error) => {
                    heard.push(error.to_string());
                    return heard;
                }
            }
        }
    }
    heard
}

fn read_again(frames: Vec<&[u8]>) {
    let mut bytes = Vec::new();
    if let Ok(accounting) = AccountingMessage::decode(frames.iter().copied()) {
        accounting.encode(&mut bytes);
        with_frames(&bytes, |frames| assert_eq!(AccountingMessage::decode(frames), Ok(accounting)));
    }
    bytes.clear();
    if let Ok(control) = ControlMessage::decode(frames) {
        control.encode(&mut bytes);
        with_frames(&bytes, |frames| assert_eq!(ControlMessage::decode(frames), Ok(control)));
    }
}

fn with_frames(message: &[u8], check: impl FnOnce(Vec<&[u8]>)) {
    let mut stream = Vec::new();
    encode_handshake(SocketType::Pub, &mut stream);
    stream.extend_from_slice(message);
    let (mut conversation, mut rest) = (ZmtpSession::new(SocketType::Sub), &stream[..]);
    while let Ok(Some((said, len))) = conversation.next(rest) {
        if let ZmtpEvent::Message(frames) = said {
            return check(frames.collect());
        }
        rest = &rest[len..];
    }
}
