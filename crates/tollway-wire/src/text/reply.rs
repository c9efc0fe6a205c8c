//! Encodes replies of the text protocol, for servers.

use super::DATAGRAM_MAX;
use crate::decimal::{TENTHS_LEN, put_tenths, put_u64, tenths_of, write_tenths};
use crate::json::put_string;

/// A reply as a server sends it.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TextReply<'a> {
    /// Answers `over_limit`.
    OverLimit(OverLimit),
    /// Answers `get_stats`.
    Stats {
        /// The counters of the key.
        stats: KeyStats,
        /// The key that the configuration rewrote it to.
        key: &'a [u8],
    },
    /// Answers `check_limit`.
    CheckLimit {
        /// The three keys as they were sent, whatever the configuration rewrites them to.
        keys: [&'a [u8]; 3],
        /// The results for the keys that were tried, in the same order: at least the first, and up to the first that is
        /// over the limit.
        tried: &'a [OverLimit],
    },
    /// Answers `get_size`.
    Size {
        /// The number of keys that the server stores.
        keys: u64,
    },
    /// Answers `ping`.
    Pong,
}

/// The result that one use of a key has.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OverLimit {
    /// True if this use is over the limit.
    pub over: bool,
    /// The rate that was measured after this use, in uses per period.
    pub rate: f64,
    /// The rate at which a use is over the limit: an equal rate is over.
    pub limit: f64,
    /// The period that both rates refer to, in seconds.
    pub period: u64,
}

/// The counters that a server keeps for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct KeyStats {
    /// The number of uses that were counted since the server started.
    pub n_req: u64,
    /// The number of uses that were over the limit.
    pub n_over: u64,
    /// The highest rate that was measured in the last full window of five minutes, rounded down.
    pub last_max_rate: u64,
}

impl OverLimit {
    /// Creates the result of one use. Rates are in uses per `period`, which is in seconds.
    #[inline]
    pub const fn new(over: bool, rate: f64, limit: f64, period: u64) -> Self {
        Self { over, rate, limit, period }
    }
}

impl KeyStats {
    /// Creates the counters of one key.
    pub const fn new(n_req: u64, n_over: u64, last_max_rate: u64) -> Self {
        Self { n_req, n_over, last_max_rate }
    }
}

/// Appends the reply as a datagram. It is cut after [`DATAGRAM_MAX`] bytes. A server that sends many replies has a
/// [`ReplyEncoder`] instead.
pub fn encode(id: Option<&[u8]>, reply: &TextReply<'_>, out: &mut Vec<u8>) {
    ReplyEncoder::new().encode(id, reply, out);
}

/// Encodes one reply after another. The limit and the period are the same in most replies, so their text is kept.
#[derive(Clone, Debug)]
pub struct ReplyEncoder {
    limit: LimitText,
}

impl Default for ReplyEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplyEncoder {
    /// Creates an encoder.
    pub const fn new() -> Self {
        Self { limit: LimitText::ZERO }
    }

    /// Appends the reply as a datagram. It is cut after [`DATAGRAM_MAX`] bytes.
    #[inline]
    pub fn encode(&mut self, id: Option<&[u8]>, reply: &TextReply<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        if let Some(id) = id {
            out.extend_from_slice(id);
            out.push(b' ');
        }
        match reply {
            TextReply::OverLimit(over_limit) => over_limit.put(&mut self.limit, out),
            other => other.put(&mut self.limit, out),
        }
        out.truncate(start + DATAGRAM_MAX);
    }
}

impl TextReply<'_> {
    /// Appends the reply without its id. Not inlined, so that the code of the usual reply stays short.
    #[inline(never)]
    fn put(&self, limit: &mut LimitText, out: &mut Vec<u8>) {
        match self {
            Self::OverLimit(over_limit) => over_limit.put(limit, out),
            Self::Stats { stats: KeyStats { n_req, n_over, last_max_rate }, key } => {
                put_numbers(
                    &[("n_req=", *n_req), (" n_over=", *n_over), (" last_max_rate=", *last_max_rate)],
                    out,
                );
                out.extend_from_slice(b" key=");
                out.extend_from_slice(key);
            }
            Self::CheckLimit { keys, tried } => put_check_limit(keys, tried, limit, out),
            Self::Size { keys } => put_numbers(&[("size=", *keys), (" keys=", *keys)], out),
            Self::Pong => out.extend_from_slice(b"pong"),
        }
    }
}

