//! Tests of ZMTP and Smockron with anything that a peer may send.

use proptest::prelude::*;
use tollway_wire::smockron::{AccountingMessage, ControlMessage};
use tollway_wire::zmtp::{self, MESSAGE_MAX, SocketType, ZmtpError, ZmtpEvent, ZmtpSession};

/// Returns a session whose handshake is complete.
fn ready(ours: SocketType) -> ZmtpSession {
    let theirs = if ours == SocketType::Pub { SocketType::Sub } else { SocketType::Pub };
    let mut handshake = Vec::new();
    zmtp::encode_handshake(theirs, &mut handshake);
    let mut session = ZmtpSession::new(ours);
    let events = events(&mut session, &handshake);
    assert_eq!(events, Ok(vec!["Greeting".to_owned(), "Ready".to_owned()]));
    assert!(session.is_ready());
    session
}

/// Decodes all events in `inbox`, and returns them as text.
fn events(session: &mut ZmtpSession, mut inbox: &[u8]) -> Result<Vec<String>, ZmtpError> {
    let mut events = Vec::new();
    while let Some((event, len)) = session.next(inbox)? {
        events.push(match event {
            ZmtpEvent::Message(frames) => {
                frames.map(|frame| frame.escape_ascii().to_string()).collect::<Vec<_>>().join("|")
            }
            ZmtpEvent::Subscribe(topic) => format!("+{}", topic.escape_ascii()),
            ZmtpEvent::Cancel(topic) => format!("-{}", topic.escape_ascii()),
            ZmtpEvent::Ping(context) => format!("ping {}", context.escape_ascii()),
            other => format!("{other:?}"),
        });
        inbox = &inbox[len..];
    }
    Ok(events)
}

#[test]
fn a_subscriber_says_what_it_wants_in_either_version() {
    let inbox = b"\x00\x01\x01\x00\x04\x01abc\x04\x0d\x09SUBSCRIBEdef\x00\x04\x00abc\x04\x0a\x06CANCELdef\
        \x04\x09\x04PING\x00\x0ahi\x04\x05\x04PONG\x00\x02xx\x01\x01a\x00\x01b";
    let events = events(&mut ready(SocketType::Pub), inbox).unwrap();
    assert_eq!(events, ["+", "+abc", "+def", "-abc", "-def", "ping hi", "Ignored", "Ignored", "a|b"]);
}

#[test]
fn a_publisher_sends_messages_of_any_frames() {
    let long = vec![b'x'; 300];
    let mut inbox = Vec::new();
    zmtp::encode(&[b"\x01one"], &mut inbox);
    zmtp::encode(&[b"", b"", b""], &mut inbox);
    zmtp::encode(&[&long, b"end"], &mut inbox);
    let events = events(&mut ready(SocketType::Sub), &inbox).unwrap();
    assert_eq!(events, ["\\x01one".to_owned(), "||".to_owned(), format!("{}|end", "x".repeat(300))]);
}

#[test]
fn who_is_no_peer_is_told_from_the_first_bytes_that_show_it() {
    let mut handshake = Vec::new();
    zmtp::encode_handshake(SocketType::Pub, &mut handshake);
    let with = |at: usize, byte: u8| {
        let mut bytes = handshake.clone();
        bytes[at] = byte;
        events(&mut ZmtpSession::new(SocketType::Sub), &bytes)
    };
    let start = |bytes: &[u8]| events(&mut ZmtpSession::new(SocketType::Sub), bytes);
    assert_eq!(start(b"GET / HTTP/1.1\r\n"), Err(ZmtpError::NotZmtp));
    assert_eq!(start(&handshake[..63]), Ok(vec![]));
    assert_eq!(start(b"\xff\0\0\0\0\0\0\0\x01\x7f\x01"), Err(ZmtpError::Version { major: 1 }));
    assert_eq!(with(12, b'C'), Err(ZmtpError::Mechanism));
    assert_eq!(with(64, 0), Err(ZmtpError::NotReady));
    let (found, ours) = (SocketType::Pub, SocketType::Pub);
    assert_eq!(
        events(&mut ZmtpSession::new(ours), &handshake),
        Err(ZmtpError::SocketType { found, ours }),
        "two publishers have nothing to say"
    );
}

