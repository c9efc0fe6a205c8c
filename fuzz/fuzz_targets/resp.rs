//! Checks that any bytes of a Redis client are the same commands however they are cut, that these are encoded to
//! commands again, and that errors are replies.
#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use tollway_wire::resp::{
    COMMAND_MAX, Decoded, KEY_MAX, ReplyWriter, RespCommand, RespVersion, TollRequest, WORDS_MAX, Words,
    decode, encode_command, reply_len, reply_text,
};

use crate::pieces::ends;

/// The number of commands of one input that are parsed: more of them are no different.
const CHECKED_MAX: usize = 8;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let (mut scratch, mut checked) = (Vec::new(), 0);
    let at_once = commands(bytes, bytes.len(), |words| {
        checked += 1;
        if checked <= CHECKED_MAX {
            check(words, &mut scratch);
        }
    });
    assert_eq!(at_once, commands(bytes, usize::from(piece), |_| {}));
    if let Ok(Some(len)) = reply_len(bytes) {
        assert!(reply_text(&bytes[..len]).is_ok());
    }
});

/// Passes on the commands in `bytes`, which arrive `piece` at a time. Returns their number, their length, and whether
/// an error ended them.
fn commands(bytes: &[u8], piece: usize, mut check: impl FnMut(&[&[u8]])) -> (usize, usize, bool) {
    let (mut start, mut count) = (0, 0);
    let mut words = Words::new();
    for end in ends(bytes.len(), piece) {
        loop {
            match decode(&bytes[start..end.max(start)], &mut words) {
                Ok(Some((decoded, len))) => {
                    assert!(words.len() <= WORDS_MAX && len <= COMMAND_MAX + 2);
                    assert!(decoded != Decoded::TooManyWords || words.len() == WORDS_MAX);
                    if decoded == Decoded::Command {
                        check(&words);
                        count += 1;
                    }
                    start += len;
                }
                Ok(None) => break,
                Err(_) => return (count, start, true),
            }
        }
    }
    (count, start, false)
}

fn check(words: &[&[u8]], again: &mut Vec<u8>) {
    again.clear();
    encode_command(words, again);
    let mut found = Words::new();
    if let Ok(decoded) = decode(again, &mut found) {
        assert_eq!(decoded, Some((Decoded::Command, again.len())));
        assert_eq!(&*found, words);
    }
    let parsed = RespCommand::parse(words);
    if let Ok(RespCommand::Toll(request)) = parsed {
        check_toll(request);
    }
    if let Err(error) = parsed {
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply, RespVersion::Resp2).error(&error);
        assert_eq!(reply_len(&reply), Ok(Some(reply.len())));
    }
}

/// Checks that the charges and the rules of a command are within the bounds that its words have.
fn check_toll(request: TollRequest<'_, '_>) {
    let charges = request.charges().len();
    assert!(charges > 0 || request.has_rules());
    request.charges().flatten().for_each(|charge| assert!(charge.id.len() <= KEY_MAX));
    if let Ok(rules) = request.rules() {
        assert_eq!(request.has_rules(), !rules.is_empty());
        assert!(rules.is_empty() || request.verb.has_rules());
        let selectors: usize = rules.iter().map(|rule| rule.selectors.len()).sum();
        assert!(2 * charges + 2 * rules.len() + selectors <= WORDS_MAX);
        for (name, value) in rules.iter().flat_map(|rule| &rule.selectors) {
            assert!(!name.is_empty() && !name.contains('=') && value.len() <= KEY_MAX);
        }
    }
}
