//! Property tests of the text codec: any datagram decodes or is ignored, and replies have a bounded length.

use std::borrow::Cow;

use proptest::prelude::*;
use tollway_wire::text::{
    CheckKey, CheckLimit, DATAGRAM_MAX, KeyStats, OverLimit, ReceivedReply, TextCommand, TextReply,
    TextRequest, decode, decode_reply, encode,
};

#[test]
fn every_command_of_every_size_gets_what_the_protocol_demands() {
    for size in 0..=1100 {
        let rest = vec![b'x'; size];
        for id in [&b""[..], b"7 ", b"000867465 ", b"123456789012345678901 "] {
            for command in ["over_limit ", "get_stats "] {
                let datagram = [id, command.as_bytes(), &rest].concat();
                let key = &rest[..size.min(DATAGRAM_MAX - id.len() - command.len())];
                let request = decode(&datagram).expect("a key of any size is one");
                match request.command {
                    TextCommand::OverLimit { key: got } | TextCommand::GetStats { key: got } => {
                        assert_eq!(got, key)
                    }
                    other => panic!("{other:?}"),
                }
                assert_eq!(request.id, id.strip_suffix(b" "), "{size}");
            }
            for command in ["ping", "get_size"] {
                let datagram = [id, command.as_bytes(), &rest].concat();
                assert_eq!(decode(&datagram).is_some(), size == 0, "{command} and {size} bytes");
            }
            let json = format!(r#"{{"ip":"{}"}}"#, "x".repeat(size));
            let datagram = [id, b"check_limit ", json.as_bytes()].concat();
            assert_eq!(decode(&datagram).is_some(), datagram.len() <= DATAGRAM_MAX, "JSON and {size} bytes");
        }
        assert_eq!(decode(&rest), None);
        let digits = vec![b'1'; size];
        assert_eq!(decode(&digits), None);
        let request = [&digits[..], b" ping"].concat();
        assert_eq!(decode(&request).is_some(), (1..=DATAGRAM_MAX - 5).contains(&size), "{size} digits");
    }
}

/// Generates text that is close to a command. Random bytes alone hardly ever are.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("over_limit "),
        Just("get_stats "),
        Just("check_limit "),
        Just("get_size"),
        Just("ping"),
        Just("\n"),
        Just(" "),
        Just("7 "),
        Just(r#"{"origin":"#),
        Just(r#""ua":"#),
        Just(r#""a\n\"\u00e9","#),
        Just("null}"),
        Just(r#""}"#),
    ];
    let part = prop_oneof![
        4 => word.prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..600),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn id() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of("[0-9]{1,30}".prop_map(String::into_bytes))
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("a newline ends a key", |byte| *byte != b'\n');
    prop::collection::vec(byte, 0..900)
}

fn over_limit() -> impl Strategy<Value = OverLimit> {
    (any::<bool>(), any::<f64>(), 0u32..50_000, any::<u64>()).prop_map(|(over, rate, limit, period)| {
        OverLimit::new(over, rate.abs().min(1e15), f64::from(limit) / 10.0, period)
    })
}

/// Returns the result with its rate rounded to one decimal, as it is after encoding.
fn shown(over_limit: OverLimit) -> OverLimit {
    let OverLimit { over, rate, limit, period, .. } = over_limit;
    OverLimit::new(over, format!("{rate:.1}").parse().expect("a decimal"), limit, period)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn whatever_is_understood_is_understood_again(datagram in datagram()) {
        let Some(request) = decode(&datagram) else { return Ok(()) };
        let mut again = Vec::new();
        request.encode(&mut again);
        // A `check_limit` may be too long once its defaults are written out.
        if again.len() <= DATAGRAM_MAX {
            prop_assert_eq!(decode(&again), Some(request));
        }
    }

    #[test]
    fn only_the_first_thousand_bytes_count(datagram in datagram(), more in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut longer = datagram.clone();
        longer.resize(longer.len().max(DATAGRAM_MAX), b' ');
        let cut = longer[..DATAGRAM_MAX].to_vec();
        longer.extend(more);
        prop_assert_eq!(decode(&longer), decode(&cut));
    }

    #[test]
    fn messages_survive_the_wire(
        id in id(),
        key in key(),
        [origin, ua, ip] in [".{0,20}", ".{0,40}", "[\\x00-\\x7f\"\\\\]{0,40}"],
    ) {
        let check = CheckLimit { origin: Cow::Owned(origin), ua: Cow::Owned(ua), ip: Cow::Owned(ip) };
        for command in [
            TextCommand::OverLimit { key: &key },
            TextCommand::GetStats { key: &key },
            TextCommand::CheckLimit(check),
            TextCommand::GetSize,
            TextCommand::Ping,
        ] {
            let request = TextRequest { id: id.as_deref(), command };
            let mut datagram = Vec::new();
            request.encode(&mut datagram);
            prop_assert_eq!(decode(&datagram), Some(request));
        }
    }

    #[test]
    fn replies_survive_the_wire(
        id in id(),
        key in key(),
        [n_req, n_over, last_max_rate, size] in any::<[u64; 4]>(),
        tried in prop::collection::vec(over_limit(), 1..=3),
    ) {
        let stats = KeyStats::new(n_req, n_over, last_max_rate);
        let keys: [&[u8]; 3] = [&key, b"ws ip=192.0.2.1", b"ws global"];
        let last = shown(tried[tried.len() - 1]);
        let answer_to_check = |datagram: &[u8]| {
            let (_, answer) = decode_reply(datagram)?;
            if let ReceivedReply::CheckLimit { last, keys } = answer { Some((last, keys.starts_with(b"["))) } else { None }
        };
        for (reply, answer) in [
            (TextReply::OverLimit(tried[0]), Some(ReceivedReply::OverLimit(shown(tried[0])))),
            (TextReply::Stats { stats, key: &key }, Some(ReceivedReply::Stats { stats, key: &key })),
            (TextReply::Size { keys: size }, Some(ReceivedReply::Size { keys: size })),
            (TextReply::Pong, Some(ReceivedReply::Pong)),
            (TextReply::CheckLimit { keys, tried: &tried }, None),
        ] {
            let mut datagram = Vec::new();
            encode(id.as_deref(), &reply, &mut datagram);
            prop_assert!(datagram.len() <= DATAGRAM_MAX);
            match answer {
                Some(ReceivedReply::Stats { .. }) if datagram.len() == DATAGRAM_MAX => {}
                Some(answer) => prop_assert_eq!(decode_reply(&datagram), Some((id.as_deref(), answer))),
                None => prop_assert_eq!(answer_to_check(&datagram), Some((last, true))),
            }
        }
    }

    #[test]
    fn no_reply_is_over_a_thousand_bytes(
        id in prop::option::of(prop::collection::vec(b'0'..=b'9', 1..1100)),
        keys in prop::array::uniform3(prop::collection::vec(any::<u8>(), 0..1100)),
        tried in prop::collection::vec(over_limit(), 0..=3),
    ) {
        let [first, second, third] = &keys;
        for reply in [
            TextReply::Stats { stats: KeyStats::new(1, 1, 1), key: first },
            TextReply::CheckLimit { keys: [first, second, third], tried: &tried },
            TextReply::Pong,
        ] {
            let mut out = vec![0; 100];
            encode(id.as_deref(), &reply, &mut out);
            prop_assert!(out.len() <= 100 + DATAGRAM_MAX && out[..100] == [0; 100]);
        }
    }

    #[test]
    fn any_bytes_are_a_reply_or_none(bytes in prop::collection::vec(any::<u8>(), 0..1100), datagram in "([0-9]{0,3} )?(ok [YN]|n_req=|size=)[0-9 .,=a-z_]{0,40}") {
        let _ = decode_reply(&bytes);
        let _ = decode_reply(datagram.as_bytes());
    }

    #[test]
    fn the_keys_of_a_check_are_made_of_its_parts([origin, ua, ip] in [".{0,20}", ".{0,20}", ".{0,20}"]) {
        let check = CheckLimit { origin: Cow::Borrowed(&origin), ua: Cow::Borrowed(&ua), ip: Cow::Borrowed(&ip) };
        let expected = [format!("{origin} ua={ua}"), format!("{origin} ip={ip}"), format!("{origin} global")];
        for (which, expected) in CheckKey::ALL.into_iter().zip(expected) {
            let mut key = Vec::new();
            check.put_key(which, &mut key);
            prop_assert_eq!(String::from_utf8(key), Ok(expected));
        }
    }
}

#[cfg(feature = "hmac")]
mod signatures {
    use proptest::prelude::*;
    use tollway_wire::text::{DATAGRAM_MAX, SignedRequest, SigningKey, SigningKeys};

    fn signing_key(secret: u8) -> SigningKey {
        SigningKey::new("web", &[secret; 32]).expect("a key")
    }

    /// Generates text that is close to a signed datagram.
    fn datagram() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just("\nsigned ".to_owned()),
            Just("web ".to_owned()),
            Just(" ".to_owned()),
            "[0-9]{1,21} ",
            "[0-9a-fA-F]{64}",
            "[0-9a-g]{60,68}",
            ".{0,300}",
        ];
        let text = prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat().into_bytes());
        prop_oneof![text, prop::collection::vec(any::<u8>(), 0..1100)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

        #[test]
        fn any_bytes_are_split_and_refused_without_a_panic(datagram in datagram(), text in ".{0,200}") {
            if let Some(signed) = SignedRequest::split(&datagram) {
                prop_assert!(datagram.len() <= DATAGRAM_MAX && datagram.starts_with(signed.request));
                prop_assert_eq!(signed.verify(&signing_key(1)), None);
            }
            let mac = signing_key(1).sign_request(0, &mut b"ping".to_vec());
            prop_assert_eq!(signing_key(1).verify_reply(&mac, &datagram), None);
            let _ = SigningKeys::parse(&text);
        }

        #[test]
        fn a_signature_is_good_for_its_bytes_and_its_key_alone(
            request in prop::collection::vec(any::<u8>(), 0..800),
            reply in prop::collection::vec(any::<u8>(), 0..1100),
            millis in any::<u64>(),
            (at, flip) in (any::<prop::sample::Index>(), 1..=255u8),
        ) {
            let mut datagram = request.clone();
            let mac = signing_key(1).sign_request(millis, &mut datagram);
            let signed = SignedRequest::split(&datagram).expect("a signature");
            prop_assert_eq!((signed.request, signed.key_name, signed.signed_at), (&*request, &b"web"[..], millis));
            prop_assert_eq!(signed.verify(&signing_key(1)), Some(mac));
            prop_assert_eq!(signed.verify(&signing_key(2)), None);
            // The digits of a MAC may be in any case, which changes no value.
            let at = at.index(datagram.len() - 64);
            datagram[at] ^= flip;
            let changed = SignedRequest::split(&datagram).and_then(|signed| signed.verify(&signing_key(1)));
            prop_assert_eq!(changed, None);
            let mut out = vec![0; 50];
            out.extend_from_slice(&reply);
            signing_key(1).sign_reply(&mac, 50, &mut out);
            prop_assert!(out.len() <= 50 + DATAGRAM_MAX && out[..50] == [0; 50]);
            let read = signing_key(1).verify_reply(&mac, &out[50..]).expect("a signature");
            prop_assert!(reply.starts_with(read) && (read.len() == reply.len() || out.len() == 50 + DATAGRAM_MAX));
        }
    }
}
