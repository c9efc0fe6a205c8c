//! Prints the report of a run, in words or as JSON.
//!
//! ```text
//! throttr 127.0.0.1:9000: 50 connections, 64 at once, 1,000,000 keys, closed loop
//!   3,012,345 requests/s    15,061,725 answered in 5.0 s
//!   denied 0    errors 0    unanswered 0
//!   latency  p50 1.02 ms    p90 1.31 ms    p99 2.10 ms    p99.9 3.30 ms    max 4.51 ms
//! ```

use std::time::Duration;

use serde_json::{Value, json};
use tollway_load::{Load, LoadReport};

use super::flags::LoadFlags;

/// Returns the report as one object.
pub(super) fn json(name: &str, flags: &LoadFlags, load: &Load, report: &LoadReport) -> Value {
    let stats = &report.stats;
    let nanos = |share| u64::try_from(stats.latency(share).as_nanos()).unwrap_or(u64::MAX);
    json!({
        "protocol": name,
        "addr": load.addr.to_string(),
        "connections": load.connections,
        "pipeline": load.pipeline,
        "keys": flags.keys,
        "zipf": flags.zipf,
        "rate": load.rate,
        "echo": flags.echo,
        "seconds": report.measured.as_secs_f64(),
        "requests": stats.replies,
        "requests_per_second": report.rate(),
        "denied": stats.denied,
        "errors": stats.errors,
        "first_error": stats.first_error,
        "unanswered": report.unanswered,
        "latency_ns": {
            "mean": stats.mean_nanos(),
            "p50": nanos(0.5),
            "p90": nanos(0.9),
            "p99": nanos(0.99),
            "p999": nanos(0.999),
            "max": nanos(1.0),
        },
    })
}

/// Returns the report as lines for people.
pub(super) fn text(name: &str, flags: &LoadFlags, load: &Load, report: &LoadReport) -> String {
    let (stats, count) = (&report.stats, |n: u64| grouped(n as f64));
    let echo = if flags.echo { " (echo)" } else { "" };
    let zipf = if flags.zipf == 0.0 { String::new() } else { format!(" by Zipf {}", flags.zipf) };
    let pace =
        load.rate.map_or("closed loop".to_owned(), |rate| format!("open loop, {} requests/s", count(rate)));
    let mut lines = vec![
        format!(
            "{name}{echo} {}: {}, {} at once, {}{zipf}, {pace}",
            load.addr,
            counted(load.connections.into(), "connection"),
            load.pipeline,
            counted(flags.keys, "key"),
        ),
        format!(
            "  {} requests/s    {} answered in {:.1} s",
            grouped(report.rate()),
            count(stats.replies),
            report.measured.as_secs_f64()
        ),
        format!(
            "  denied {}    errors {}    unanswered {}",
            count(stats.denied),
            count(stats.errors),
            count(report.unanswered)
        ),
    ];
    lines.extend(stats.first_error.as_ref().map(|error| format!("  first error: {error}")));
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    let latencies = quantiles.map(|(name, share)| format!("{name} {}", span(stats.latency(share))));
    lines.push(format!("  latency  {}\n", latencies.join("    ")));
    lines.join("\n")
}

/// Formats a number of things: `1 key`, `2 keys`.
fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(n as f64))
}

/// Formats a whole number as `1,234,567`.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let first = (digits.len() - 1) % 3 + 1;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    std::iter::once(head.to_owned()).chain(groups).collect::<Vec<_>>().join(",")
}

/// Formats a time with three digits and the unit that suits: `950 ns`, `1.50 µs`, `12.0 ms`, `1.20 s`.
pub(super) fn span(time: Duration) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let nanos = time.as_nanos() as f64;
    // Decided by what would be shown: 999.9 µs is 1.00 ms.
    let Some((size, unit)) = units.into_iter().find(|(size, _)| nanos >= size * 0.9995) else {
        return format!("{nanos:.0} ns");
    };
    let value = nanos / size;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(span(Duration::from_nanos(nanos)), text);
        }
    }
}
