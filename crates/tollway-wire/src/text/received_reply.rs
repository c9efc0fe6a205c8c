//! Decodes replies of the text protocol, for clients.

use super::{KeyStats, OverLimit, split_id};

/// A reply as a client receives it.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReceivedReply<'a> {
    /// Answers `over_limit`.
    OverLimit(OverLimit),
    /// Answers `get_stats`.
    Stats {
        /// The counters of the key.
        stats: KeyStats,
        /// The key, which is cut if the datagram was too long.
        key: &'a [u8],
    },
    /// Answers `check_limit`.
    CheckLimit {
        /// The result for the last key that was tried. It is over the limit if any key is.
        last: OverLimit,
        /// The two JSON arrays as they were received, which are cut if the datagram was too long.
        keys: &'a [u8],
    },
    /// Answers `get_size`.
    Size {
        /// The number of keys that the server stores.
        keys: u64,
    },
    /// Answers `ping`.
    Pong,
}

/// Decodes the id and the reply of a datagram. Returns `None` if it is not a reply.
pub fn decode_reply(datagram: &[u8]) -> Option<(Option<&[u8]>, ReceivedReply<'_>)> {
    let (id, body) = split_id(datagram);
    Some((id, ReceivedReply::decode(body)?))
}

impl<'a> ReceivedReply<'a> {
    fn decode(body: &'a [u8]) -> Option<Self> {
        if body == b"pong" {
            Some(Self::Pong)
        } else if let Some(rest) = body.strip_prefix(b"ok ") {
            Self::decode_ok(rest)
        } else if let Some(rest) = body.strip_prefix(b"n_req=") {
            Self::decode_stats(rest)
        } else {
            let (_, keys) = split_once(body.strip_prefix(b"size=")?, b" keys=")?;
            Some(Self::Size { keys: parse_u64(keys)? })
        }
    }

    fn decode_ok(rest: &'a [u8]) -> Option<Self> {
        let (over, rest) = split_once(rest, b" ")?;
        let over = match over {
            b"Y" => true,
            b"N" => false,
            _ => return None,
        };
        let (rate, rest) = split_once(rest, b" ")?;
        let (limit, rest) = split_once(rest, b" ")?;
        let (period, keys) =
            split_once(rest, b", ").map_or((rest, None), |(period, keys)| (period, Some(keys)));
        let last = OverLimit {
            over,
            rate: parse_decimal(rate)?,
            limit: parse_decimal(limit)?,
            period: parse_u64(period)?,
        };
        Some(keys.map_or(Self::OverLimit(last), |keys| Self::CheckLimit { last, keys }))
    }

    fn decode_stats(rest: &'a [u8]) -> Option<Self> {
        let (n_req, rest) = split_once(rest, b" n_over=")?;
        let (n_over, rest) = split_once(rest, b" last_max_rate=")?;
        let (last_max_rate, key) = split_once(rest, b" key=")?;
        let stats = KeyStats {
            n_req: parse_u64(n_req)?,
            n_over: parse_u64(n_over)?,
            last_max_rate: parse_u64(last_max_rate)?,
        };
        Some(Self::Stats { stats, key })
    }
}

/// Returns the bytes before and after the first `mark`.
fn split_once<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

fn parse_u64(digits: &[u8]) -> Option<u64> {
    // Checked first, because `parse` accepts a plus sign.
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse_decimal(digits: &[u8]) -> Option<f64> {
    // Checked first, because `parse` accepts exponents and infinity.
    digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.').then_some(())?;
    // Checked afterwards, because more than 308 digits are infinity too.
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read() {
        let over = OverLimit { over: true, rate: 28.1, limit: 22.0, period: 20 };
        for (datagram, id, answer) in [
            (&b"1332 ok Y 28.1 22.0 20"[..], Some(&b"1332"[..]), ReceivedReply::OverLimit(over)),
            (
                b"n_req=2 n_over=1 last_max_rate=9 key=a key=b",
                None,
                ReceivedReply::Stats {
                    stats: KeyStats { n_req: 2, n_over: 1, last_max_rate: 9 },
                    key: b"a key=b",
                },
            ),
            (b"1 size=4.5M keys=3", Some(b"1"), ReceivedReply::Size { keys: 3 }),
            (b"01 pong", Some(b"01"), ReceivedReply::Pong),
            (
                b"ok Y 28.1 22.0 20, [\"a\",\"b\",\"c\"], [{\"ke",
                None,
                ReceivedReply::CheckLimit { last: over, keys: b"[\"a\",\"b\",\"c\"], [{\"ke" },
            ),
        ] {
            assert_eq!(decode_reply(datagram), Some((id, answer)), "{}", datagram.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_reply_is_not_taken_for_one() {
        for datagram in [
            &b""[..],
            b"7",
            b"7  pong",
            b"pong\n",
            b"ok",
            b"ok N",
            b"ok X 1.0 2.0 3",
            b"ok N 1.0 2.0",
            b"ok N 1.0 2.0 ",
            b"ok N 1.0 2.0 -3",
            b"ok N 1.0 2.0 3.5",
            b"ok N -1.0 2.0 3",
            b"ok N inf 2.0 3",
            b"ok N 1e9 2.0 3",
            b"ok N . 2.0 3",
            b"ok N 1.0 2.0 99999999999999999999",
            b"n_req=1",
            b"n_req=1 n_over=x last_max_rate=0 key=",
            b"size=1",
            b"size=1 keys=",
        ] {
            assert_eq!(decode_reply(datagram), None, "{}", datagram.escape_ascii());
        }
    }

    #[test]
    fn a_number_with_too_many_digits_is_none() {
        let (fits, too_long) = ("9".repeat(308), "9".repeat(310));
        assert!(decode_reply(format!("ok N {fits} {fits}.5 3").as_bytes()).is_some());
        for numbers in [format!("{too_long} 2.0"), format!("1.0 {too_long}")] {
            assert_eq!(decode_reply(format!("ok N {numbers} 3").as_bytes()), None, "it would be infinite");
        }
    }
}
