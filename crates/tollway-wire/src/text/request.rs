//! Encodes and decodes requests of the text protocol.

use super::{CheckLimit, DATAGRAM_MAX, split_id};

/// A request that was decoded from one datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRequest<'a> {
    /// The digits that the caller chose. The reply repeats them as they are: `000867465` is not `867465`.
    pub id: Option<&'a [u8]>,
    /// The command to run.
    pub command: TextCommand<'a>,
}

/// A command that the text protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextCommand<'a> {
    /// Counts one use of a key, and asks whether it is over the limit.
    OverLimit {
        /// The key: any bytes except newlines. It may be empty.
        key: &'a [u8],
    },
    /// Asks for the counters of a key.
    GetStats {
        /// The key: any bytes except newlines. It may be empty.
        key: &'a [u8],
    },
    /// Counts one use of up to three keys.
    CheckLimit(CheckLimit<'a>),
    /// Asks for the number of keys that the server stores.
    GetSize,
    /// Checks that the server answers.
    Ping,
}

/// Decodes a datagram. Returns `None` if it is malformed and gets no reply. Bytes after [`DATAGRAM_MAX`] are ignored.
#[inline]
pub fn decode(datagram: &[u8]) -> Option<TextRequest<'_>> {
    let datagram = &datagram[..datagram.len().min(DATAGRAM_MAX)];
    let (id, body) = split_id(datagram);
    Some(TextRequest { id, command: TextCommand::decode(body)? })
}

impl TextRequest<'_> {
    /// Appends the request as a datagram.
    ///
    /// Nothing is validated: a key with a newline, an id that is not digits, or more than [`DATAGRAM_MAX`] bytes are
    /// written as they are, and decode to another request. Decode untrusted input again, and compare.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(id) = self.id {
            out.extend_from_slice(id);
            out.push(b' ');
        }
        self.command.encode(out);
    }
}

const OVER_LIMIT: &[u8] = b"over_limit ";
const GET_STATS: &[u8] = b"get_stats ";
const CHECK_LIMIT: &[u8] = b"check_limit ";
const GET_SIZE: &[u8] = b"get_size";
const PING: &[u8] = b"ping";

impl<'a> TextCommand<'a> {
    #[inline]
    fn decode(body: &'a [u8]) -> Option<Self> {
        if let Some(rest) = body.strip_prefix(OVER_LIMIT) {
            Some(Self::OverLimit { key: single_line(rest)? })
        } else if let Some(rest) = body.strip_prefix(GET_STATS) {
            Some(Self::GetStats { key: single_line(rest)? })
        } else if let Some(rest) = body.strip_prefix(CHECK_LIMIT) {
            CheckLimit::from_json(single_line(rest)?).map(Self::CheckLimit)
        } else if body == PING {
            Some(Self::Ping)
        } else {
            (body == GET_SIZE).then_some(Self::GetSize)
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::OverLimit { key } => put_with_key(out, OVER_LIMIT, key),
            Self::GetStats { key } => put_with_key(out, GET_STATS, key),
            Self::CheckLimit(check) => {
                out.extend_from_slice(CHECK_LIMIT);
                check.put_json(out);
            }
            Self::GetSize => out.extend_from_slice(GET_SIZE),
            Self::Ping => out.extend_from_slice(PING),
        }
    }
}

/// Returns the argument of a command without its final newline. Returns `None` if it has any other newline.
#[inline]
fn single_line(rest: &[u8]) -> Option<&[u8]> {
    let line = rest.strip_suffix(b"\n").unwrap_or(rest);
    (!has_newline(line)).then_some(line)
}

/// Returns whether there is a newline. Keys are short: eight bytes are compared at once, the last eight perhaps twice.
#[inline]
fn has_newline(line: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let is_in = |bytes: &[u8; 8]| {
        let other = u64::from_le_bytes(*bytes) ^ (EACH * 0x0a);
        other.wrapping_sub(EACH) & !other & (EACH * 0x80) != 0
    };
    match line.last_chunk() {
        Some(last) => is_in(last) || line.as_chunks().0.iter().any(is_in),
        None => line.contains(&b'\n'),
    }
}

