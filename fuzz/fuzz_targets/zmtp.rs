//! Checks that any bytes of a ZeroMQ peer mean the same however they are cut.
#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use tollway_wire::zmtp::{MESSAGE_MAX, SocketType, ZmtpError, ZmtpEvent, ZmtpSession, encode_handshake};

use crate::pieces::ends;

fuzz_target!(|input: (bool, bool, u8, &[u8])| {
    let (publishes, opened, piece, bytes) = input;
    let (ours, theirs) =
        if publishes { (SocketType::Pub, SocketType::Sub) } else { (SocketType::Sub, SocketType::Pub) };
    let mut stream = Vec::new();
    if opened {
        encode_handshake(theirs, &mut stream);
    }
    stream.extend_from_slice(bytes);
    assert_eq!(read(ours, &stream, stream.len()), read(ours, &stream, usize::from(piece)));
});

/// An event with the bytes of it that a reader uses.
#[derive(Debug, PartialEq)]
enum Read<'a> {
    Handshake,
    Message(&'a [u8], usize),
    Subscribe(&'a [u8]),
    Cancel(&'a [u8]),
    Ping(&'a [u8]),
    Ignored,
}

/// Returns the events of `bytes`, which arrive `piece` at a time, and the error that ends them.
fn read(ours: SocketType, bytes: &[u8], piece: usize) -> (Vec<Read<'_>>, Option<ZmtpError>) {
    let (mut session, mut start, mut events) = (ZmtpSession::new(ours), 0, Vec::new());
    for end in ends(bytes.len(), piece) {
        loop {
            match session.next(&bytes[start..end.max(start)]) {
                Ok(Some((event, len))) => {
                    assert!(len <= MESSAGE_MAX + 9);
                    events.push(match event {
                        ZmtpEvent::Greeting | ZmtpEvent::Ready => Read::Handshake,
                        ZmtpEvent::Message(frames) => {
                            let (message, frames_len) = (frames.as_bytes(), frames.clone().count());
                            assert_eq!(message.len(), len);
                            Read::Message(message, frames_len)
                        }
                        ZmtpEvent::Subscribe(topic) => Read::Subscribe(topic),
                        ZmtpEvent::Cancel(topic) => Read::Cancel(topic),
                        ZmtpEvent::Ping(context) => Read::Ping(context),
                        ZmtpEvent::Ignored => Read::Ignored,
                    });
                    start += len;
                }
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}