/// The most bytes that are kept of a limit and a period. Those of every configured limit fit.
const LIMIT_MAX: usize = 40;
/// The longest verdict, `ok N `.
const VERDICT_LEN: usize = 5;

/// The end of a reply: a limit and a period as text, such as ` 22.0 20`.
#[derive(Clone, Debug)]
struct LimitText {
    limit: u64,
    period: u64,
    text: [u8; LIMIT_MAX],
    len: usize,
}

impl LimitText {
    /// The text of a limit of 0 in a period of 0.
    const ZERO: Self = {
        let mut text = [0; LIMIT_MAX];
        (text[0], text[1], text[2], text[3], text[4], text[5]) = (b' ', b'0', b'.', b'0', b' ', b'0');
        Self { limit: 0, period: 0, text, len: 6 }
    };

    /// Keeps the text of another limit and period, if there is room for it.
    fn keep(&mut self, limit: f64, period: u64, text: &[u8]) {
        if let Some(room) = self.text.get_mut(..text.len()) {
            room.copy_from_slice(text);
            (self.limit, self.period, self.len) = (limit.to_bits(), period, text.len());
        }
    }
}

impl OverLimit {
    #[inline]
    fn put(&self, limit: &mut LimitText, out: &mut Vec<u8>) {
        let is_kept = limit.limit == self.limit.to_bits() && limit.period == self.period;
        let Some(tenths) = tenths_of(self.rate).filter(|_| is_kept) else {
            return self.put_exactly(limit, out);
        };
        // The parts meet in the middle of one buffer, so that one copy of a length that is not constant is enough.
        let mut line = [0; VERDICT_LEN + TENTHS_LEN + LIMIT_MAX];
        let (front, end) = line.split_at_mut(VERDICT_LEN + TENTHS_LEN);
        end.copy_from_slice(&limit.text);
        let mut rate = [0; TENTHS_LEN];
        let start = write_tenths(&mut rate, tenths);
        front[VERDICT_LEN..].copy_from_slice(&rate);
        front[start..start + VERDICT_LEN].copy_from_slice(self.verdict());
        out.extend_from_slice(&line[start..VERDICT_LEN + TENTHS_LEN + limit.len]);
    }

    /// Appends the result with numbers of any length, and keeps the text of the limit.
    #[cold]
    fn put_exactly(&self, limit: &mut LimitText, out: &mut Vec<u8>) {
        out.extend_from_slice(self.verdict());
        put_tenths(out, self.rate);
        let end = out.len();
        out.push(b' ');
        put_tenths(out, self.limit);
        out.push(b' ');
        put_u64(out, self.period);
        limit.keep(self.limit, self.period, &out[end..]);
    }

    const fn verdict(&self) -> &'static [u8; VERDICT_LEN] {
        if self.over { b"ok Y " } else { b"ok N " }
    }
}

fn put_numbers(numbers: &[(&str, u64)], out: &mut Vec<u8>) {
    for (name, number) in numbers {
        out.extend_from_slice(name.as_bytes());
        put_u64(out, *number);
    }
}