fn put_with_key(out: &mut Vec<u8>, command: &[u8], key: &[u8]) {
    out.extend_from_slice(command);
    out.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(datagram: &[u8]) -> Option<Option<&[u8]>> {
        decode(datagram).map(|request| request.id)
    }

    #[test]
    fn an_id_is_digits_and_one_space_and_kept_as_text() {
        for (datagram, id) in [
            (&b"ping"[..], None),
            (b"0 ping", Some(&b"0"[..])),
            (b"000867465 ping", Some(b"000867465")),
            (b"123456789012345678901 get_size", Some(b"123456789012345678901")),
            (b"1173 over_limit 7 8", Some(b"1173")),
        ] {
            assert_eq!(id_of(datagram), Some(id), "{}", datagram.escape_ascii());
        }
    }

    #[test]
    fn what_is_not_understood_is_silence() {
        for datagram in [
            &b""[..],
            b" ",
            b"1",
            b"1 ",
            b"1  ping",
            b"-1 ping",
            b"+1 ping",
            b"1 2 ping",
            b" ping",
            b"1\tping",
            b"1ping",
            b"\xd9\xa1 ping", // Digits of other scripts are none here.
            b"ping ",
            b"ping\n",
            b"ping\0",
            b"PING",
            b"pin",
            b"get_size\n",
            b"get_size x",
            b"over_limit",
            b"over_limit\n",
            b"Over_limit x",
            b"over_limits x",
            b"over_limit a\nb",
            b"over_limit a\n\n",
            b"over_limit \n\n",
            b"get_stats",
            b"get_stats \na",
            b"check_limit",
            b"check_limit ",
            b"check_limit {\n}",
            b"get_keys",
        ] {
            assert_eq!(decode(datagram), None, "{}", datagram.escape_ascii());
        }
    }

    #[test]
    fn keys_are_the_rest_of_the_line() {
        for (rest, key) in [
            (&b""[..], &b""[..]),
            (b"\n", b""),
            (b" ", b" "),
            (b"ws global", b"ws global"),
            (b" two  spaces ", b" two  spaces "),
            (b"with a newline behind\n", b"with a newline behind"),
            (b"a return\r\n", b"a return\r"),
            (b"\0\xff\x80", b"\0\xff\x80"),
        ] {
            let over_limit = [b"over_limit ", rest].concat();
            assert_eq!(
                decode(&over_limit),
                Some(TextRequest { id: None, command: TextCommand::OverLimit { key } })
            );
            let get_stats = [b"5 get_stats ", rest].concat();
            let command = TextCommand::GetStats { key };
            assert_eq!(decode(&get_stats), Some(TextRequest { id: Some(b"5"), command }));
        }
    }

    #[test]
    fn digits_and_newlines_are_found_wherever_they_are() {
        for len in 0..40 {
            for place in 0..len {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'7'; len];
                    bytes[place] = byte;
                    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    assert_eq!(super::super::leading_digits(&bytes), digits, "{}", bytes.escape_ascii());
                    assert_eq!(has_newline(&bytes), byte == b'\n', "{}", bytes.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn a_long_datagram_is_cut_and_then_understood() {
        let datagram = [b"over_limit ".to_vec(), vec![b'x'; 2000]].concat();
        let key = &vec![b'x'; DATAGRAM_MAX - b"over_limit ".len()][..];
        assert_eq!(decode(&datagram).unwrap().command, TextCommand::OverLimit { key });
        // A newline that stands last after the cut is the trailing one; one that was cut off never came.
        let mut datagram = [b"over_limit ".to_vec(), vec![b'x'; 988], b"\n\n\n".to_vec()].concat();
        assert_eq!(decode(&datagram).unwrap().command, TextCommand::OverLimit { key: &key[1..] });
        datagram[990] = b'\n';
        assert_eq!(decode(&datagram), None);
    }
}
