//! Any bytes a Redis client may send: they are commands, wait for more, or are refused, and nothing panics.

use proptest::prelude::*;
use tollway_core::{Decision, Nanos, Refund, Verb, Verdict};
use tollway_wire::resp::{
    COMMAND_MAX, CommandError, Decoded, KEY_MAX, LINE_MAX, ReplyWriter, RespCommand, RespFramingError,
    RespVersion, SKIPPED_WORDS_MAX, ThrottleUse, WORDS_MAX, Words, decode, encode_command, reply_len,
    reply_text,
};

/// Returns the commands that are found in `bytes` when they arrive in pieces that end at `cuts`.
fn found(
    bytes: &[u8],
    cuts: impl Iterator<Item = usize>,
) -> (Vec<Vec<Vec<u8>>>, Result<usize, RespFramingError>) {
    let (mut found, mut start) = (Vec::new(), 0);
    for end in cuts.chain([bytes.len()]) {
        let mut words = Words::new();
        loop {
            match decode(&bytes[start..end.clamp(start, bytes.len())], &mut words) {
                Ok(Some((decoded, len))) => {
                    assert!(len > 0 && words.len() <= WORDS_MAX);
                    if decoded == Decoded::Command {
                        found.push(words.iter().map(|word| word.to_vec()).collect());
                        parse_all(&words);
                    }
                    start += len;
                }
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
    }
    (found, Ok(start))
}

/// Parses a command and all its parts, which end where its words end.
fn parse_all(words: &[&[u8]]) {
    if let Ok(RespCommand::Toll(request)) = RespCommand::parse(words) {
        assert!(request.charges().len() > 0 || request.has_rules());
        request.charges().for_each(|charge| drop(charge.map_err(|error| error.to_string())));
        if let Ok(rules) = request.rules().map_err(|error| error.to_string()) {
            assert_eq!(request.has_rules(), !rules.is_empty());
            assert!(rules.is_empty() || request.verb.has_rules());
        }
    }
}

fn decoded(bytes: &[u8]) -> Result<Option<usize>, RespFramingError> {
    decode(bytes, &mut Words::new()).map(|decoded| decoded.map(|(_, len)| len))
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = proptest::sample::select(
        &[
            "CL.THROTTLE",
            "throttle",
            "TOLL",
            "SPEND",
            "check",
            "refund",
            "RULE",
            "rule",
            "user=x",
            "user=",
            "a=b=c",
            "=",
            "RESET",
            "PING",
            "HELLO",
            "3",
            "AUTH",
            "MULTI",
            "EXEC",
            "DEL",
            "TTL",
            "CLIENT",
            "SETNAME",
            "COMMAND",
            "15",
            "-1",
            "9223372036854775808",
            "",
        ][..],
    );
    prop_oneof![4 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

/// Generates an id, or the value of a selector.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![20 => prop::collection::vec(word(), 1..8), 1 => prop::collection::vec(word(), 30..36)]
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&words.iter().map(|word| &**word).collect::<Vec<_>>(), &mut bytes);
    bytes
}

/// Generates commands, lines of plain text, and now and then other bytes.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let plain = "[A-Za-z0-9 .\"']{0,20}".prop_map(|text| format!("{text}\r\n").into_bytes());
    let lengths = "[*$:][-+]?[0-9]{0,22}(\r\n)?".prop_map(String::into_bytes);
    let piece = prop_oneof![
        8 => command().prop_map(|words| encoded(&words)),
        2 => plain,
        1 => lengths,
        1 => prop::collection::vec(any::<u8>(), 0..30)
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn commands_survive_the_wire(words in command(), more in prop::collection::vec(any::<u8>(), 0..30)) {
        let mut inbox = encoded(&words);
        let len = inbox.len();
        inbox.extend(more);
        let mut found = Words::new();
        let expected = if words.len() > WORDS_MAX { Decoded::TooManyWords } else { Decoded::Command };
        prop_assert_eq!(decode(&inbox, &mut found), Ok(Some((expected, len))));
        prop_assert_eq!(found.to_vec(), words[..words.len().min(WORDS_MAX)].to_vec());
        for cut in 0..len {
            prop_assert_eq!(decoded(&inbox[..cut]), Ok(None));
        }
    }

    #[test]
    fn pieces_do_not_change_what_is_read(bytes in traffic(), mut cuts in prop::collection::vec(0usize..400, 0..30)) {
        cuts.sort_unstable();
        let at_once = found(&bytes, std::iter::empty());
        prop_assert_eq!(&at_once, &found(&bytes, cuts.into_iter()));
        prop_assert_eq!(&at_once, &found(&bytes, 0..bytes.len()));
    }

    #[test]
    fn any_bytes_are_commands_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        let _ = found(&bytes, std::iter::empty());
        let _ = reply_len(&bytes);
        let _ = reply_text(&bytes);
    }

    #[test]
    fn charges_and_rules_are_read_as_they_were_sent(
        charges in prop::collection::vec(("[A-QS-Z][a-z]{0,5}", value(), 0..=i64::MAX), 0..5),
        rules in prop::collection::vec(
            (".{0,6}", prop::collection::btree_map("[a-z]{1,3}", value(), 0..3)),
            0..4
        ),
    ) {
        let mut sent = vec![b"TOLL".to_vec(), b"SPEND".to_vec()];
        for (limit, id, cost) in &charges {
            sent.extend([limit.clone().into_bytes(), id.clone(), cost.to_string().into_bytes()]);
        }
        for (name, selectors) in &rules {
            sent.extend([b"rule".to_vec(), name.clone().into_bytes()]);
            sent.extend(selectors.iter().map(|(name, value)| [name.as_bytes(), b"=", value].concat()));
        }
        let words: Vec<_> = sent.iter().map(|word| &**word).collect();
        let Ok(RespCommand::Toll(request)) = RespCommand::parse(&words) else {
            prop_assert!(charges.is_empty() && rules.is_empty());
            return Ok(());
        };
        let found = request.charges().map(Result::unwrap);
        let found = found.map(|found| (found.limit.to_owned(), found.id.to_vec(), found.cost.cast_signed()));
        let found: Vec<_> = found.collect();
        prop_assert_eq!(found, charges);
        let found = request.rules().unwrap().into_iter().map(|rule| {
            let selectors = rule.selectors.into_iter();
            let selectors = selectors.map(|(name, value)| (name.into_owned(), value.into_owned()));
            (rule.rule.text().to_owned(), selectors.collect())
        });
        prop_assert_eq!(found.collect::<Vec<_>>(), rules);
    }

    #[test]
    fn errors_are_one_line(words in command()) {
        let words: Vec<_> = words.iter().map(|word| &**word).collect();
        let parsed = RespCommand::parse(&words);
        let rules = match &parsed {
            Ok(RespCommand::Toll(request)) => request.rules().err(),
            _ => None,
        };
        for error in parsed.err().into_iter().chain(rules) {
            let mut reply = Vec::new();
            ReplyWriter::new(&mut reply, RespVersion::Resp2).error(&error);
            prop_assert_eq!(reply_len(&reply), Ok(Some(reply.len())));
            prop_assert!(reply.len() < 400);
        }
    }

    #[test]
    fn five_integers_are_an_array(first: bool, numbers: [i64; 4]) {
        for numbers in [numbers, numbers.map(|number| number % 20)] {
            let (mut quick, mut plain) = (Vec::new(), Vec::new());
            ReplyWriter::new(&mut quick, RespVersion::Resp2).five_integers(first, numbers);
            let mut reply = ReplyWriter::new(&mut plain, RespVersion::Resp3);
            reply.array(5);
            reply.integer(i64::from(first));
            numbers.into_iter().for_each(|number| reply.integer(number));
            prop_assert_eq!(&quick, &plain);
            prop_assert_eq!(reply_len(&quick), Ok(Some(quick.len())));
        }
    }
}

#[test]
fn lengths_are_refused_before_anything_waits_for_them() {
    for (bytes, expected) in [
        ("*2147483647\r\n", RespFramingError::TooManyWords),
        ("*1025\r\n", RespFramingError::TooManyWords),
        ("*99999999999999999999\r\n", RespFramingError::TooManyWords),
        ("*999999999999999999999", RespFramingError::InvalidLength),
        ("*-1\r\n", RespFramingError::InvalidLength),
        ("*x\r\n", RespFramingError::InvalidLength),
        ("*\r\n", RespFramingError::InvalidLength),
        ("*1\n", RespFramingError::InvalidLength),
        ("*1\rx", RespFramingError::InvalidLength),
        ("*1\r\n$2000000000\r\n", RespFramingError::TooLong),
        ("*1\r\n$1048577\r\n", RespFramingError::TooLong),
        ("*1\r\n$18446744073709551615\r\n", RespFramingError::TooLong),
        ("*1\r\n$-1\r\n", RespFramingError::InvalidLength),
        ("*1\r\n$+1\r\n", RespFramingError::InvalidLength),
        ("*2\r\n$4\r\nPING\r\n$-2\r\n", RespFramingError::InvalidLength),
        ("*1\r\n*1\r\n$4\r\nPING\r\n", RespFramingError::NoString { found: b'*' }),
        ("*1\r\n%1\r\n", RespFramingError::NoString { found: b'%' }),
        ("*1\r\n$4\r\nPINGPONG\r\n", RespFramingError::NoLineEnd),
        ("*1\r\n:99999999999999999999999\r\n", RespFramingError::NoLineEnd),
        ("$4\r\nPING\r\n", RespFramingError::NoArray { found: b'$' }),
        ("+PING\r\n", RespFramingError::NoArray { found: b'+' }),
        ("ECHO \"a\r\n", RespFramingError::Quotes),
        ("ECHO \"a\\n\"\r\n", RespFramingError::Quotes),
        ("ECHO \"a\"b\r\n", RespFramingError::Quotes),
    ] {
        assert_eq!(decoded(bytes.as_bytes()), Err(expected), "{bytes:?}");
    }
    assert!(RespFramingError::NoArray { found: b'\n' }.to_string().ends_with("got '\\n'"));
}

#[test]
fn a_command_has_at_most_a_megabyte_and_32_words() {
    let words = vec![b"x".to_vec(); WORDS_MAX];
    let bytes = encoded(&words);
    assert_eq!(decoded(&bytes), Ok(Some(bytes.len())));
    let long = encoded(&[b"ECHO".to_vec(), vec![b'x'; COMMAND_MAX - 30]]);
    assert_eq!(decoded(&long), Ok(Some(long.len())));
    let too_long = encoded(&[b"ECHO".to_vec(), vec![b'x'; COMMAND_MAX - 10]]);
    assert_eq!(decoded(&too_long[..40]), Err(RespFramingError::TooLong));
    // Two words that are too long together.
    let half = vec![b'x'; COMMAND_MAX / 2];
    assert_eq!(decoded(&encoded(&[half.clone(), half])), Err(RespFramingError::TooLong));
    let plain = vec![b'x'; LINE_MAX];
    assert_eq!(decoded(&plain[1..]), Ok(None));
    assert_eq!(decoded(&plain), Err(RespFramingError::LineTooLong));
    let numbers = [&b"*40\r\n$1048540\r\n"[..], &[b'x'; 1_048_540], b"\r\n:1\r\n:1\r\n:1\r\n"].concat();
    assert_eq!(decoded(&numbers), Ok(None));
    assert_eq!(decoded(&[&numbers[..], b":1\r\n:1\r\n"].concat()), Err(RespFramingError::TooLong));
}

/// Clients send all that was not answered again when a connection is closed, so a command with too many words is
/// skipped, and the next one is found.
#[test]
fn a_command_with_too_many_words_is_skipped() {
    for count in [WORDS_MAX + 1, 35, SKIPPED_WORDS_MAX] {
        let array = encoded(&vec![b"x".to_vec(); count]);
        let line = format!("{}\r\n", "x ".repeat(count)).into_bytes();
        for command in [array, line] {
            let inbox = [&command[..], b"PING\r\n"].concat();
            let mut words = Words::new();
            assert_eq!(decode(&inbox, &mut words), Ok(Some((Decoded::TooManyWords, command.len()))));
            assert_eq!(words.to_vec(), [b"x"; WORDS_MAX]);
            let next = decode(&inbox[command.len()..], &mut words);
            assert_eq!((next, words.to_vec()), (Ok(Some((Decoded::Command, 6))), vec![&b"PING"[..]]));
            for cut in 0..command.len() {
                assert_eq!(decoded(&command[..cut]), Ok(None));
            }
        }
    }
    assert!(CommandError::TooManyWords.to_string().contains("at most 32 words"));
}

#[test]
fn plain_text_is_words() {
    for (line, expected) in [
        ("PING\r\n", Some(&["PING"][..])),
        ("PING\n", Some(&["PING"])),
        ("  CL.THROTTLE\ta  15 30 60 \r\n", Some(&["CL.THROTTLE", "a", "15", "30", "60"])),
        ("ECHO \"two  words\" 'one \"two\"' \"\"\r\n", Some(&["ECHO", "two  words", "one \"two\"", ""])),
        ("\r\n", Some(&[])),
        ("\n", Some(&[])),
        ("PING", None),
    ] {
        let mut words = Words::new();
        let decoded = decode(line.as_bytes(), &mut words).unwrap();
        assert_eq!(decoded.map(|(_, len)| len), expected.map(|_| line.len()), "{line:?}");
        if let Some(expected) = expected {
            assert_eq!(words.to_vec(), expected.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
            let blank = decoded.is_some_and(|(decoded, _)| decoded == Decoded::Blank);
            assert_eq!(blank, expected.is_empty(), "{line:?}");
        }
    }
}

#[test]
fn some_clients_send_numbers_as_numbers() {
    let mut words = Words::new();
    let bytes = b"*5\r\n$8\r\nTHROTTLE\r\n$2\r\nr1\r\n:3\r\n:1\r\n:1\r\n";
    assert_eq!(decode(bytes, &mut words), Ok(Some((Decoded::Command, bytes.len()))));
    assert_eq!(words[2..], [b"3", b"1", b"1"]);
}

fn parse<'w, 'a>(words: &'w [&'a [u8]]) -> Result<RespCommand<'w, 'a>, CommandError> {
    RespCommand::parse(words)
}

#[test]
fn only_a_browser_is_closed_after_its_error() {
    let (long, fits) = ([b'k'; KEY_MAX + 1], [b'k'; KEY_MAX]);
    for words in [
        &[&b"CL.THROTTLE"[..], &long, b"1", b"1", b"1"][..],
        &[b"THROTTLE", &long, b"1", b"1", b"1"],
        &[b"DEL", b"a", &long],
        &[b"TTL", &long],
        &[b"PTTL", &long],
    ] {
        let error = parse(words).unwrap_err();
        assert!(error == CommandError::KeyTooLong && !error.closes());
    }
    assert!(parse(&[b"CL.THROTTLE", &fits, b"1", b"1", b"1"]).is_ok());
    let words = [&b"TOLL"[..], b"SPEND", b"Login", &long];
    let Ok(RespCommand::Toll(request)) = parse(&words) else { panic!("it has the right words") };
    assert_eq!(request.charges().next(), Some(Err(CommandError::IdTooLong)));
    assert!(!CommandError::IdTooLong.closes() && !CommandError::TooManyWords.closes());
    let value = [b"user=", &long[..]].concat();
    let words = [&b"TOLL"[..], b"CHECK", b"RULE", b"upload", &value];
    let Ok(RespCommand::Toll(request)) = parse(&words) else { panic!("it has the right words") };
    let error = request.rules().unwrap_err();
    assert!(error == CommandError::ValueTooLong && !error.closes());
    let words = [&b"TOLL"[..], b"CHECK", b"RULE", b"upload", &value[..value.len() - 1]];
    let Ok(RespCommand::Toll(request)) = parse(&words) else { panic!("it has the right words") };
    assert!(request.rules().is_ok());
    for words in [&[&b"POST"[..], b"/", b"HTTP/1.1"][..], &[b"Host:", b"localhost"]] {
        assert!(parse(words).unwrap_err().closes());
    }
    assert!(!parse(&[b"GET", b"/"]).unwrap_err().closes());
    assert_eq!(parse(&[]).unwrap_err().to_string(), "ERR empty command");
}

#[test]
fn a_bill_has_triples_and_a_reset_pairs() {
    let words: Vec<&[u8]> = "TOLL SPEND A a 1 B b 2".split(' ').map(str::as_bytes).collect();
    let Ok(RespCommand::Toll(request)) = parse(&words) else { panic!("it has the right words") };
    let charges: Vec<_> = request.charges().map(Result::unwrap).collect();
    assert_eq!(request.verb, Verb::Spend);
    assert_eq!((charges[1].limit, charges[1].id, charges[1].cost), ("B", &b"b"[..], 2));
    for (text, right) in [
        ("TOLL SPEND A a", true),
        ("TOLL SPEND A a 1", true),
        ("TOLL SPEND A a B b", false),
        ("TOLL SPEND A", false),
        ("TOLL SPEND", false),
        ("TOLL", false),
        ("TOLL RESET A a B b", true),
        ("TOLL RESET A a 1", false),
        ("TOLL SPEND RULE r", true),
        ("TOLL SPEND A a RULE r", true),
        ("TOLL SPEND A a 1 RULE r u=1", true),
        ("TOLL SPEND A a B b RULE r", true),
        ("TOLL SPEND A a 1 B b RULE r", false),
        ("TOLL SPEND A RULE", true),
        ("TOLL SPEND A RULE r", true),
        ("TOLL SPEND A RULE r u=1", false),
        ("TOLL REFUND A RULE 1", true),
        ("TOLL REFUND A a 1 RULE r", false),
        ("TOLL RESET A RULE", true),
        ("TOLL RESET A a RULE r", false),
    ] {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        assert_eq!(parse(&words).is_ok(), right, "{text}");
    }
}

#[test]
fn a_quantity_is_spent_looked_at_or_given_back() {
    for (quantity, expected) in [
        ("1", ThrottleUse::Spend(1)),
        ("0", ThrottleUse::Spend(0)),
        ("16", ThrottleUse::Spend(16)),
        ("17", ThrottleUse::TooMuch),
        ("9223372036854775807", ThrottleUse::TooMuch),
        ("-1", ThrottleUse::GiveBack(1)),
        ("-9223372036854775808", ThrottleUse::GiveBack(1 << 63)),
    ] {
        let words = [&b"CL.THROTTLE"[..], b"k", b"15", b"30", b"60", quantity.as_bytes()];
        let Ok(RespCommand::Throttle(request)) = parse(&words) else { panic!("{quantity} is a quantity") };
        assert_eq!(request.usage(), expected, "{quantity}");
        // The reply has five integers, whatever the numbers are.
        let mut reply = Vec::new();
        let mut writer = ReplyWriter::new(&mut reply, RespVersion::Resp2);
        request.put_decision(
            &Decision::new(Verdict::Deny, u64::MAX, Nanos::FOREVER, Nanos::FOREVER),
            &mut writer,
        );
        request.put_refund(&Refund::new(true, u64::MAX, Nanos::FOREVER), &mut writer);
        let first = reply_len(&reply).unwrap().unwrap();
        assert_eq!(reply_len(&reply[first..]), Ok(Some(reply.len() - first)));
    }
}

#[test]
fn replies_read_in_one_line() {
    for (reply, text) in [
        ("*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n", "*5 :0 :16 :15 :-1 :2"),
        ("+OK\r\n", "+OK"),
        ("-ERR no 'x' and no \"y\"\r\n", "-ERR no 'x' and no \"y\""),
        ("$5\r\na \"\r\n\r\n", "\"a \\\"\\r\\n\""),
        ("$-1\r\n", "$-1"),
        ("%1\r\n$1\r\na\r\n_\r\n", "%1 \"a\" _"),
        ("*0\r\n", "*0"),
    ] {
        assert_eq!(reply_text(reply.as_bytes()).as_deref(), Ok(text));
        for cut in 0..reply.len() {
            assert_eq!(reply_len(&reply.as_bytes()[..cut]), Ok(None), "{reply:?}");
        }
        assert_eq!(reply_len(reply.as_bytes()), Ok(Some(reply.len())));
    }
    for reply in ["x\r\n", "$99999999999\r\n", "*99999999999\r\n", "$1\r\nxyz", "$-2\r\n", "+a\rb"] {
        assert!(reply_len(reply.as_bytes()).is_err(), "{reply:?}");
    }
}
