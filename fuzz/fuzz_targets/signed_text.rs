//! Checks that no bytes pass for a signed datagram of the text protocol, and that whatever is signed is read back.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollway_wire::text::{DATAGRAM_MAX, SignedRequest, SigningKey, SigningKeys};

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::new("web", &[7; 32]).expect("a key"));

fuzz_target!(|bytes: &[u8]| {
    if let Some(signed) = SignedRequest::split(bytes) {
        assert!(bytes.len() <= DATAGRAM_MAX && bytes.starts_with(signed.request));
        assert_eq!(signed.verify(&KEY), None, "nobody guesses a MAC");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = SigningKeys::parse(text);
    }
    let mut datagram = bytes.to_vec();
    let mac = KEY.sign_request(1_784_000_000_123, &mut datagram);
    assert_eq!(KEY.verify_reply(&mac, bytes), None, "nobody guesses a MAC");
    match SignedRequest::split(&datagram) {
        Some(signed) => assert_eq!((signed.request, signed.verify(&KEY)), (bytes, Some(mac))),
        None => assert!(datagram.len() > DATAGRAM_MAX),
    }
    let mut reply = bytes.to_vec();
    KEY.sign_reply(&mac, 0, &mut reply);
    let read = KEY.verify_reply(&mac, &reply).expect("a signature");
    assert!(reply.len() <= DATAGRAM_MAX && bytes.starts_with(read));
});
