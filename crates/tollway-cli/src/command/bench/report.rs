//! What a run came to, in words or as JSON.
//!
//! ```text
//! throttr 127.0.0.1:9000: 50 connections, 64 at once, 1,000,000 keys, closed loop
//!   3,012,345 requests/s    15,061,725 answered in 5.0 s
//!   denied 0    errors 0    unanswered 0
//!   latency  p50 1.02 ms    p90 1.31 ms    p99 2.10 ms    p99.9 3.30 ms    max 4.51 ms
//! ```

use std::fmt;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::course::Course;
use super::load::Load;
use super::tally::Tally;

/// How many bytes of what a server sent are shown.
const SHOWN: usize = 200;

/// One run, about to be shown.
pub(super) struct Report<'a> {
    pub(super) name: &'a str,
    pub(super) addr: SocketAddr,
    pub(super) load: &'a Load,
    pub(super) course: &'a Course,
    pub(super) tally: &'a Tally,
}

impl Report<'_> {
    /// One object with everything.
    pub(super) fn json(&self) -> Value {
        let Self { name, addr, load, course, tally } = self;
        json!({
            "protocol": name,
            "addr": addr.to_string(),
            "connections": load.connections,
            "pipeline": load.pipeline,
            "keys": load.keys,
            "zipf": load.zipf,
            "rate": load.rate,
            "echo": load.echo,
            "seconds": course.measured().1.as_secs_f64(),
            "requests": tally.replies,
            "requests_per_second": self.rate(),
            "denied": tally.denied,
            "errors": tally.failed,
            "first_error": tally.first_failure,
            "unanswered": course.unanswered(),
            "latency_ns": {
                "mean": tally.mean(),
                "p50": tally.quantile(0.5),
                "p90": tally.quantile(0.9),
                "p99": tally.quantile(0.99),
                "p999": tally.quantile(0.999),
                "max": tally.longest(),
            },
        })
    }

    fn rate(&self) -> f64 {
        let (replies, took) = self.course.measured();
        if took.get() == 0 { 0.0 } else { replies as f64 / took.as_secs_f64() }
    }

    fn loop_in_words(&self) -> String {
        self.load.rate.map_or("closed loop".to_owned(), |rate| {
            format!("open loop, {} requests/s", grouped(rate as f64))
        })
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, addr, load, course, tally } = self;
        let how = self.loop_in_words();
        let zipf = if load.zipf == 0.0 { String::new() } else { format!(" by Zipf {}", load.zipf) };
        let echo = if load.echo { " (echo)" } else { "" };
        let (connections, pipeline) = (counted(load.connections.into(), "connection"), load.pipeline);
        let keys = counted(load.keys, "key");
        writeln!(f, "{name}{echo} {addr}: {connections}, {pipeline} at once, {keys}{zipf}, {how}")?;
        let (rate, seconds) = (grouped(self.rate()), course.measured().1.as_secs_f64());
        writeln!(f, "  {rate} requests/s    {} answered in {seconds:.1} s", grouped(tally.replies as f64))?;
        let (denied, failed) = (grouped(tally.denied as f64), grouped(tally.failed as f64));
        write!(
            f,
            "  denied {denied}    errors {failed}    unanswered {}",
            grouped(course.unanswered() as f64)
        )?;
        writeln!(f)?;
        if let Some(failure) = &tally.first_failure {
            writeln!(f, "  first error: {failure}")?;
        }
        write!(f, "  latency")?;
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            write!(f, "  {name} {}  ", span(tally.quantile(share)))?;
        }
        writeln!(f, "  max {}", span(tally.longest()))
    }
}

/// `1 key`, `2 keys`.
fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(n as f64))
}

/// `1,234,567`.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let first = (digits.len() - 1) % 3 + 1;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(head.to_owned()).chain(groups).collect::<Vec<_>>().join(",")
}

/// `950 ns`, `1.50 µs`, `12.0 ms`, `1.20 s`: three digits and the unit that suits.
pub(super) fn span(nanos: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let nanos = nanos as f64;
    // By what would be shown: 999.9 µs is 1.00 ms.
    let Some((size, unit)) = units.into_iter().find(|(size, _)| nanos >= size * 0.9995) else {
        return format!("{nanos:.0} ns");
    };
    let value = nanos / size;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// What a server sent, for somebody to read: on one line, and not too much of it.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    let readable = text.chars().flat_map(|char| {
        let escape = char.is_control().then(|| char.escape_default());
        escape.into_iter().flatten().chain((!char.is_control()).then_some(char))
    });
    readable.chain("...".chars().filter(|_| bytes.len() > SHOWN)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sent_is_shown_on_one_line() {
        for (sent, text) in [
            (&b"{\"a\": 1}"[..], "{\"a\": 1}"),
            (b"no\r\n\x1b[2J", r"no\r\n\u{1b}[2J"),
            (b"\xff", "\u{fffd}"),
        ] {
            assert_eq!(shown(sent), text);
        }
        assert!(shown(&[b'a'; 10_000]).ends_with("aaa..."));
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0.0, "0"), (999.4, "999"), (999.6, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn spans_have_three_digits() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_994, "9.99 µs"),
            (9_996, "10.0 µs"),
            (123_456, "123 µs"),
            (999_900, "1.00 ms"),
            (1_500_000_000, "1.50 s"),
            (60_000_000_000, "60.0 s"),
        ] {
            assert_eq!(span(nanos), text);
        }
    }
}