#[test]
fn no_announced_length_is_believed() {
    let mut session = ready(SocketType::Sub);
    for len in [MESSAGE_MAX as u64 + 1, 1 << 40, u64::MAX] {
        let head = [&[2][..], &len.to_be_bytes()].concat();
        assert_eq!(session.next(&head).err(), Some(ZmtpError::TooLong), "{len}");
    }
    let endless = [1, 0].repeat(MESSAGE_MAX / 2);
    assert_eq!(session.next(&endless).err(), Some(ZmtpError::TooLong), "frames without end");
    let most = vec![0; MESSAGE_MAX - 9];
    let mut whole = Vec::new();
    zmtp::encode(&[&most], &mut whole);
    assert!(session.next(&whole).unwrap().is_some());
}

proptest! {
    #[test]
    fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for ours in [SocketType::Pub, SocketType::Sub] {
            let _ = events(&mut ZmtpSession::new(ours), &bytes);
            let _ = events(&mut ready(ours), &bytes);
        }
    }

    /// The events do not depend on how the stream is cut into pieces.
    #[test]
    fn messages_arrive_in_pieces(
        messages in proptest::collection::vec(proptest::collection::vec("[ -~]{0,300}", 1..7), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            let frames: Vec<&[u8]> = message.iter().map(|frame| frame.as_bytes()).collect();
            zmtp::encode(&frames, &mut bytes);
        }
        let whole = events(&mut ready(SocketType::Sub), &bytes).unwrap();
        prop_assert_eq!(whole.len(), messages.len());
        let mut session = ready(SocketType::Sub);
        let early = events(&mut session, &bytes[..cut.index(bytes.len() + 1)]).unwrap();
        prop_assert_eq!(&whole[..early.len()], &early[..]);
    }

    #[test]
    fn any_frames_are_accounting_or_not(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8),
        status in prop::sample::select(&["ACCEPTED", "DELAYED", "REJECTED"][..]),
        times in ("[0-9.]{0,25}", "[0-9.]{0,25}"),
    ) {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let _ = AccountingMessage::decode(frames.iter().copied());
        let _ = ControlMessage::decode(frames.iter().copied());
        let nearly = [b"d\0", status.as_bytes(), b"id", times.0.as_bytes(), times.1.as_bytes()];
        if let Ok(accounting) = AccountingMessage::decode(nearly) {
            prop_assert_eq!(accounting.status.name(), status);
        }
    }
}

#[test]
fn what_was_encoded_is_split_into_messages() {
    let mut bytes = Vec::new();
    zmtp::encode(&[b"a", b"b"], &mut bytes);
    let first = bytes.len();
    zmtp::encode(&[b"c"], &mut bytes);
    let messages: Vec<_> = zmtp::messages(&bytes).collect();
    assert_eq!(messages.len(), 2);
    assert_eq!((messages[0].as_bytes(), messages[1].as_bytes()), bytes.split_at(first));
    assert!(messages[0].clone().eq([b"a", b"b"]) && messages[1].clone().eq([b"c"]));
    // A message that has not arrived as a whole is none.
    assert_eq!(zmtp::messages(&bytes[..bytes.len() - 1]).count(), 1);
    assert_eq!(zmtp::messages(&bytes[..first - 1]).count(), 0);
}

#[test]
fn a_subscriber_and_a_publisher_understand_what_the_other_encodes() {
    let mut inbox = Vec::new();
    zmtp::encode_subscription(b"default", &mut inbox);
    assert_eq!(events(&mut ready(SocketType::Pub), &inbox).unwrap(), ["+default"]);
    let mut inbox = Vec::new();
    zmtp::encode_pong(b"hi", &mut inbox);
    assert_eq!(inbox, b"\x04\x07\x04PONGhi");
    assert_eq!(events(&mut ready(SocketType::Sub), &inbox).unwrap(), ["Ignored"]);
}

#[test]
fn a_message_of_many_frames_has_the_same_bound() {
    let frame = vec![b'x'; MESSAGE_MAX / 2];
    let mut inbox = Vec::new();
    zmtp::encode(&[&frame, &frame, b"end"], &mut inbox);
    assert_eq!(events(&mut ready(SocketType::Sub), &inbox), Err(ZmtpError::TooLong));
    // A command does not come between the frames of a message.
    let inbox = b"\x01\x01a\x04\x05\x04PONG\x00\x01b";
    assert_eq!(events(&mut ready(SocketType::Sub), inbox), Err(ZmtpError::Malformed));
}