fn put_check_limit(keys: &[&[u8]; 3], tried: &[OverLimit], limit: &mut LimitText, out: &mut Vec<u8>) {
    if let Some(last) = tried.last() {
        last.put(limit, out);
    }
    out.extend_from_slice(b", [");
    for (index, key) in keys.iter().enumerate() {
        put_comma(index, out);
        put_json_key(key, out);
    }
    out.extend_from_slice(b"], [");
    for (index, (key, over_limit)) in keys.iter().zip(tried).enumerate() {
        put_comma(index, out);
        out.extend_from_slice(br#"{"key":"#);
        put_json_key(key, out);
        out.extend_from_slice(br#","over_limit":""#);
        over_limit.put(limit, out);
        out.extend_from_slice(br#""}"#);
    }
    out.push(b']');
}

fn put_comma(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

/// Appends a key as a JSON string. A rewritten key may be any bytes, so invalid UTF-8 is replaced.
fn put_json_key(key: &[u8], out: &mut Vec<u8>) {
    put_string(out, &String::from_utf8_lossy(key));
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDER: OverLimit = OverLimit { over: false, rate: 1.4, limit: 22.0, period: 20 };
    const OVER: OverLimit = OverLimit { over: true, rate: 28.1, limit: 22.0, period: 20 };

    fn encoded(id: Option<&[u8]>, reply: &TextReply<'_>) -> String {
        let mut out = b"before it".to_vec();
        encode(id, reply, &mut out);
        String::from_utf8(out).unwrap().strip_prefix("before it").unwrap().to_owned()
    }

    #[test]
    fn replies_are_those_of_the_protocol() {
        let global = OverLimit { over: false, rate: 2034.3, limit: 2500.0, period: 10 };
        let stats =
            TextReply::Stats { stats: KeyStats { n_req: 2, n_over: 1, last_max_rate: 1 }, key: b"some-key" };
        let keys: [&[u8]; 3] = [b"ws ua=\"x\"", b"ws ip=\xff", b"ws global"];
        for (id, reply, text) in [
            (Some(&b"1173"[..]), TextReply::OverLimit(global), "1173 ok N 2034.3 2500.0 10"),
            (Some(b"472"), TextReply::OverLimit(UNDER), "472 ok N 1.4 22.0 20"),
            (Some(b"001332"), TextReply::OverLimit(OVER), "001332 ok Y 28.1 22.0 20"),
            (None, stats.clone(), "n_req=2 n_over=1 last_max_rate=1 key=some-key"),
            (Some(b"78229"), stats, "78229 n_req=2 n_over=1 last_max_rate=1 key=some-key"),
            (None, TextReply::Size { keys: 12 }, "size=12 keys=12"),
            (Some(b"7"), TextReply::Pong, "7 pong"),
            (
                Some(b"7"),
                TextReply::CheckLimit { keys, tried: &[UNDER, OVER] },
                "7 ok Y 28.1 22.0 20, [\"ws ua=\\\"x\\\"\",\"ws ip=\u{fffd}\",\"ws global\"], \
                 [{\"key\":\"ws ua=\\\"x\\\"\",\"over_limit\":\"ok N 1.4 22.0 20\"},\
                 {\"key\":\"ws ip=\u{fffd}\",\"over_limit\":\"ok Y 28.1 22.0 20\"}]",
            ),
        ] {
            assert_eq!(encoded(id, &reply), text);
        }
    }

    #[test]
    fn an_encoder_writes_what_single_replies_are_whichever_limits_come_before() {
        let mut encoder = ReplyEncoder::new();
        for (over, rate, limit, period) in [
            (false, 0.0, 0.0, 0),
            (false, 1.4, 22.0, 20),
            (true, 28.1, 22.0, 20),
            (false, 0.25, 22.0, 10),
            (false, 99_999_999.0, 2500.0, 10),
            (true, 1e8, 2500.0, 10),
            (true, 1e300, 9_007_199_254_740_992.0, u64::MAX),
            (false, -0.0, -0.0, 0),
            (false, 1.0, 1e300, 7),
            (false, 1.0, 22.0, 20),
        ] {
            let reply = TextReply::OverLimit(OverLimit { over, rate, limit, period });
            let mut out = Vec::new();
            encoder.encode(Some(b"7"), &reply, &mut out);
            let verdict = if over { 'Y' } else { 'N' };
            let expected = format!("7 ok {verdict} {rate:.1} {limit:.1} {period}");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
            assert_eq!(encoded(Some(b"7"), &reply), expected);
        }
    }

    #[test]
    fn a_reply_too_long_is_cut() {
        let key = vec![b'k'; DATAGRAM_MAX];
        let stats = TextReply::Stats { stats: KeyStats::default(), key: &key };
        let cut = encoded(Some(b"1"), &stats);
        assert_eq!(cut.len(), DATAGRAM_MAX);
        assert!(cut.starts_with("1 n_req=0 n_over=0 last_max_rate=0 key=kkk"));
        let id = vec![b'7'; DATAGRAM_MAX - 5];
        assert!(encoded(Some(&id), &TextReply::OverLimit(UNDER)).ends_with("7 ok N"));
    }
}
